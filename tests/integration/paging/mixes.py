#!/usr/bin/env python3
"""The driver-API program `mix` with less memory than it uses: policies, budgets, streams and seeds, with
the race check on, whether or not unmapping waits for the device."""
import itertools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from vmtest import BUILD, check, finish, planted, run  # noqa: E402

BLOCK, BLOCKS = 65536, 40


def problem(budget_blocks, streams, seed, *habit, policy="auto", **extra):
    r = run([BUILD / "tests/integration/mix", BLOCKS, BLOCK, 10, streams, seed, *habit],
            SIMGPU_GRANULARITY=4096, SIMGPU_RACECHECK=1, SIMGPU_SEED=seed, VMEM_POLICY=policy,
            VMEM_BUDGET=budget_blocks * BLOCK, **extra)
    ok = r.returncode == 0 and r.stdout.strip() == "mix: ok" and "race" not in r.stderr
    return "" if ok else f"{r.stdout[-300:]} {r.stderr[-500:]}"


seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
print(f"first seed {seed}")
for policy, budget, streams, habit, backend in itertools.product(
        ("lru", "auto"), (4, 12, 30), (1, 3), ((), ("eager",)), ("registered", "numa")):
    p = problem(budget, streams, seed, *habit, policy=policy, SIMGPU_UNMAP_SYNC=seed % 2,
                VMEM_BACKEND=backend)
    check(not p, f"seed {seed}, {policy}, {budget} blocks, {streams} streams, {habit}, {backend}: {p}")
    seed += 1
check(not problem(2, 1, seed, VMEM_BACKEND="numa"), "what does not fit runs from host memory")
refused = problem(12, 1, seed, VMEM_BACKEND="numa", SIMGPU_HOST_NUMA=0)
check(not refused, f"without host-NUMA memory pinned memory serves: {refused}")
check(not problem(BLOCKS + 4, 1, seed, policy="pool"), "pool serves what fits")
planted("a budget below one operation's blocks", problem(2, 1, seed))
planted("a policy that does not page", problem(12, 1, seed, policy="none"))
finish()
