"""Faults planted in a shim are caught, each by the right checker, within 100 seeds.

usage: test_planted.py PROGRAM SHIM FOLDER_OF_LIBCUDA
"""
import os
import subprocess
import sys

PROGRAM, SHIM, LIBS = sys.argv[1:4]
SEEDS = 100
# What happens to a planted shim besides (SIMGPU_FAULTS).
FAULTS = {"deaf": "cuMemcpyDtoHAsync:3=UNKNOWN"}
# fault -> (mode -> the line that must appear)
EXPECT = {
    "stale": {"functional": "simgpu: race: ", "timing": "simgpu: race: "},
    "event": {"functional": "simgpu: race: ", "timing": "simgpu: race: "},
    # Unmapped before the copy ran: it finds no memory. In timing mode the copy may have begun.
    "unmap": {"functional": "simgpu: illegal address: copy", "timing": "simgpu: early unmap: "},
    "reuse": {"functional": "simgpu: race: ", "timing": "simgpu: race: "},
    "skip": {"functional": "simgpu: undefined: kernel add", "timing": "simgpu: undefined: kernel add"},
    "deaf": {"functional": "wrong "},
}


def run(plant, mode, seed, faults=""):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SIMGPU_", "VMEM_"))}
    env.update(LD_PRELOAD=SHIM, LD_LIBRARY_PATH=LIBS, SIMGPU_MODE=mode, SIMGPU_SEED=str(seed),
               SIMGPU_GRANULARITY="64KiB", SIMGPU_MEMORY="16MiB", SIMGPU_RACECHECK="1",
               SIMGPU_UNMAP_SYNC="0", SIMGPU_FAULTS=faults, PLANT=plant)
    # In a build with AddressSanitizer the shim comes before its runtime; leaks are not the subject.
    env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0:detect_leaks=0"
    r = subprocess.run([PROGRAM], env=env, capture_output=True, text=True, timeout=60)
    return r.returncode, r.stdout, r.stderr


def right(mode, result):
    return result[0] == 0 and not result[2] and (mode == "timing" or result[1] == "right\n")


def innocent():
    """What must be quiet: nothing planted, slow copies or not. And a failed call must end the program
    that listens to it."""
    bad = 0
    for mode, faults in (("functional", ""), ("timing", ""), ("timing", "slow-copy=200@0.2")):
        for seed in range(1, 21):
            r = run("nothing", mode, seed, faults)
            if not right(mode, r):
                print(f"{mode}, seed {seed}, nothing planted, faults '{faults}': {r}")
                bad += 1
    r = run("nothing", "functional", 1, FAULTS["deaf"])
    if r[0] != 3 or "cuMemcpyDtoHAsync" not in r[2]:
        print(f"a copy that failed: {r}")
        bad += 1
    return bad


def main():
    bad = innocent()
    for plant, modes in EXPECT.items():
        for mode, line in modes.items():
            caught = None
            for seed in range(1, SEEDS + 1):
                r = run(plant, mode, seed, FAULTS.get(plant, ""))
                if line in r[1] + r[2]:
                    caught = seed
                    break
            print(f"{plant:6} {mode:10} " + (f"caught at seed {caught}" if caught else
                                             f"not caught in {SEEDS} seeds: {r}"))
            bad += caught is None
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
