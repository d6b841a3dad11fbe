#!/usr/bin/env python3
"""A driver too old to be managed, with a name too new to be known: everything passes, and it is said."""
import os
import sys

from vmtest import check, finish, lines_of_libvmem, run

DRIVER = os.path.abspath(sys.argv[1])
CODE = """
import ctypes
cu = ctypes.CDLL('libcuda.so.1')
print(cu.cuInit(0), cu.cuInit(5))
v = ctypes.c_int()
print(cu.cuDriverGetVersion(ctypes.byref(v)), v.value)
p = ctypes.c_ulonglong()
print(cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4097)), p.value)
print(cu.cuMemFree_v2(ctypes.c_ulonglong(4097)), cu.cuDeviceGetCount(ctypes.byref(v)), cu.cuDeviceGetCount(None))
new = ctypes.CDLL(None).cuBrandNewThing
print(new(1, ctypes.c_double(2.5), 3))
"""
r = run([sys.executable, "-c", CODE], driver=False, VMEM_LIBCUDA=DRIVER, VMEM_LOG="info")
check(r.stdout.split("\n")[:5] == ["0 5", "0 11000", "0 4097", "302 302 302", "6"], f"{r.stdout} {r.stderr}")
lines = lines_of_libvmem(r.stderr)
for number, word in [("100", DRIVER), ("103", "stays out"), ("104", "cuBrandNewThing"), ("105", "cuDeviceGetCount")]:
    mine = [line for line in lines if f" {number}: " in line]
    check(len(mine) == 1 and word in mine[0], f"message {number}: {lines}")
finish()
