#!/usr/bin/env python3
"""Every function that a wheel's libraries take from one that we stand in for is exported by the stand-in.

usage: imports.py --python PYTHON [--build DIR]

Prints a line for each library; exit status 1 if a name is missing. Needs nm.
"""
import argparse
import pathlib
import subprocess
import sys

import sim_env

# Of torch, torchvision and what lies beside them in site-packages/nvidia: those that stay the real ones.
WHEEL = ["torch/lib/lib*.so", "torchvision/*.so", "nvidia/*/lib/libcusolver.so*"]
# Undocumented; libcusolver needs a real card anyway.
UNDOCUMENTED = {"cublasSetEnvironmentMode", "cublasGetEnvironmentMode"}


def names(kind, library):
    """(name, version) of the library's dynamic symbols of a kind: undefined or defined."""
    out = subprocess.run(["nm", "-D", f"--{kind}-only", str(library)], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        name, _, version = line.split()[-1].partition("@")
        yield name, version.lstrip("@")


def missing(python, build):
    """By SONAME: what the wheel takes from it, and what of that we lack."""
    major = sim_env.cuda_major(python)
    origin = subprocess.run([python, "-c", "import importlib.util as u; print(u.find_spec('torch').origin)"], check=True,
                            capture_output=True, text=True).stdout.strip()
    packages = pathlib.Path(origin).parents[1]
    taken = {}
    for pattern in WHEEL:
        for library in sorted(packages.glob(pattern)):
            for name, version in names("undefined", library):
                taken.setdefault(version, set()).add(name)
    result = {}
    for stand_in in sim_env.STAND_INS:
        library = pathlib.Path(build) / "tests/simgpu" / stand_in.format(major=major)
        if not library.exists() and library.parent.name in sim_env.OPTIONAL:
            continue
        have = {name for name, _ in names("defined", library)}
        wanted = taken.get(library.name, set()) - UNDOCUMENTED
        result[library.name] = (len(wanted), sorted(wanted - have))
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--python", required=True)
    p.add_argument("--build", default=sim_env.TOP / "build")
    args = p.parse_args()
    found = missing(args.python, args.build)
    for library, (n, lacking) in found.items():
        print(f"{library}: {n} taken, {len(lacking)} missing", *lacking)
    return 1 if any(lacking or not n for n, lacking in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
