#!/usr/bin/env python3
"""Predictions of iterations are compared with what they take and corrected: after some iterations they hold,
and when the links turn out slower than measured a better plan is looked for, kept only if it is better."""
import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from vmtest import BUILD, ROOT, check, finish, planted, run  # noqa: E402

BUDGET = 560 << 20  # less than half of what the trainer uses at once
ITERATIONS = 34
SLOW = "slow-copy=3+6000"  # from about the sixth iteration on


def train(**extra):
    with tempfile.TemporaryDirectory() as d:
        stats = pathlib.Path(d) / "stats"
        r = run([BUILD / "tests/trainers/trainer", ROOT / "tests/trainers/nets/alexnet.net", "--batch", 128,
                 "--iters", ITERATIONS], SIMGPU_MODE="timing", SIMGPU_PRESET="titanx-64g",
                SIMGPU_GRANULARITY=None, VMEM_BUDGET=BUDGET, VMEM_HOST_BUDGET="8GiB", VMEM_STATS_FILE=stats,
                VMEM_LOG="info", VMEM_TRACE=pathlib.Path(d) / "trace", **extra)
        check(r.returncode == 0, f"{extra}: {r.stderr[-500:]}")
        machine = json.loads((pathlib.Path(d) / "trace").open().readline())["machine"]
        check(machine["out_bps"] > 1e9 and machine["map_ns"] > 0, f"the trace knows its machine: {machine}")
        ms = [float(x) for x in re.findall(r"^iter \d+ loss \S+ ms (\S+)$", r.stdout, re.M)]
        check(len(ms) == ITERATIONS, f"{extra}: {len(ms)} iterations")
        return ms, json.loads(stats.read_text()), r.stderr


def error_problems(stats):
    """The corrected prediction is within 5 % of the last iterations."""
    if stats["compared_iterations"] < 8:
        return [f"only {stats['compared_iterations']} iterations were compared"]
    e = stats["prediction_error_ppm"] / 1e4
    return [f"the prediction is off by {e:.1f} %"] if e > 5 else []


def adaptation_problems(stats, ms, log):
    """A new plan was thought of; it is in force only if it is faster, and each attempt has its line."""
    tried = stats["plans_revised"] + stats["plans_kept"]
    problems = [] if tried else ["no new plan was thought of"]
    if log.count("a new plan is") != tried:
        problems.append("not each attempt has its line")
    slow, after = max(ms[6:11]), sum(ms[-5:]) / 5
    worse = after > (slow if stats["plans_revised"] else 1.005 * slow)
    return problems + ([f"{slow} ms before, {after} ms after"] if worse else [])


steady_ms, steady, log = train()
check(steady["out_bytes"] > 0, f"nothing moves: {steady}")
found = error_problems(steady)
check(not found, f"{found}")
check(steady["plans_revised"] == 0 and "a new plan is" not in log, f"nothing changed, nothing to revise: {log}")
check(abs(steady["measured_us"] / 1e3 - steady_ms[-3]) < 0.02 * steady_ms[-3],
      f"measured {steady['measured_us']} us, the program {steady_ms[-3]} ms")
planted("an error of a tenth", error_problems(dict(steady, prediction_error_ppm=100000)))
planted("no attempt", adaptation_problems(steady, steady_ms, log))
planted("a plan that is worse", adaptation_problems(dict(steady, plans_revised=1), steady_ms[:-5] + [2e3] * 5, log))

ms, slow, log = train(SIMGPU_FAULTS=SLOW)
check(max(ms[6:11]) > 1.5 * steady_ms[-1], f"the links are not slower: {ms}")
found = error_problems(slow)
check(not found, f"{found}")
found = adaptation_problems(slow, ms, log)
check(not found, f"{found}: {ms} {log}")
finish()
