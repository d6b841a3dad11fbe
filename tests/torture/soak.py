#!/usr/bin/env python3
"""Runs the torture program over many seeds, or shrinks one that failed.

  soak.py torture --seeds N [--first S] [--faults] [--free] [--bare] [--torch] [--seconds T] [--jobs J]
                  [--list FILE] [--replay]
  soak.py torture --shrink SEED [--faults] [--bare] [--torch]

Each seed is one process. Right are an exit status of 0; 3, a loud fault in a program that follows
tables of addresses; and, with --faults, 4, the program's own out-of-memory error. A program that gets
nothing done for STALL seconds hangs, however long the others take. --free lets threads run freely: such
a run need not repeat. --torch: libvmem.so finds PyTorch in the process, and captures allocate.
--seconds ends the run early; --list runs the seeds of a file (past failures,
each with the options on its line) before the others. --replay runs each seed twice and fails if the
driver's calls or their times differ. The last line is `N seeds, F failures`.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import select
import subprocess
import sys
import tempfile
import time

STALL = 120
NAMES = {0: "right", 3: "loud", 4: "out of memory", 124: "hang", 125: "no replay"}
Case = collections.namedtuple("Case", "seed faults free")


def command(build, case, a, extra=()):
    driver = os.path.join(build, "tests/simgpu/driver/libcuda.so.1")
    c = [os.path.join(build, "tests/torture/torture"), "--seed", str(case.seed)]
    if not a.bare:
        c += ["--vmem", os.path.join(build, "cuda_hooks/libvmem.so"), "--driver", driver]
        if a.torch:
            c += ["--torch", os.path.join(build, "tests/integration/libc10_cuda.so")]
    return c + ["--faults"] * case.faults + ["--free"] * case.free + list(extra)


def watch(c, env):
    """Runs a command to its end, or to where it has given no sign of life for STALL seconds: its
    exit status (124: it hung) and what it wrote to stderr."""
    sign, heart = os.pipe()
    with tempfile.TemporaryFile("w+", errors="replace") as err:
        p = subprocess.Popen(c + ["--heart", str(heart)], env=env, stdin=subprocess.DEVNULL,
                             stdout=err, stderr=err, pass_fds=[heart])
        os.close(heart)
        hung = False
        while not hung:
            hung = not select.select([sign], [], [], STALL)[0]
            if not hung and not os.read(sign, 4096):
                break
        os.close(sign)
        if hung:
            p.kill()
        code = p.wait()
        err.seek(0)
        return 124 if hung else code, err.read()


def run(build, case, a, extra=(), **more):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("SIMGPU_", "VMEM_")) or k == "VMEM_LOG"}
    env["LD_LIBRARY_PATH"] = os.path.join(build, "tests/simgpu/driver")
    code, err = watch(command(build, case, a, extra), dict(env, **more))
    if code == -6 and not extra and is_late_follower(err, build, case, a):
        code = 3
    return code, err


FOLLOWER = re.compile(r"simgpu: ((early unmap|illegal address|late map): .*kernel torture_gather "
                      r"|race: write by kernel torture_gather .* and read by copy to the host "
                      r".*, which was over when the page became read-only$)")


def is_late_follower(err, build, case, a):
    """The loud fault seen before it happens: a page leaves, becomes read-only or comes back while a
    kernel that will follow a table is still queued. Only a table that a kernel wrote may name a block
    nobody could know of. What comes after the fault itself comes from a context that is lost."""
    findings = [l for l in err.splitlines() if l.startswith("simgpu:")]
    if findings and findings[0].startswith("simgpu: illegal address:"):
        findings = findings[:1]
    if not findings or not all(FOLLOWER.match(l) for l in findings):
        return False
    _, told = run(build, case, a, ["--verbose"])
    return " table-store " in told


def run_twice(build, case, a):
    """As run(), but 125 where a second run does not repeat the first."""
    seen = []
    with tempfile.TemporaryDirectory() as d:
        for n in range(2):
            log = os.path.join(d, f"calls{n}")
            code, err = run(build, case, a, SIMGPU_CALL_LOG=log)
            with open(log) as f:
                seen.append((code, f.read().splitlines()))
    (code, first), (other, second) = seen
    at = next((i for i, (x, y) in enumerate(zip(first, second)) if x != y), None)
    if code == other and at is None and len(first) == len(second):
        return code, err
    return 125, (f"exit status {code}, then {other}; {len(first)} calls, then {len(second)}"
                 + (f"; call {at} is {first[at]}, then {second[at]}" if at is not None else ""))


def is_failure(code, case):
    return code not in ((0, 3, 4) if case.faults else (0, 3))


def reason(code, err):
    lines = [l for l in err.splitlines() if l.strip()]
    return f"{NAMES.get(code, 'exit status %d' % code)}: " + " | ".join(lines[-3:])[:400]


def listed(path):
    """The cases of a list: `SEED [--faults] [--free] what it found`, # begins a comment."""
    with open(path) as f:
        for line in f:
            m = re.match(r"(\d+)((?: --\w+)*)", line)
            if m:
                yield Case(int(m.group(1)), "--faults" in m.group(2), "--free" in m.group(2))


def soak(build, a):
    cases = [Case(s, a.faults, a.free) for s in range(a.first, a.first + a.seeds)]
    print(f"seeds from {a.first}" + " --faults" * a.faults + " --free" * a.free, flush=True)
    if a.list:
        cases = list(listed(a.list)) + cases
    end = time.monotonic() + a.seconds if a.seconds else None
    ran = failures = 0
    kinds = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        def one(case):
            if end and time.monotonic() > end:
                return case, None, ""
            return (case, *(run_twice if a.replay else run)(build, case, a))
        for case, code, err in pool.map(one, cases):
            if code is None:
                continue
            ran += 1
            kinds[NAMES.get(code, "failed")] += 1
            if is_failure(code, case):
                failures += 1
                print(f"seed {case.seed}{' --faults' * case.faults}"
                      f"{' --free (may not fail again)' * case.free}: {reason(code, err)}", flush=True)
    print(", ".join(f"{n} {k}" for k, n in sorted(kinds.items())))
    print(f"{ran} seeds, {failures} failures")
    return 1 if failures or not ran else 0


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
    case = Case(a.shrink, a.faults, a.free)
    code, err = run(build, case, a, ["--verbose"])
    if not is_failure(code, case):
        print(f"seed {a.shrink} does not fail: {reason(code, err)}")
        return 2
    items = all_intents(err)
    budget = re.search(r"budget (\d+)", err)
    fixed = ["--budget", budget.group(1)] if budget else []

    def fails(some):
        c, _ = run(build, case, a, fixed + ["--keep", keep_list(some)])
        return is_failure(c, case)

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
    code, err = run(build, case, a, extra + ["--verbose"])
    print(err.rstrip())
    print(" ".join(command(build, case, a, extra)))
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
    p.add_argument("--free", action="store_true")
    p.add_argument("--bare", action="store_true")
    p.add_argument("--torch", action="store_true")
    p.add_argument("--replay", action="store_true")
    p.add_argument("--build", default=os.environ.get("VMEM_BUILD_DIR", "build"))
    a = p.parse_args()
    build = os.path.abspath(a.build)
    sys.exit(shrink(build, a) if a.shrink is not None else soak(build, a))


if __name__ == "__main__":
    main()
