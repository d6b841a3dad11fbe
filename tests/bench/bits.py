"""Bit identity: losses and weights of small trainers under libvmem.so equal those of a bare run.

Functional mode with small pages: {LeNet on the digits, small VGG, ResNet-20, LSTM} x {eager, upfront}
x {lru, vdnn-all, auto at 100, 60, 40 % of the bare peak; pool at 100 %}. A cell whose budget is below
the largest working set of one operation is listed as unfit, with the numbers."""
import argparse
import sys

import benchlib
import trainerlib

GRANULARITY = 4096
CELLS = [(policy, share) for policy in ("lru", "vdnn-all", "auto") for share in (100, 60, 40)]
CELLS.append(("pool", 100))
COLUMNS = [("net", "net", ""), ("alloc", "alloc", ""), ("policy", "policy", ""),
           ("share", "%", "d"), ("budget_bytes", "budget B", ","), ("peak_bytes", "peak B", ","),
           ("planned", "planned", "d"), ("out_bytes", "out B", ","), ("in_bytes", "in B", ","),
           ("result", "result", "")]


def nets():
    """(name, description, arguments); the digits are left out where the data is absent."""
    digits = benchlib.DATA / "digits.csv.gz"
    table = [("vgg-small", "vgg-small", ["--iters", 6]),
             ("resnet20", "resnet", ["--set", "size=16", "--batch", 4, "--iters", 6]),
             ("lstm", "lstm", ["--set", "hidden=48", "--set", "layers=2", "--steps", 24,
                               "--batch", 16, "--iters", 6])]
    if digits.exists():
        table.insert(0, ("lenet-digits", "lenet-digits",
                         ["--data", digits, "--batch", 16, "--iters", 12, "--lr", 0.05]))
    for row in table:
        row[2].extend(["--workspace", 1 << 16])  # small enough to leave paging something to do
    return table


def bare_run(net, args):
    r = trainerlib.train(net, *args, preset="h200-141g", mode="functional",
                         SIMGPU_GRANULARITY=GRANULARITY)
    if r.rc != 0 or not r.checksum:
        print(f"bits: {net} bare: {r.why()}", file=sys.stderr)
        sys.exit(1)
    return r


def bare_peak(bare):
    """Device bytes that the bare run held at its busiest moment, without the context's own."""
    return bare.report["peak_physical_bytes"] - bare.report["context_bytes"]


def cell(name, net, args, alloc, policy, share, bare, need):
    budget = bare_peak(bare) * share // 100 // GRANULARITY * GRANULARITY
    other = ["--seed", 2] if opt.plant else []
    r = trainerlib.train(net, *args, *other, preset="h200-141g", mode="functional", preload=True,
                         SIMGPU_GRANULARITY=GRANULARITY, SIMGPU_RACECHECK=1, SIMGPU_SEED=SEED,
                         VMEM_POLICY=policy, VMEM_BUDGET=budget)
    stats = r.stats
    row = {"net": name, "alloc": alloc, "policy": policy, "share": share, "budget_bytes": budget,
           "largest_op_bytes": need["largest_op_bytes"],
           "peak_bytes": int(stats.get("peak_device_bytes", 0)),
           "planned": int(stats.get("planned_iterations", 0)),
           "out_bytes": int(stats.get("out_bytes", 0)), "in_bytes": int(stats.get("in_bytes", 0))}
    if r.rc == 0 and r.numbers == bare.numbers and r.report.get("races", 0) == 0:
        row["result"] = "equal"
    elif r.out_of_memory and need["largest_op_bytes"] > budget:
        row["result"] = f"unfit: one op needs {need['largest_op_bytes']} B"
    elif r.rc != 0:
        row["result"] = "FAILED: " + r.why()
    elif r.report.get("races", 0):
        row["result"] = "RACE: " + r.why()
    else:
        row["result"] = "DIFFERENT"
    return row


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--net", help="one network only")
parser.add_argument("--alloc", choices=["eager", "upfront"])
parser.add_argument("--policy")
parser.add_argument("--seed", type=int, default=1, help="order in which the simulated GPU works")
parser.add_argument("--plant", action="store_true",
                    help="compare runs of different initial weights: every cell must differ")
opt = parser.parse_args()
SEED = opt.seed
ROWS = []
for NAME, NET, ARGS in nets():
    if opt.net not in (None, NAME):
        continue
    for ALLOC in ("eager", "upfront"):
        if opt.alloc not in (None, ALLOC):
            continue
        BARE = bare_run(NET, [*ARGS, "--alloc", ALLOC])
        NEED = trainerlib.sizes(NET, *ARGS, preset="h200-141g")
        ROWS += [cell(NAME, NET, [*ARGS, "--alloc", ALLOC], ALLOC, p, s, BARE, NEED)
                 for p, s in CELLS if opt.policy in (None, p)]
print(f"seed {SEED}, pages of {GRANULARITY} bytes, simulated")
benchlib.table(ROWS, COLUMNS)
EQUAL = sum(r["result"] == "equal" for r in ROWS)
UNFIT = sum(r["result"].startswith("unfit") for r in ROWS)
benchlib.write("bits", ROWS, {"cells": len(ROWS), "differing": len(ROWS) - EQUAL - UNFIT,
                              "unfit": UNFIT})
sys.exit(0 if ROWS and EQUAL + UNFIT == len(ROWS) else 1)
