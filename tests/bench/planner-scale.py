#!/usr/bin/env python3
"""How planning grows: 10^4, 10^5 and 10^6 blocks, placed in pages and scheduled under half of the peak,
and packed contiguously.

Two kinds of iteration: a transformer trained with gradient accumulation and sequences of varying
length, and the blocks of a published instance (S_1) repeated in time, the sizes of each repeat scaled.
q is the time qsort takes for 10^6 random 64-bit keys in the same process; the figures q_* are the
larger of (paged placement, contiguous packing) plus the schedule. over_max_live is the worst of: the
contiguous height over the most bytes live at once, and the paged pool over the most bytes live at once
with large blocks rounded to pages."""
import sys
import tempfile

import benchlib
from pack import ask, unpacked

SIZES = (("1e4", 10_000, 0.5), ("1e5", 100_000, 8), ("1e6", 1_000_000, 100))


def row(kind, label, argument, n):
    r = ask("scale", argument, n)
    plan = max(r["pack_seconds"], r["place_seconds"]) + r["schedule_seconds"]
    return {"kind": kind, "size": label, **r, "plan_q": plan / r["q"],
            "over": 100 * (r["height"] / r["max_live"] - 1),
            "over_paged": 100 * (r["pool_bytes"] / r["rounded_live"] - 1)}


def main():
    source, = benchlib.require_data("idealloc/S_1.csv.gz")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tile = unpacked(source, folder)
        for label, n, _ in SIZES:
            rows.append(row("training", label, "training", n))
            rows.append(row("S_1 tiled", label, f"tile:{tile}", n))
    previous = {}
    for r in rows:
        before = previous.get(r["kind"])
        r["growth"] = r["plan_q"] / before["plan_q"] if before else None
        previous[r["kind"]] = r
    benchlib.table(rows, [("kind", "iteration", ""), ("items", "blocks", "d"), ("ops", "ops", "d"),
                          ("pack_seconds", "pack s", ".3f"), ("place_seconds", "place s", ".3f"),
                          ("schedule_seconds", "schedule s", ".3f"), ("plan_q", "q", ".2f"),
                          ("growth", "growth", ".1f"), ("over", "over %", ".3f"),
                          ("over_paged", "paged over %", ".3f"),
                          ("pack_bytes_per_block", "pack B/block", ".0f"),
                          ("bytes_per_block", "plan B/block", ".0f")])
    figures = {f"q_{label}": max(r["plan_q"] for r in rows if r["size"] == label)
               for label, _, _ in SIZES}
    # Resident memory is only told apart from the generator's own where there is much of it.
    figures["bytes_per_block"] = max(r["bytes_per_block"] for r in rows if r["size"] == "1e6")
    figures["over_max_live"] = max(max(r["over"], r["over_paged"]) for r in rows) / 100
    benchlib.write("planner-scale", rows, figures, simulated=False)
    ok = (all(figures[f"q_{label}"] <= most for label, _, most in SIZES) and
          figures["over_max_live"] <= 0.02 and figures["bytes_per_block"] <= 400)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
