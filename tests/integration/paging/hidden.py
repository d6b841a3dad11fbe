#!/usr/bin/env python3
"""A write that nobody can see, into a block that came back and has a copy on the host: it is there when the block
has left and come back again, or, where the block left without a copy before and so came back sealed, the kernel
is stopped. It is never lost."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from vmtest import BUILD, check, finish, planted, run  # noqa: E402

BLOCK, BLOCKS = 65536, 16


def ends(rounds, **env):
    r = run([BUILD / "tests/integration/hidden", BLOCKS, BLOCK, rounds], SIMGPU_GRANULARITY=4096,
            SIMGPU_RACECHECK=1, VMEM_POLICY="lru", **env)
    return r.stdout.strip() if r.returncode == 0 else f"status {r.returncode}: {r.stdout[-300:]} {r.stderr[-500:]}"


for backend in ("registered", "numa"):
    small = {"VMEM_BUDGET": 4 * BLOCK, "VMEM_BACKEND": backend}
    for rounds, wanted in ((0, "written"), (1, "written"), (3, "fault"), ("fresh", "written")):
        said = ends(rounds, **small)
        check(said == f"hidden: {wanted}", f"{backend}, after {rounds} rounds: {said}")
said = ends(3, VMEM_BUDGET=(BLOCKS + 4) * BLOCK)
check(said == "hidden: written", f"everything fits: {said}")
planted("a block that never left", ends(0, VMEM_BUDGET=4 * BLOCK) != "hidden: fault")
finish()
