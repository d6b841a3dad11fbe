#!/usr/bin/env python3
"""Runs a command, usually a Python with a CUDA wheel of PyTorch, on the simulated GPU.

usage: sim_env.py [--build DIR] [--python PYTHON] [--cuda 12|13] [--vmem] COMMAND [ARGUMENT...]
       sim_env.py [--build DIR] [--python PYTHON] [--cuda 12|13] [--vmem] --print

The wheels' libraries find NVIDIA's by DT_RPATH, which goes before LD_LIBRARY_PATH, so the stand-ins are
preloaded: the loader then takes them for every library of the same SONAME. libcuda.so.1 and
libnvidia-ml.so.1 are found by LD_LIBRARY_PATH, as no wheel carries them. With --vmem libvmem.so is
preloaded first. --print writes the variables as lines for a shell's `export`. Settings of the simulator
(SIMGPU_*) and of libvmem (VMEM_*) are the caller's; SIMGPU_PRESET is a100-40g where nothing is set, as
current wheels have no kernels for older cards.

--cuda says whose major version the stand-ins have. Without it the wheel's own is taken: that of the torch
that PYTHON finds (default: COMMAND, where that is a Python).
"""
import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]

# Preloaded, in this order: a library of each SONAME.
STAND_INS = ["runtime/libcudart.so.{major}", "blas/libcublas.so.{major}", "blaslt/libcublasLt.so.{major}",
             "cupti/libcupti.so.{major}", "dnn/libcudnn.so.9"]
# Not built where the toolkit came without its headers; the real one then finds no driver that it knows.
OPTIONAL = ["cupti"]
# Folders that are searched.
SEARCHED = ["driver", "nvml"]


def cuda_major(python):
    """The major version of CUDA that the torch of this interpreter was built for."""
    where = "import importlib.util as u; print(u.find_spec('torch').origin)"
    try:
        out = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout
        text = (pathlib.Path(out.strip()).parent / "version.py").read_text()
    except (OSError, subprocess.CalledProcessError) as e:
        raise SystemExit(f"sim_env.py: {python} finds no torch ({e}); give --cuda 12 or 13")
    found = re.search(r"^cuda\b.*=\s*'(\d+)\.", text, re.M)
    if not found:
        raise SystemExit(f"sim_env.py: the torch of {python} was built without CUDA")
    return int(found.group(1))


def environment(build, major, vmem=False, base=None):
    """The variables of a process on the simulated GPU, over `base` (default: ours)."""
    env = dict(os.environ if base is None else base)
    build = pathlib.Path(build).resolve()
    libraries = [build / "tests/simgpu" / name.format(major=major) for name in STAND_INS]
    libraries = [l for l in libraries if l.exists() or l.parent.name not in OPTIONAL]
    if vmem:
        libraries.insert(0, build / "cuda_hooks/libvmem.so")
    for library in libraries:
        if not library.exists():
            raise SystemExit(f"sim_env.py: {library} is missing; build with ninja -C {build}")
    others = [name for name in re.split("[: ]", env.get("LD_PRELOAD", "")) if name]
    env["LD_PRELOAD"] = ":".join([str(l) for l in libraries] + others)
    folders = [str(build / "tests/simgpu" / name) for name in SEARCHED]
    env["LD_LIBRARY_PATH"] = ":".join(folders + [p for p in [env.get("LD_LIBRARY_PATH")] if p])
    env.setdefault("SIMGPU_PRESET", "a100-40g")
    return env


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1], description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=TOP / "build")
    parser.add_argument("--python")
    parser.add_argument("--cuda", type=int, choices=[12, 13])
    parser.add_argument("--vmem", action="store_true")
    parser.add_argument("--print", action="store_true", dest="show")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if not args.show and not args.command:
        parser.error("no command given")
    python = args.python or (args.command[0] if args.command else sys.executable)
    env = environment(args.build, args.cuda or cuda_major(python), args.vmem)
    if args.show:
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "SIMGPU_PRESET"]:
            print(f"export {name}={shlex.quote(env[name])}")
        return
    os.execvpe(args.command[0], args.command, env)


if __name__ == "__main__":
    main()
