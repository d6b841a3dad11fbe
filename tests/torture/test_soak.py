"""The torture run can fail: faults planted beneath libvmem.so are found, each by a check that fits, in at
most 100 seeds; so are a program that hangs, and one that does not repeat itself.

usage: test_soak.py BUILD
"""
import argparse
import os
import re
import sys
import tempfile
import time

import soak

SEEDS = 100
# Calls that do nothing and say that they worked -> what must be found.
PLANTED = {
    "cuEventQuery:p=0.05=SKIPPED": r"simgpu: (early unmap|race|illegal address)",
    "cuStreamWaitEvent:p=0.1=SKIPPED": r"simgpu: race",
    "cuMemcpyDtoHAsync:p=0.1=SKIPPED": r"WRONG|simgpu: undefined",
    "cuMemcpyHtoDAsync:p=0.1=SKIPPED": r"WRONG|simgpu: undefined",
    "cuMemUnmap:p=0.1=SKIPPED": r"CUresult|WRONG|simgpu:",
}


def find(build, a, rules, wanted):
    for seed in range(1, SEEDS + 1):
        case = soak.Case(seed, False, False)
        code, err = soak.run(build, case, a, ["--plant", rules])
        if soak.is_failure(code, case) and re.search(wanted, err):
            return f"seed {seed}: {soak.reason(code, err)}"
    return None


def script(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write("#!/bin/bash\n" + text)
    os.chmod(path, 0o755)
    return path


def hang(folder):
    """What is silent hangs; what gives signs of life does not, however long it takes."""
    soak.STALL = 1
    began = time.monotonic()
    code, err = soak.watch([script(folder, "silent", "echo last words >&2; exec sleep 60")], dict(os.environ))
    silent = code == 124 and "last words" in err and time.monotonic() - began < 30
    code, _ = soak.watch([script(folder, "slow", "for i in {1..12}; do sleep 0.25; printf . >&$2; done; exit 7")],
                         dict(os.environ))
    return silent and code == 7


def no_replay(folder):
    """A program whose calls differ from run to run, and one whose calls do not."""
    answers = []
    for calls in ("$$", "1"):
        build = os.path.join(folder, "build" + calls)
        os.makedirs(os.path.join(build, "tests/torture"))
        script(os.path.join(build, "tests/torture"), "torture", f'echo "{calls} cuInit" >"$SIMGPU_CALL_LOG"\n')
        answers.append(soak.run_twice(build, soak.Case(1, False, False), argparse.Namespace(bare=True, torch=False))[0])
    return answers == [125, 0]


def main():
    build, a = os.path.abspath(sys.argv[1]), argparse.Namespace(bare=False, torch=False)
    bad = 0
    soak.STALL = 20  # a fault may make a program hang: another seed shows it
    for rules, wanted in PLANTED.items():
        found = find(build, a, rules, wanted)
        print(f"{rules}: {found or 'not found in %d seeds' % SEEDS}")
        bad += found is None
    with tempfile.TemporaryDirectory() as folder:
        for check in (hang, no_replay):
            good = check(folder)
            print(f"{check.__name__}: {'found' if good else 'missed'}")
            bad += not good
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
