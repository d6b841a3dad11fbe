#!/usr/bin/env python3
"""Host time of one kernel launch with eight pointers: bare, with libvmem switched off, recording, and
while it could plan. The kernel and the driver are simulated; the time is the host's own.

    tools/bench.sh launch [--count N] [--rounds N]
"""
import argparse

import benchlib

ROWS = [
    ("bare", False, {}),
    ("off", True, {"VMEM_OFF": 1}),
    ("none", True, {"VMEM_POLICY": "none"}),
    ("auto", True, {"VMEM_POLICY": "auto"}),
]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--count", type=int, default=50000)
    p.add_argument("--rounds", type=int, default=5)
    args = p.parse_args()
    program = benchlib.BUILD / "tests" / "integration" / "launches"
    times = {name: [] for name, _, _ in ROWS}
    for _ in range(args.rounds):  # interleaved, so that a busy machine slows all alike
        for name, preload, extra in ROWS:
            r = benchlib.run([program, args.count], benchlib.sim_env("titanx-64g", preload=preload, **extra))
            if r.returncode:
                raise SystemExit(f"launch.py: {name}: {r.stdout}{r.stderr}")
            times[name].append(float(r.stdout))
    rows = [{"case": n, "launch_ns": benchlib.median(t), "best_ns": min(t)} for n, t in times.items()]
    benchlib.table(rows, [("case", "case", ""), ("launch_ns", "median ns", ".0f"), ("best_ns", "best ns", ".0f")])
    best = {r["case"]: r["best_ns"] for r in rows}
    benchlib.write("launch", rows, {"off_added_ns": best["off"] - best["bare"],
                                    "none_added_ns": best["none"] - best["bare"],
                                    "auto_added_ns": best["auto"] - best["bare"]})


main()
