#!/usr/bin/env python3
"""Runs a C test under a preloaded library: preloaded.py LIBRARY PROGRAM [NAME=VALUE ...] [-- ARGS]"""
import sys

from vmtest import run

library, program, *rest = sys.argv[1:]
args = rest[rest.index("--") + 1:] if "--" in rest else []
extra = dict(a.split("=", 1) for a in rest[:len(rest) - len(args)] if "=" in a)
r = run([program, *args], preload=library, **extra)
print(r.stdout + r.stderr)
sys.exit(r.returncode if r.returncode >= 0 else 1)
