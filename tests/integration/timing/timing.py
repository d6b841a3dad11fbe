#!/usr/bin/env python3
"""Op times by both ways: pairs of events and CUPTI's activity records give the simulated clock, and the
program's own profiler attaches whatever VMEM_TIMING says."""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from vmtest import BUILD, ROOT, check, finish, planted, run  # noqa: E402

CUPTI = BUILD / "tests" / "simgpu" / "cupti"
PROFILED = BUILD / "tests" / "integration" / "profiled"
LIBS = [BUILD / "tests" / "simgpu" / d for d in ("driver", "runtime", "dnn", "blas", "cupti")]
WHERE = {"SIMGPU_MODE": "timing", "SIMGPU_PRESET": "titanx-12g", "SIMGPU_GRANULARITY": None, "VMEM_LOG": "info"}


def program(command, timing, cupti=True, **extra):
    """Runs it and gives the process and the trace's ops."""
    libs = ":".join(str(p) for p in (LIBS if cupti else LIBS[:-1]))
    with tempfile.TemporaryDirectory() as d:
        trace = pathlib.Path(d) / "trace"
        r = run(command, VMEM_TIMING=timing, VMEM_TRACE=trace, LD_LIBRARY_PATH=libs, **WHERE, **extra)
        lines = [json.loads(x) for x in trace.read_text().splitlines()] if trace.exists() else []
        return r, [x for x in lines if x.get("ev") == "op"]


def times_by_work(ops):
    """signature -> its measured times, of launches: around a copy from pageable memory lies the host's part"""
    out = {}
    for op in ops:
        if op["op"] == "launch":
            out.setdefault(op["sig"], []).append(op.get("dur", 0))
    return out


def all_timed(ops):
    """But for those that ran still when the trace was closed."""
    done = [i for i, op in enumerate(ops) if op.get("dur")]
    return bool(done) and done == list(range(len(done))) and len(done) > len(ops) // 2


def difference(events, cupti):
    """What the two ways disagree on, by more than what two event records cost (a few us)."""
    problems = []
    a, b = times_by_work(events), times_by_work(cupti)
    if set(a) != set(b):
        problems.append(f"{len(a)} and {len(b)} kinds of work")
    for sig in set(a) & set(b):
        x, y = max(a[sig]), max(b[sig])
        if not x or not y or abs(x - y) > 0.02 * y + 8000:
            problems.append(f"{sig}: {x} by events, {y} by CUPTI")
    return problems


trainer = [BUILD / "tests/trainers/trainer", ROOT / "tests/trainers/nets/alexnet.net", "--batch", 64,
           "--iters", 5]
r, events = program(trainer, "events")
check(r.returncode == 0 and events, r.stderr[-500:])
r2, cupti = program(trainer, "cupti")
check(r2.returncode == 0 and cupti, r2.stderr[-500:])
check(r2.stdout == r.stdout or len(r2.stdout) > 0, "the trainer printed nothing")
check("CUPTI" not in r2.stderr, f"CUPTI was to be had: {r2.stderr[-500:]}")
found = difference(events, cupti)
check(not found, f"{len(found)} kinds of work take different times: {found[:5]}")
check(all_timed(cupti), "CUPTI times every operation")
measured = sum(1 for op in events if op.get("dur"))
check(0 < measured < len(events), f"events on sampled operations only: {measured} of {len(events)}")
halved = [dict(op, dur=op.get("dur", 0) // 2) for op in cupti]
planted("times that are half as long", difference(events, halved))

# Where CUPTI cannot be had, events serve.
r, ops = program(trainer, "cupti", cupti=False)
check(r.returncode == 0 and any(op.get("dur") for op in ops), "without libcupti: no times")
check("no libcupti" in r.stderr or "CUPTI refuses" in r.stderr,  # a real one, without a driver of its own
      f"a line that says so: {r.stderr}")
r, ops = program([PROFILED, "first"], "cupti")
check(r.returncode == 0, f"the profiler that was there first: {r.returncode} {r.stderr[-300:]}")
check("left to the program's own profiler" in r.stderr, f"a line that says so: {r.stderr}")
check(any(op.get("dur") for op in ops), "times by events while the program profiles")

# It comes while CUPTI is held: it gets it.
for timing in ("auto", "events", "cupti"):
    r, ops = program([PROFILED, "late"], timing)
    check(r.returncode == 0, f"{timing}: the profiler that comes later: {r.returncode} {r.stderr[-300:]}")
    given_up = "left to the program's own profiler" in r.stderr
    check(given_up == (timing == "cupti"), f"{timing}: {r.stderr}")
    check(any(op.get("dur") for op in ops), f"{timing}: no times")
r, ops = program([PROFILED, "never"], "cupti")
check(r.returncode == 0 and all_timed(ops), f"never: {r.stderr}")
finish()
