#!/usr/bin/env python3
"""What only a real GPU can tell, in one command: see docs/hardware.md.

Writes build/gpu/results.json, build/gpu/table.md (for docs/hardware.md) and build/gpu/log.txt. A step that fails, or
that runs out of its time, does not stop the others; steps for which no time is left are listed as not run. Exit
status 0 if every step ran and nothing differed or failed, 1 otherwise, 77 where there is no GPU.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import c_steps
import table
import torch_steps
from kitlib import Clock, OutOfTime
from place import ROOT, Place, real_gpu

# (name, function, seconds, what it shows): the most telling first.
STEPS = [
    ("doctor", c_steps.doctor, 30, "what libvmem finds"),
    ("trainer_bits", c_steps.trainer_bits, 100, "C trainers: losses and weights equal to native's"),
    ("torch_bits", torch_steps.torch_bits, 150, "PyTorch scripts: losses and weights equal to native's"),
    ("measurements", c_steps.measurements, 120, "the driver's costs and rules"),
    ("torch_speed", torch_steps.torch_speed, 120, "against native, recomputation and offload hooks"),
    ("torch_batch", torch_steps.torch_batch, 130, "largest batch"),
    ("trainer_speed", c_steps.trainer_speed, 60, "VGG-16, batch 256, 12 GiB"),
]


SECONDS = 530  # for all of it; the limits above go with that


class Kit:
    """What the steps are given."""

    def __init__(self, place, clock, out, scratch, short):
        self.place, self.clock, self.scratch, self.short = place, clock, scratch, short
        self.log = out / "log.txt"
        self.facts = place.describe()

    def choose(self, rows):
        """All of them, or the first where a short run is asked for."""
        return rows[:1] if self.short else rows


def bad(row):
    result = row.get("result", "")
    return bool(row.get("failed")) or result.startswith(("FAILED", "DIFFERENT", "RACE", "not run", "out of memory"))


def run_step(kit, name, function, seconds, what):
    kit.clock.start_step(seconds)
    began = time.monotonic()
    rows, state = [], "done"
    try:
        for row in function(kit):
            rows.append(row)
    except OutOfTime as e:
        state = f"not finished: {e}"
    except Exception as e:  # a step's own mistake must not take the others with it
        state = f"FAILED: {type(e).__name__}: {e}"
    if state == "done" and any(bad(r) for r in rows):
        state = "with failures"
    seconds = time.monotonic() - began
    print(f"{name}: {state} ({seconds:.0f} s)", flush=True)
    for r in rows:
        if bad(r):
            print("   " + ", ".join(f"{k} {table.cell(v)}" for k, v in r.items() if k not in ("tried", "failed")))
    return {"name": name, "what": what, "state": state, "seconds": seconds, "rows": rows}


def commit():
    r = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return r.stdout.strip() or "of unknown version"


def write(out, results):
    """After each step, so that a kit that is cut off leaves what it had."""
    for name, text in (("results.json", json.dumps(results, indent=1) + "\n"), ("table.md", table.markdown(results))):
        (out / (name + ".tmp")).write_text(text)
        (out / (name + ".tmp")).rename(out / name)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--rehearse", action="store_true", help="on the simulated GPU, with small networks")
    p.add_argument("--short", action="store_true", help="one script of each kind")
    p.add_argument("--only", action="append", choices=[s[0] for s in STEPS], help="this step (may be repeated)")
    p.add_argument("--seconds", type=int, default=SECONDS,
                   help=f"time for all of it, and with it the limits of steps and programs ({SECONDS})")
    p.add_argument("--preset", default="a100-40g", help="of the simulated GPU")
    p.add_argument("--python", default=os.environ.get("VMEM_PYTHON") or "python3", help="with PyTorch")
    p.add_argument("--out", help="folder of the results (build/gpu)")
    p.add_argument("--build", default=str(ROOT / os.environ.get("VMEM_BUILD_DIR", "build")))
    return p.parse_args()


def main():
    args = arguments()
    build = pathlib.Path(args.build)
    for needed in ("cuda_hooks/libvmem.so", "tests/gpu/measure", "tests/trainers/trainer", "tools/vmem"):
        if not (build / needed).exists():
            print(f"{build / needed} is missing: meson setup build && ninja -C build")
            return 1
    if not args.rehearse and not real_gpu(build):
        print("there is no GPU here (the driver names none); --rehearse runs on the simulated one")
        return 77
    out = pathlib.Path(args.out or build / "gpu")
    out.mkdir(parents=True, exist_ok=True)
    (out / "log.txt").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="vmem-gpu-") as scratch:
        place = Place(build, args.python, args.rehearse, args.preset)
        kit = Kit(place, Clock(args.seconds, args.seconds / SECONDS), out, pathlib.Path(scratch), args.short)
        results = {"simulated": args.rehearse, "date": datetime.date.today().isoformat(), "commit": commit(),
                   "facts": kit.facts, "missing": place.missing, "steps": []}
        for name, function, seconds, what in STEPS:
            if args.only and name not in args.only:
                continue
            results["steps"].append(run_step(kit, name, function, seconds, what))
            write(out, results)
    for m in place.missing:
        print(f"missing: {m}")
    print(f"wrote {out / 'results.json'} and {out / 'table.md'}" + (" (simulated)" if args.rehearse else ""))
    return 0 if all(s["state"] == "done" for s in results["steps"]) and results["steps"] else 1


if __name__ == "__main__":
    sys.exit(main())
