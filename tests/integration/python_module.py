#!/usr/bin/env python3
"""The vmem module for Python: every call under libvmem.so, none of any effect without it, its structure the header's."""
import dataclasses
import os
import pathlib
import re
import subprocess
import sys

from vmtest import ROOT, check, finish, planted, run

MODULE = ROOT / "tools" / "python"
PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "hints.py"
sys.path.insert(0, str(MODULE))
import vmem  # noqa: E402

UNDER = """\
before and after cuInit ABSENT DONE
keep DONE DONE DONE
elsewhere UNKNOWN UNKNOWN TypeError
dead DONE
promise DONE
contents {7}
made anew 1 dropped True budget 1048576
taken back DONE negative cost ValueError
contents {7}
not made anew 0
promise DONE
contents {7}
failure RegenerationError then DONE
"""
ALONE = """\
before and after cuInit ABSENT ABSENT
keep ABSENT ABSENT ABSENT
elsewhere ABSENT ABSENT TypeError
dead ABSENT
promise ABSENT
contents {7}
made anew None dropped None budget None
taken back ABSENT negative cost ValueError
contents {7}
not made anew None
promise ABSENT
contents {7}
failure ABSENT then ABSENT
"""
SWITCHED_OFF = ALONE.replace("elsewhere ABSENT ABSENT", "elsewhere ABSENT UNKNOWN")  # no block has no address


def header_fields():
    """Names and types of `struct vmem_stats`, in order."""
    text = (ROOT / "include" / "vmem.h").read_text()
    body = re.sub(r"/\*.*?\*/", "", re.search(r"struct vmem_stats \{(.*?)\};", text, re.S)[1])
    return [(name.strip(), kind) for kind, names in re.findall(r"(uint\d+_t) ([^;]+);", body)
            for name in names.split(",")]


def module_fields(structure):
    return [(name, f"uint{8 * kind.size if hasattr(kind, 'size') else 8 * vmem.ctypes.sizeof(kind)}_t")
            for name, kind in structure._fields_]


def outcomes():
    text = (ROOT / "include" / "vmem.h").read_text()
    return {name: int(value) for name, value in re.findall(r"#define VMEM_(\w+)\s+(\d)$", text, re.M)}


check(header_fields() == module_fields(vmem._Stats), f"struct vmem_stats {header_fields()}, module {module_fields(vmem._Stats)}")
planted("a field too many", header_fields() != module_fields(vmem._Stats) + [("more", "uint64_t")])
check([f.name for f in dataclasses.fields(vmem.Stats)] == [name for name, _ in header_fields()][1:], "Stats has other fields")
check(outcomes() == {"OK": 0, "ABSENT": vmem.Outcome.ABSENT, "UNKNOWN": vmem.Outcome.UNKNOWN}, f"vmem.h says {outcomes()}")
check(not vmem.loaded() and vmem.stats() is None and vmem.step() is vmem.Outcome.ABSENT, "something is there without libvmem")

where = {"PYTHONPATH": MODULE, "SIMGPU_RACECHECK": 1}
for name, expected, options in [("under libvmem", UNDER, {"VMEM_BUDGET": "1MiB", "VMEM_POLICY": "lru"}),
                                ("switched off", SWITCHED_OFF, {"VMEM_OFF": 1}), ("alone", ALONE, {"preload": False})]:
    r = run([sys.executable, PROGRAM], **where, **options)
    check(r.returncode == 0, f"{name}: exit status {r.returncode}: {r.stderr[-800:]}")
    check(r.stdout == expected, f"{name}: printed\n{r.stdout}{r.stderr}")
    told = "regenerable() failed: OSError('planted')" in r.stderr
    check(told == (expected is UNDER), f"{name}: the planted failure was told {told}: {r.stderr}")

# Types, where mypy is at hand (VMEM_MYPY names it).
if os.environ.get("VMEM_MYPY"):
    r = subprocess.run([os.environ["VMEM_MYPY"], "--strict", str(MODULE / "vmem")], capture_output=True, text=True)
    check(r.returncode == 0, f"mypy --strict: {r.stdout}{r.stderr}")
finish()
