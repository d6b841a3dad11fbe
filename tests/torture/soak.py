#!/usr/bin/env python3
"""Runs the torture program over many seeds, or shrinks one that failed.

  soak.py torture --seeds N [--first S] [--faults] [--bare] [--seconds T] [--jobs J] [--list FILE]
  soak.py torture --shrink SEED [--faults] [--bare]

Each seed is one process. Right are an exit status of 0; 3, a loud fault in a program that follows
tables of addresses; and, with --faults, 4, the program's own out-of-memory error. --seconds ends the
run early, --list runs the seeds of a file (past failures) before the others. The last line is
`N seeds, F failures`.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import time

TIMEOUT = 120
NAMES = {0: "right", 3: "loud", 4: "out of memory", 124: "hang"}


def command(build, seed, a, extra=()):
    driver = os.path.join(build, "tests/simgpu/driver/libcuda.so.1")
    c = [os.path.join(build, "tests/torture/torture"), "--seed", str(seed)]
    if not a.bare:
        c += ["--vmem", os.path.join(build, "cuda_hooks/libvmem.so"), "--driver", driver]
    if a.faults:
        c.append("--faults")
    return c + list(extra)


def run(build, seed, a, extra=()):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("SIMGPU_", "VMEM_")) or k == "VMEM_LOG"}
    env["LD_LIBRARY_PATH"] = os.path.join(build, "tests/simgpu/driver")
    try:
        r = subprocess.run(command(build, seed, a, extra), env=env, capture_output=True, text=True,
                           errors="replace", timeout=TIMEOUT)
        if r.returncode == -6 and not extra and is_late_follower(r.stderr, build, seed, a):
            return 3, r.stderr
        return r.returncode, r.stderr
    except subprocess.TimeoutExpired as e:
        return 124, (e.stderr or b"").decode(errors="replace")


def is_late_follower(err, build, seed, a):
    """The loud fault seen before it happens: a page leaves while a kernel that will follow a table is
    still queued. Only a table that a kernel wrote may name a block nobody could know of."""
    findings = [l for l in err.splitlines() if l.startswith("simgpu:")]
    if not findings or not all(re.match(r"simgpu: (early unmap|illegal address): .*kernel torture_gather ", l)
                               for l in findings):
        return False
    _, told = run(build, seed, a, ["--verbose"])
    return " table-store " in told


def is_failure(code, a):
    return code not in ((0, 3, 4) if a.faults else (0, 3))


def reason(code, err):
    lines = [l for l in err.splitlines() if l.strip()]
    return f"{NAMES.get(code, 'exit status %d' % code)}: " + " | ".join(lines[-3:])[:400]


def soak(build, a):
    seeds = list(range(a.first, a.first + a.seeds))
    if a.list:
        with open(a.list) as f:
            seeds = [int(x) for x in re.findall(r"^\d+", f.read(), re.M)] + seeds
    end = time.monotonic() + a.seconds if a.seconds else None
    ran = failures = 0
    kinds = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        def one(seed):
            if end and time.monotonic() > end:
                return seed, None, ""
            return (seed, *run(build, seed, a))
        for seed, code, err in pool.map(one, seeds):
            if code is None:
                continue
            ran += 1
            kinds[NAMES.get(code, "failed")] += 1
            if is_failure(code, a):
                failures += 1
                print(f"seed {seed}: {reason(code, err)}", flush=True)
    print(", ".join(f"{n} {k}" for k, n in sorted(kinds.items())))
    print(f"{ran} seeds, {failures} failures")
    return 1 if failures else 0


# ---- shrinking ---------------------------------------------------------------------------------------

def all_intents(err):
    """Every (world, intent) that the program may have; those that were not carried out come first."""
    m = re.search(r"(\d+) threads, (\d+) intents", err)
    done = dict.fromkeys((int(w), int(i)) for w, i in
                         re.findall(r"^torture: world (\d+): (\d+) ", err, re.M))
    if not m:
        return list(done)
    rest = [(w, i) for w in range(int(m.group(1))) for i in range(int(m.group(2)))]
    return [x for x in rest if x not in done] + [x for x in rest if x in done]


def keep_list(items):
    return ",".join(f"{w}:{i}-{i}" for w, i in sorted(items)) or "9:0-0"


def shrink(build, a):
    code, err = run(build, a.shrink, a, ["--verbose"])
    if not is_failure(code, a):
        print(f"seed {a.shrink} does not fail: {reason(code, err)}")
        return 2
    items = all_intents(err)
    budget = re.search(r"budget (\d+)", err)
    fixed = ["--budget", budget.group(1)] if budget else []

    def fails(some):
        c, _ = run(build, a.shrink, a, fixed + ["--keep", keep_list(some)])
        return is_failure(c, a)

    if not fails(items):
        print("the failure depends on more than the intents; whole program:")
        items = None
    step = len(items) // 2 if items else 0
    while step:
        at, shorter = 0, False
        while at < len(items):
            rest = items[:at] + items[at + step:]
            if rest and fails(rest):
                items, shorter = rest, True
            else:
                at += step
        step = step if shorter and step == 1 else step // 2
    extra = fixed + (["--keep", keep_list(items)] if items else [])
    code, err = run(build, a.shrink, a, extra + ["--verbose"])
    print(err.rstrip())
    print(" ".join(command(build, a.shrink, a, extra)))
    if items:
        print(f"{len(items)} intents: {reason(code, err)}")
    return 1


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["torture"])
    p.add_argument("--seeds", type=int, default=100)
    p.add_argument("--first", type=int, default=1)
    p.add_argument("--seconds", type=float)
    p.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    p.add_argument("--list")
    p.add_argument("--shrink", type=int)
    p.add_argument("--faults", action="store_true")
    p.add_argument("--bare", action="store_true")
    p.add_argument("--build", default=os.environ.get("VMEM_BUILD_DIR", "build"))
    a = p.parse_args()
    build = os.path.abspath(a.build)
    sys.exit(shrink(build, a) if a.shrink is not None else soak(build, a))


main()
