#!/usr/bin/env python3
"""tools/bench.sh sweep: does `vmem plan --sweep` say what an iteration takes?

Trainers are recorded on the simulated card with room, each with a plan made so that the links and the driver's
mapping costs are measured; `vmem plan --sweep` predicts the iteration time for every policy and budget from
that trace alone. Then the trainer runs under libvmem.so with the same budget and policy, and the mean of its last
four iterations is compared with the prediction. A cell where the sweep says that it does not fit is left out.
All times are simulated."""
import argparse
import concurrent.futures
import csv
import pathlib
import statistics
import subprocess
import sys
import tempfile

import benchlib
import trainerlib

TRAINERS = [("vgg16 b64", "vgg", ["--batch", "64"]), ("alexnet b128", "alexnet", ["--batch", "128"]),
            ("googlenet b128", "googlenet", ["--batch", "128"]), ("overfeat b128", "overfeat", ["--batch", "128"])]
POLICIES = ("auto", "vdnn-all", "vdnn-conv", "vdnn-dyn", "lru")
BUDGETS = (90, 70, 50, 40)
PRESET = "titanx-64g"
VMEM = benchlib.BUILD / "tools" / "vmem"
HOST = "64GiB"


def predictions(net, args, folder, name):
    """(percent, policy) -> row of the sweep, and what was wrong."""
    trace, out = folder / f"{name}.trace", folder / f"{name}.csv"
    bare = trainerlib.train(net, *args, "--iters", "2", "--quiet", preset=PRESET)
    if bare.rc != 0:
        raise RuntimeError(f"{name}: {bare.why()}")
    peak = bare.report["peak_physical_bytes"] - bare.report["context_bytes"]
    r = trainerlib.train(net, *args, "--iters", "6", preset=PRESET, preload=True, VMEM_TRACE=trace,
                         VMEM_BUDGET=peak * 9 // 10, VMEM_HOST_BUDGET=HOST)
    if r.rc != 0 or not trace.exists():
        raise RuntimeError(f"{name}: no trace: {r.why()}")
    p = subprocess.run([VMEM, "plan", trace, "--sweep", "-o", out], capture_output=True, text=True, check=False)
    if p.returncode:
        raise RuntimeError(f"{name}: {p.stderr.strip()}")
    return {(int(x["budget_percent"]), x["policy"]): x for x in csv.DictReader(out.open())}


def cell(name, net, args, percent, policy, row):
    r = trainerlib.train(net, *args, "--iters", "14", preset=PRESET, preload=True, VMEM_POLICY=policy,
                         VMEM_BUDGET=row["budget_bytes"], VMEM_HOST_BUDGET=HOST)
    out = {"trace": name, "percent": percent, "policy": policy, "predicted_ms": int(row["predicted_ns"]) / 1e6,
           "ops_ms": int(row["compute_ns"]) / 1e6}
    if r.rc != 0 or len(r.ms) < 14:
        return out | {"why": r.why()}
    measured = statistics.mean(r.ms[-4:])
    return out | {"measured_ms": measured, "error": (out["predicted_ms"] - measured) / measured,
                  "learnt_error": r.stats.get("prediction_error_ppm", 0) / 1e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", help="one trainer, by the start of its name")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)), help="per cent of the peak")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="vmem-bench-") as tmp, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = []
        for name, net, args in TRAINERS:
            if options.only and not name.startswith(options.only):
                continue
            said = predictions(net, args, pathlib.Path(tmp), name.replace(" ", "-"))
            for percent in map(int, options.budgets.split(",")):
                for policy in options.policies.split(","):
                    if (percent, policy) in said:
                        jobs.append(pool.submit(cell, name, net, args, percent, policy, said[percent, policy]))
        rows = [j.result() for j in jobs]
    done = [r for r in rows if "error" in r]
    benchlib.table(done, [("trace", "trace", ""), ("policy", "policy", ""), ("percent", "% of peak", "d"),
                          ("ops_ms", "ops ms", ".1f"), ("predicted_ms", "predicted ms", ".1f"),
                          ("measured_ms", "measured ms", ".1f"), ("error", "error", "+.3f"),
                          ("learnt_error", "after learning", ".4f")])
    for r in rows:
        if "error" not in r:
            print(f"did not run: {r['trace']}, {r['policy']}, {r['percent']} %: {r['why']}")
    if not done:
        print("no cell ran")
        return 1
    worst = max(done, key=lambda r: abs(r["error"]))
    print(f"worst: {worst['trace']}, {worst['policy']}, {worst['percent']} %")
    figures = {"cells": len(done), "cells_failed": len(rows) - len(done), "worst_error": abs(worst["error"]),
               "median_error": statistics.median(abs(r["error"]) for r in done),
               "cells_over": sum(abs(r["error"]) > 0.05 for r in done),
               "worst_learnt_error": max(r["learnt_error"] for r in done)}
    benchlib.write("sweep", rows, figures)
    return 1 if figures["cells_over"] or figures["cells_failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
