#!/usr/bin/env python3
"""In the planned state nothing is created, released, allocated or freed in the driver: counted from the
simulated GPU's log of calls over the last iterations of a trainer that pages."""
import collections
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from vmtest import BUILD, ROOT, check, finish, planted, run  # noqa: E402

BANNED = ("cuMemCreate", "cuMemRelease", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostRegister_v2")
ITERATIONS, STEADY = 10, 4
BUDGET = 900 << 20


def calls_by_iteration(log):
    """One count of calls for each iteration: the trainer ends one with cuEventElapsedTime_v2."""
    counts = [collections.Counter()]
    for line in log.read_text().splitlines():
        name = line.split()[1]
        counts[-1][name] += 1
        if name == "cuEventElapsedTime_v2":
            counts.append(collections.Counter())
    return counts[:-1]


def problems(iterations):
    return [f"{name} reached the driver {c[name]} times" for c in iterations for name in BANNED if c[name]]


for habit in ("eager", "upfront"):
    with tempfile.TemporaryDirectory() as d:
        log, stats = pathlib.Path(d) / "calls", pathlib.Path(d) / "stats"
        r = run([BUILD / "tests/trainers/trainer", ROOT / "tests/trainers/nets/alexnet.net", "--batch", 64,
                 "--iters", ITERATIONS, "--alloc", habit],
                SIMGPU_MODE="timing", SIMGPU_PRESET="titanx-12g", SIMGPU_GRANULARITY=None,
                SIMGPU_CALL_LOG=log, VMEM_BUDGET=BUDGET, VMEM_HOST_BUDGET="8GiB", VMEM_STATS_FILE=stats)
        check(r.returncode == 0, f"{habit}: {r.stderr[-500:]}")
        s = json.loads(stats.read_text())
        check(s["planned_iterations"] >= STEADY, f"{habit}: not planned: {s}")
        check(s["out_bytes"] > 0, f"{habit}: the budget is so large that nothing moves: {s}")
        iterations = calls_by_iteration(log)
        check(len(iterations) == ITERATIONS, f"{habit}: {len(iterations)} iterations in the log")
        found = problems(iterations[-STEADY:])
        check(not found, f"{habit}: {found}")
        # The first iteration makes chunks and host arenas, so the guard can see them.
        planted(f"{habit}: the first iterations", problems(iterations[:2]))
finish()
