#!/usr/bin/env python3
"""Two versions of a watched library in one process: each caller's calls go to the copy it is linked with,
whichever was loaded first, and also when the library has a name that libvmem does not know."""
import os
import sys

from vmtest import DRIVER, check, finish, run

caller12, caller13, caller_odd = map(os.path.abspath, sys.argv[1:4])
CODE = """
import ctypes, sys
cu = ctypes.CDLL('libcuda.so.1')
assert cu.cuInit(0) == 0
for path in sys.argv[1:]:
    lib = ctypes.CDLL(path, mode=int({mode}))
    name = 'call_' + path.rsplit('caller', 1)[1].split('.')[0]
    print(getattr(lib, name)(), getattr(lib, name)())
"""


def answers(paths, mode):
    r = run([sys.executable, "-c", CODE.format(mode=mode), *paths], LD_LIBRARY_PATH=DRIVER.parent)
    check(r.returncode == 0 and "libvmem" not in r.stderr, r.stderr)
    return r.stdout.split("\n")[:-1]


for mode in ("0", "ctypes.RTLD_GLOBAL"):
    check(answers([caller12], mode) == ["112 112"], f"12 alone, mode {mode}")
    check(answers([caller13], mode) == ["113 113"], f"13 alone, mode {mode}")
    check(answers([caller_odd], mode) == ["99 99"], f"another name alone, mode {mode}")
for first, second, want in [(caller12, caller13, ["112 112", "113 113"]), (caller13, caller12, ["113 113", "112 112"])]:
    found = answers([first, second], "0")
    check(found == want, f"both: {found} and not {want}")
finish()
