#!/usr/bin/env python3
"""What an operation waits for costs no more than it must. Unmapping waits for the copies in flight, so it does not begin
while the pages that an operation needs come: the host maps those meanwhile. And pages that come back for an operation
that writes them are not made read-only first. Both are seen in the simulated GPU's log of calls."""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from vmtest import BUILD, ROOT, check, finish, planted, run  # noqa: E402

ITERATIONS, STEADY = 9, 4
BUDGET = 600 << 20
AHEAD = 2 + 2  # fetches that a plan has in flight, and what the trainer itself copies in an iteration
FEW_NS = 200000  # access to half a dozen pages is changed in that time
ASKS = ("cuEventQuery", "cuStreamQuery", "cuEventRecord", "cuCtxGetCurrent", "cuCtxGetDevice")


def last_iterations(log):
    """(ns, name) of calls; the trainer ends an iteration with cuEventElapsedTime_v2."""
    calls = [(float(t), name) for t, name in (line.split()[:2] for line in log.read_text().splitlines())]
    ends = [i for i, (_, name) in enumerate(calls) if name == "cuEventElapsedTime_v2"]
    return calls[ends[-STEADY - 1] + 1:]


def waits(calls):
    """Fetches before an unmapping that are not mapped yet, at least: what else is mapped counts as fetched."""
    coming, found = 0, []
    for _, name in calls:
        if name == "cuMemcpyHtoDAsync_v2":
            coming += 1
        elif name == "cuMemMap":
            coming = max(0, coming - 1)
        elif name == "cuLaunchKernel":
            coming = 0  # what it needed is there
        elif name == "cuMemUnmap" and coming > AHEAD:
            found.append(f"unmapping waits for {coming} fetches")
    return found


def unseals(calls):
    """Changes of access to many pages that neither map them nor begin a copy."""
    found, ends = [], [t for t, _ in calls[1:]] + [calls[-1][0]]
    work = [(t, end, name) for (t, name), end in zip(calls, ends) if name not in ASKS]
    for (_, _, before), (t, end, name), (_, _, after) in zip(work, work[1:], work[2:]):
        if name == "cuMemSetAccess" and before != "cuMemMap" and after != "cuMemcpyDtoHAsync_v2" and end - t > FEW_NS:
            found.append(f"{(end - t) / 1e6:.2f} ms to make pages writable")
    return found


for policy in ("auto", "lru"):
    with tempfile.TemporaryDirectory() as d:
        log = pathlib.Path(d) / "calls"
        r = run([BUILD / "tests/trainers/trainer", ROOT / "tests/trainers/nets/alexnet.net", "--batch", 128,
                 "--iters", ITERATIONS],
                SIMGPU_MODE="timing", SIMGPU_PRESET="titanx-64g", SIMGPU_GRANULARITY=None, SIMGPU_CALL_LOG=log,
                VMEM_POLICY=policy, VMEM_BUDGET=BUDGET, VMEM_HOST_BUDGET="8GiB")
        check(r.returncode == 0, f"{policy}: {r.stderr[-500:]}")
        calls = last_iterations(log)
        for name in ("cuMemUnmap", "cuMemSetAccess", "cuMemcpyDtoHAsync_v2"):
            check(sum(n == name for _, n in calls) > STEADY, f"{policy}: {name} was hardly called")
        for problems in (waits, unseals):
            found = problems(calls)
            check(not found, f"{policy}: {found[:3]}")
planted("a wait", waits([(0, "cuMemcpyHtoDAsync_v2")] * (AHEAD + 1) + [(0, "cuMemUnmap")]))
planted("a seal", unseals([(0, "cuMemMap"), (1, "cuMemSetAccess"), (2, "cuMemSetAccess"), (FEW_NS + 3, "cuLaunchKernel")]))
finish()
