#!/usr/bin/env python3
"""What libvmem.so shows to the loader: names, SONAME, needed libraries, no work at load."""
import re
import subprocess
import sys

from vmtest import BUILD, LIBVMEM, ROOT, check, finish, planted

sys.path.insert(0, str(ROOT / "tools"))
import gen_symbols  # noqa: E402
import xmacro  # noqa: E402

HOOKS = ROOT / "cuda_hooks" / "hooks.def"


def output(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout


def exported(path):
    return {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--defined-only", path).splitlines()}


def imported(path):
    return {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--undefined-only", path).splitlines()}


def watched_calls():
    names = {r[0] for r in xmacro.rows(ROOT / "cuda_hooks" / "cudnn.def", "VM_CUDNN")}
    names |= {r[0] for r in xmacro.rows(ROOT / "cuda_hooks" / "cudnn_backend.def", "VM_BE_CALL")}
    text = xmacro.strip_comments((ROOT / "cuda_hooks" / "cublas.def").read_text())
    names |= {r[0] for r in xmacro.rows(ROOT / "cuda_hooks" / "cupti.def", "VM_CUPTI")}
    return names | set(re.findall(r"^VM_\w+\((cublas\w+)", text, re.M))


def name_problems(names, include_dir):
    """Both ways: everything that should be there is, and nothing else."""
    driver, _ = gen_symbols.read(include_dir)
    driver = {n for n in driver if not n.startswith("cuGetProcAddress")}
    wanted = driver | set(gen_symbols.hooked(HOOKS)) | watched_calls()
    problems = [f"{n} is not exported" for n in sorted(wanted - names)]
    problems += [f"{n} is exported and no table has it" for n in sorted(names - wanted)
                 if not n.startswith("vmem_")]
    return problems


# Calls that have no place in somebody else's process.
FORBIDDEN = {"exit", "_exit", "abort", "quick_exit", "printf", "puts", "fprintf", "fopen", "fwrite",
             "signal", "sigaction", "system", "popen", "__assert_fail", "dlmopen"}


def import_problems(names):
    return [f"{n} is called" for n in sorted(names & FORBIDDEN)]


def dynamic_problems(text, soname="libcuda.so.1"):
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", text)
    # The dynamic loader is part of libc.
    problems = [f"{n} is needed" for n in needed if not re.match(r"(libc\.so|ld-linux)", n)]
    if re.findall(r"\(SONAME\).*\[(.*?)\]", text) != [soname]:
        problems.append(f"the SONAME is not {soname}")
    if "TEXTREL" in text:
        problems.append("text relocations")
    # The compiler's own frame_dummy is the one entry that every shared object has.
    size = re.search(r"\(INIT_ARRAYSZ\)\s+(\d+)", text)
    if size and int(size.group(1)) > 8:
        problems.append("it has constructors")
    return problems


def main():
    include_dir = sys.argv[1]
    names = exported(LIBVMEM)
    for p in name_problems(names, include_dir):
        check(False, p)
    check(len(names) > 600, f"only {len(names)} names are exported")
    planted("a missing name", name_problems(names - {"cuMemAlloc_v2"}, include_dir))
    planted("a missing jump", name_problems(names - {"cuDeviceGetCount"}, include_dir))
    planted("a leaked name", name_problems(names | {"vm_pager_pump"}, include_dir))

    dynamic = output("readelf", "-dW", LIBVMEM)
    for p in dynamic_problems(dynamic):
        check(False, p)
    planted("a needed library", dynamic_problems(dynamic + "\n (NEEDED) Shared library: [libcudart.so.13]"))
    planted("a SONAME", dynamic_problems(dynamic.replace("libcuda.so.1", "libvmem.so")))
    planted("a constructor", dynamic_problems(re.sub(r"(INIT_ARRAYSZ\)\s+)\d+", r"\g<1>16", dynamic)))
    planted("a real library with other needs",
            dynamic_problems(output("readelf", "-dW", BUILD / "tests/simgpu/runtime/libcudart.so.13")))

    for p in import_problems(imported(LIBVMEM)):
        check(False, p)
    planted("a forbidden call", import_problems({"exit", "malloc"}))
    finish()


main()
