#!/usr/bin/env python3
"""tools/bench.sh schedule: how far are auto's schedules from the lower bound?

Traces: the eight op logs of ../shared/data/dtr and the trainers, recorded on the simulated GPU (a Titan X
for the slower link, an A100 for the faster one). Links:
12.8 GB/s (gen 3, as the vDNN paper measured; 0.90 and 0.85 of it out and in when both are busy) and
25 GB/s (gen 4; 0.9 each). Budgets: 90, 70, 50, 40, 30 % of the peak in pages of 2 MiB (64 KiB where the peak is below 64 of those). The stall
is what the simulated iteration takes beyond the op times. What the bound knows nothing of is left out: map costs and the
host's waits for the device (the demo, vdnn and sweep run with them). A cell's gap is the smaller of (stall - bound) / (0.05 bound) and
(stall - bound) / (0.02 iteration), the iteration as simulated; `strict` is the same against the op
times alone. All times are simulated."""
import argparse
import concurrent.futures
import gzip
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import benchlib
import trainerlib

LINKS = {"12.8": ("12.8", "11.52", "12.8", "10.88"), "25": ("25", "22.5", "25", "22.5")}
CARDS = {"12.8": "titanx-64g", "25": "a100-40g"}  # whose op times the trainers' traces have
PAGE = 2 << 20
SMALL = 64  # pages of peak: below it pages of 64 KiB are taken
LOGS = ["resnet32", "unet", "transformer", "inceptionv4", "tv_densenet121", "lstm", "treelstm",
        "unroll_gan"]
TRAINERS = [
    ("vgg16 b64 eager", "vgg", ["--batch", "64"]),
    ("vgg16 b256 eager", "vgg", ["--batch", "256"]),
    ("vgg16 b64 upfront", "vgg", ["--batch", "64", "--alloc", "upfront"]),
    ("alexnet b128", "alexnet", ["--batch", "128"]),
    ("overfeat b128", "overfeat", ["--batch", "128"]),
    ("googlenet b128", "googlenet", ["--batch", "128"]),
    ("resnet b32", "resnet-imagenet", ["--batch", "32"]),
    ("lstm 128 steps", "lstm", ["--steps", "128"]),
]
BENCH = benchlib.BUILD / "tests" / "bench" / "schedule_bench"


def record(net, args, preset, target):
    """A trainer's trace, recorded where it fits; None, or the reason why it did not come about."""
    r = trainerlib.train(net, *args, "--iters", "6", "--quiet", preset=preset, preload=True,
                         VMEM_POLICY="pool", VMEM_TRACE=target)
    return None if pathlib.Path(target).exists() else (r.why() or "no trace written")


def cells(name, trace, link, page=PAGE):
    cmd = [BENCH, str(page), *LINKS[link], trace]
    r = subprocess.run([str(c) for c in cmd], capture_output=True, text=True, check=False)
    if r.returncode:
        raise RuntimeError(f"{name}: {r.stderr.strip()}")
    rows = []
    for line in r.stdout.splitlines():
        c = json.loads(line)
        c |= {"trace": name, "link": link, "page_bytes": page}
        if c["peak_pages"] < SMALL and page == PAGE:  # a budget of a few pages says nothing
            return cells(name, trace, link, PAGE // 32)
        if c["rc"] == 0:
            iteration, compute = c["iteration_ns"], c["compute_ns"]
            over = max(0.0, iteration - c["bound_ns"])
            bound = c["bound_ns"] - compute
            by_bound = over / (0.05 * bound) if bound > 0 else float("inf")
            c["gap"] = min(by_bound, over / (0.02 * iteration))
            c["strict"] = min(by_bound, over / (0.02 * compute))
            c["stall_ms"] = (iteration - compute) / 1e6
            c["bound_ms"] = bound / 1e6
            c["ops_ms"] = compute / 1e6
            c["below"] = iteration < c["bound_ns"] * (1 - 1e-9)
        rows.append(c)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--logs-only", action="store_true", help="leave the trainers out")
    options = parser.parse_args()
    paths = benchlib.require_data(*[f"dtr/{n}.log.gz" for n in LOGS])
    rows, missing = [], []
    with tempfile.TemporaryDirectory(prefix="vmem-bench-") as tmp, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        traces = []
        for n, p in zip(LOGS, paths):
            target = pathlib.Path(tmp, n + ".log")
            with gzip.open(p) as packed, open(target, "wb") as plain:
                shutil.copyfileobj(packed, plain)
            traces += [(n, target, link) for link in LINKS]
        for name, net, args in [] if options.logs_only else TRAINERS:
            for link, preset in CARDS.items():
                target = pathlib.Path(tmp, f"{name.replace(' ', '_')}.{link}.trace")
                reason = record(net, args, preset, target)
                if reason:
                    missing.append(name)
                    print(f"{name} on {preset}: no trace: {reason}")
                else:
                    traces.append((name, target, link))
        jobs = [pool.submit(cells, *t) for t in traces]
        for j in jobs:
            rows += j.result()
    done = [r for r in rows if r["rc"] == 0]
    unfit = [r for r in rows if r["rc"] != 0]
    benchlib.table(done, [("trace", "trace", ""), ("link", "GB/s", ""), ("percent", "% of peak", "d"),
                          ("ops_ms", "ops ms", ".1f"), ("stall_ms", "stall ms", ".2f"),
                          ("bound_ms", "bound ms", ".2f"), ("out_pages", "out pages", "d"),
                          ("in_pages", "in pages", "d"), ("gap", "gap", ".3f"),
                          ("strict", "strict", ".3f"), ("schedule_s", "plan s", ".3f")])
    for r in unfit:
        print(f"does not fit: {r['trace']} at {r['percent']} % ({r['budget_pages']} pages): the largest "
              f"op needs {r['work_pages']}")
    below = [r for r in done if r["below"]]
    for r in below:
        print(f"BELOW THE BOUND: {r['trace']} {r['link']} {r['percent']} %")
    worst = max(done, key=lambda r: r["gap"])
    print(f"worst: {worst['trace']}, {worst['link']} GB/s, {worst['percent']} %")
    benchlib.write("schedule", rows, {
        "cells": len(done), "unfit": len(unfit), "worst_gap": worst["gap"],
        "cells_over": sum(r["gap"] > 1 for r in done), "below_bound": len(below),
        "traces_missing": len(missing), "strict_worst_gap": max(r["strict"] for r in done)})
    return 1 if below or missing else 0


if __name__ == "__main__":
    sys.exit(main())
