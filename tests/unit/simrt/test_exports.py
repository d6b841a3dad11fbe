#!/usr/bin/env python3
"""Names, versions and needs of the simulated runtime libraries.

  test_exports.py LIB13 LIB12 READELF CUDA_INCLUDE

Every name carries the library's version; each needs libc alone; both hold every function that the
header of CUDA 13 declares; and where a real libcudart.so.13 lies beside the headers, its names are
exactly ours.
"""
import os
import re
import subprocess
import sys

LIBC = re.compile(r"^(libc\.so\.6|ld-linux.*|libpthread\.so\.0|libdl\.so\.2|libm\.so\.6|lib[atu]+san.*|libubsan.*)$")


def names(readelf, lib):
    out = subprocess.run([readelf, "-W", "--dyn-syms", lib], check=True, capture_output=True,
                         text=True).stdout
    found = {}
    for line in out.splitlines():
        f = line.split()
        if len(f) >= 8 and f[3] == "FUNC" and f[4] in ("GLOBAL", "WEAK") and f[6] != "UND":
            name, _, version = f[7].replace("@@", "@").partition("@")
            found[name] = version
    return found


def main():
    lib13, lib12, readelf, include = sys.argv[1:5]
    problems = []
    for lib, version in ((lib13, "libcudart.so.13"), (lib12, "libcudart.so.12")):
        have = names(readelf, lib)
        wrong = sorted(n for n, v in have.items() if v != version)
        if wrong:
            problems.append(f"{lib}: without version {version}: {', '.join(wrong[:5])}")
        if len(have) < 400:
            problems.append(f"{lib}: only {len(have)} names")
        dynamic = subprocess.run([readelf, "-d", lib], capture_output=True, text=True).stdout
        for need in re.findall(r"NEEDED.*\[(.*)\]", dynamic):
            if not LIBC.match(need):
                problems.append(f"{lib}: needs {need}")
        if f"[{version}]" not in "".join(l for l in dynamic.splitlines() if "SONAME" in l):
            problems.append(f"{lib}: its SONAME is not {version}")
        if "cudaMalloc" not in have or "__cudaRegisterFatBinary" not in have:
            problems.append(f"{lib}: cudaMalloc or __cudaRegisterFatBinary is missing")
    text = open(os.path.join(include, "cuda_runtime_api.h")).read()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    declared = set(re.findall(r"^extern\s+__host__[^;(]*?\b(cuda\w+)\s*\(", text, re.M))
    have = names(readelf, lib13)
    lacking = sorted(declared - set(have))
    if lacking or len(declared) < 200:
        problems.append(f"declared ({len(declared)}) but not exported: {', '.join(lacking[:8])}")
    real = os.path.join(os.path.dirname(include), "lib", "libcudart.so.13")
    if os.path.exists(real):
        differ = set(names(readelf, real)) ^ set(have)
        if differ:
            problems.append(f"not the names of {real}: {', '.join(sorted(differ)[:8])}")
    print("\n".join(problems) or f"{len(have)} names")
    sys.exit(1 if problems else 0)


main()
