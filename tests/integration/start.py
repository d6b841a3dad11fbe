#!/usr/bin/env python3
"""Starting a program that uses no CUDA: medians of paired starts, bare and under the preload."""
import os
import statistics
import sys
import time

from vmtest import check, environment, finish

PAIRS = int(sys.argv[1]) if len(sys.argv) > 1 else 150
LIMIT = 1.5


def start(env):
    t = time.perf_counter()
    pid = os.posix_spawn("/bin/true", ["/bin/true"], env)
    os.waitpid(pid, 0)
    return time.perf_counter() - t


bare_env, our_env = environment(preload=False), environment()
for _ in range(5):
    start(bare_env), start(our_env)
bare, ours = [], []
for _ in range(PAIRS):
    bare.append(start(bare_env))
    ours.append(start(our_env))
ratio = statistics.median(ours) / statistics.median(bare)
print(f"start_ratio {ratio:.3f} ({statistics.median(bare) * 1e6:.0f} us bare, "
      f"{statistics.median(ours) * 1e6:.0f} us under libvmem, {PAIRS} pairs)")
check(ratio <= LIMIT, f"starting /bin/true takes {ratio:.2f} times as long")
finish()
