#!/usr/bin/env python3
"""A call that would overwrite a block wholly, refused by the driver: the old contents, which were away, are
still there, by both ways to page."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from vmtest import BUILD, check, finish, planted, run  # noqa: E402

BLOCK, BLOCKS = 65536, 16


def problem(fault, backend):
    r = run([BUILD / "tests/integration/refused", BLOCKS, BLOCK], SIMGPU_GRANULARITY=4096,
            SIMGPU_RACECHECK=1, SIMGPU_FAULTS=fault, VMEM_POLICY="lru", VMEM_BUDGET=4 * BLOCK,
            VMEM_BACKEND=backend, VMEM_LOG="info")
    ok = r.returncode == 0 and r.stdout.strip() == "refused: ok" and "race" not in r.stderr \
        and "cannot be served" not in r.stderr
    return "" if ok else f"{r.stdout[-300:]} {r.stderr[-500:]}"


for backend in ("registered", "numa"):
    p = problem("cuMemsetD8Async:1=INVALID_VALUE", backend)
    check(not p, f"{backend}: {p}")
p = problem("cuMemAddressReserve:1+=OUT_OF_MEMORY,cuMemsetD8Async:1=INVALID_VALUE", "registered")
planted("no address space", p)
p = problem("cuMemAddressReserve:1=OUT_OF_MEMORY,cuMemsetD8Async:1=INVALID_VALUE", "registered")
check(not p, f"less address space than asked for: {p}")
planted("a call that is not refused", problem(None, "registered"))
finish()
