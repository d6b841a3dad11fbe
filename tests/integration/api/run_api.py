#!/usr/bin/env python3
"""Runs one program of this folder on the simulated GPU and compares what it prints.

  run_api.py PROGRAM EXPECTED --driver DIR [--vmem LIBVMEM] [--preset CARD] [--bless]

Functional mode with the race check, two devices, several seeds. With --vmem each seed runs under
LD_PRELOAD, once with the budget that libvmem.so takes by itself and once with a small one; its host
memory is limited, because without that a program here would not come to the end of memory.
--bless writes EXPECTED from a bare run instead.
"""
import argparse
import difflib
import os
import subprocess
import sys

SEEDS = (1, 2, 3)


def environment(driver, preset, seed):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("VMEM_", "SIMGPU_")) and k != "LD_PRELOAD"}
    env.update(LD_LIBRARY_PATH=driver, SIMGPU_PRESET=preset, SIMGPU_MODE="functional",
               SIMGPU_MEMORY="256MiB", SIMGPU_GRANULARITY="65536", SIMGPU_DEVICES="2",
               SIMGPU_RACECHECK="1", SIMGPU_SEED=str(seed))
    return env


def run(program, env):
    return subprocess.run([program], env=env, capture_output=True, text=True, timeout=100)


def problems(result, expected):
    found = []
    if result.returncode != 0:
        found.append(f"exit status {result.returncode}")
    if "race" in result.stderr:
        found.append("the race check found something")
    if result.stdout != expected:
        found.append("other lines than expected:\n" + "".join(difflib.unified_diff(
            expected.splitlines(True), result.stdout.splitlines(True), "expected", "printed")))
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("expected")
    p.add_argument("--driver", required=True)
    p.add_argument("--vmem")
    p.add_argument("--preset", default="h100-80g")
    p.add_argument("--bless", action="store_true")
    a = p.parse_args()
    if a.bless:
        result = run(a.program, environment(a.driver, a.preset, 1))
        sys.stderr.write(result.stderr)
        with open(a.expected, "w") as f:
            f.write(result.stdout)
        sys.exit(result.returncode)
    with open(a.expected) as f:
        expected = f.read()
    variants = [{}]
    if a.vmem:
        # the paths are absolute: the loader and libvmem.so find them from any folder
        preload = {"LD_PRELOAD": os.path.abspath(a.vmem), "VMEM_LOG": "warn",
                   "VMEM_HOST_BUDGET": "96MiB", # so that a program can run out
                   "VMEM_LIBCUDA": os.path.abspath(os.path.join(a.driver, "libcuda.so.1"))}
        variants = [preload, dict(preload, VMEM_BUDGET="24MiB")]
    bad = 0
    for seed in SEEDS:
        for extra in variants:
            result = run(a.program, dict(environment(a.driver, a.preset, seed), **extra))
            found = problems(result, expected)
            if found:
                bad += 1
                print(f"seed {seed}, {extra}: " + "; ".join(found) + "\n" + result.stderr)
    sys.exit(1 if bad else 0)


main()
