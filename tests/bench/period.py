"""The iteration is found within three iterations, without vmem_step, for every trainer and both
habits, also quietly, with gradient accumulation and with 2,048 LSTM steps.

What an iteration is, is counted independently of libvmem: the launches, copies and memsets that one
more iteration of the bare program makes, by the simulated GPU's own count of calls. Writes
build/bench/period.json; figures cells, found."""
import argparse
import sys

import benchlib
import trainerlib

SMALL_LSTM = ["--set", "hidden=64", "--set", "features=16", "--batch", 16]
TRAINERS = [
    ("lenet", "lenet", []),
    ("lenet-digits", "lenet-digits", []),
    ("vgg-small", "vgg-small", []),
    ("resnet20", "resnet", []),
    ("lstm", "lstm", []),
    ("alexnet", "alexnet", []),
    ("overfeat", "overfeat", []),
    ("googlenet", "googlenet", ["--batch", 32]),
    ("vgg-a", "vgg-a", []),
    ("vgg-16", "vgg", []),
    ("resnet-50", "resnet-imagenet", []),
    ("resnet-110", "resnet", ["--set", "depth=110"]),
]
HABITS = [("eager", ["--alloc", "eager"]), ("upfront", ["--alloc", "upfront"])]
OPS = ("cuLaunchKernel", "cuMemcpy", "cuMemset")
COLUMNS = [("trainer", "trainer", ""), ("alloc", "alloc", ""), ("variant", "variant", ""),
           ("expected_ops", "ops", "d"), ("period_ops", "found", "d"), ("result", "result", "")]


def cells():
    """(trainer, description, arguments, variant) of every cell."""
    for name, net, args in TRAINERS:
        yield name, net, args, "plain"
        yield name, net, [*args, "--quiet"], "quiet"
        yield name, net, [*args, "--accumulate", 4], "accumulate 4"
    yield "vgg-16", "vgg", ["--quiet", "--accumulate", 4], "quiet, accumulate 4"
    yield "lstm-2048", "lstm", [*SMALL_LSTM, "--steps", 2048], "plain"
    yield "lstm-2048", "lstm", [*SMALL_LSTM, "--steps", 2048, "--quiet"], "quiet"


def ops(run):
    return sum(n for name, n in run.report.get("calls", {}).items() if name.startswith(OPS))


def expected(net, args):
    """Ops of one iteration of the bare program."""
    two, three = (trainerlib.train(net, *args, "--iters", n, preset="h200-141g") for n in (2, 3))
    for r in (two, three):
        if r.rc != 0:
            print(f"period: {net} bare: {r.why()}", file=sys.stderr)
            sys.exit(1)
    return ops(three) - ops(two)


def cell(name, net, args, variant, alloc, flags):
    """Three iterations and the start of a fourth: by then the iteration must be known."""
    want = expected(net, [*args, *flags])
    r = trainerlib.train(net, *args, *flags, "--iters", 4, preset="h200-141g", preload=True,
                         VMEM_POLICY=opt.policy, VMEM_WARMUP=2)
    got = int(r.stats.get("period_ops", 0))
    planned = int(r.stats.get("planned_iterations", 0))
    row = {"trainer": name, "alloc": alloc, "variant": variant, "expected_ops": want,
           "period_ops": got, "planned_iterations": planned}
    if r.rc != 0:
        row["result"] = "FAILED: " + r.why()
    elif got != want:
        row["result"] = "WRONG" if got else "NOT FOUND"
    elif planned < 1:
        row["result"] = "LATE"
    else:
        row["result"] = "found"
    return row


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--trainer", help="one trainer only")
parser.add_argument("--variant", help="one variant only")
parser.add_argument("--alloc", choices=["eager", "upfront"], help="one habit only")
parser.add_argument("--policy", default="auto")
opt = parser.parse_args()
ROWS = [cell(name, net, args, variant, alloc, flags)
        for name, net, args, variant in cells() for alloc, flags in HABITS
        if opt.trainer in (None, name) and opt.variant in (None, variant)
        and opt.alloc in (None, alloc)]
print("simulated")
benchlib.table(ROWS, COLUMNS)
FOUND = sum(r["result"] == "found" for r in ROWS)
benchlib.write("period", ROWS, {"cells": len(ROWS), "found": FOUND})
sys.exit(0 if ROWS and FOUND == len(ROWS) else 1)
