"""Faults planted in a shim are caught, each by the right checker, within 100 seeds.

usage: test_planted.py PROGRAM SHIM FOLDER_OF_LIBCUDA
"""
import os
import subprocess
import sys

PROGRAM, SHIM, LIBS = sys.argv[1:4]
SEEDS = 100
# fault -> (mode -> the line that must appear)
EXPECT = {
    "stale": {"functional": "simgpu: race: ", "timing": "simgpu: race: "},
    "event": {"functional": "simgpu: race: ", "timing": "simgpu: race: "},
    # Unmapped before the copy ran: it finds no memory. In timing mode the copy may have begun.
    "unmap": {"functional": "simgpu: illegal address: copy", "timing": "simgpu: early unmap: "},
    "skip": {"functional": "simgpu: undefined: kernel add", "timing": "simgpu: undefined: kernel add"},
}


def run(plant, mode, seed):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SIMGPU_", "VMEM_"))}
    env.update(LD_PRELOAD=SHIM, LD_LIBRARY_PATH=LIBS, SIMGPU_MODE=mode, SIMGPU_SEED=str(seed),
               SIMGPU_GRANULARITY="64KiB", SIMGPU_MEMORY="16MiB", SIMGPU_RACECHECK="1",
               SIMGPU_UNMAP_SYNC="0", PLANT=plant)
    # In a build with AddressSanitizer the shim comes before its runtime; leaks are not the subject.
    env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0:detect_leaks=0"
    return subprocess.run([PROGRAM], env=env, capture_output=True, text=True, timeout=60)


def main():
    bad = 0
    for mode in ("functional", "timing"):
        for seed in range(1, 21):
            r = run("nothing", mode, seed)
            if r.stderr or r.returncode or (mode == "functional" and r.stdout != "right\n"):
                print(f"{mode}, seed {seed}, nothing planted: {r.stdout}{r.stderr}")
                bad += 1
    for plant, modes in EXPECT.items():
        for mode, line in modes.items():
            caught = None
            for seed in range(1, SEEDS + 1):
                r = run(plant, mode, seed)
                if line in r.stderr:
                    caught = seed
                    break
            print(f"{plant:6} {mode:10} " + (f"caught at seed {caught}" if caught else
                                             f"not caught in {SEEDS} seeds: {r.stderr[:300]}"))
            bad += caught is None
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
