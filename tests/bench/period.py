"""The iteration is found within three iterations, without vmem_step, for every trainer and both
habits, also quietly, with gradient accumulation and with 2,048 LSTM steps.

What an iteration is, is counted independently of libvmem: the launches, copies and memsets that one
more iteration of the bare program makes, by the simulated GPU's own count of calls. Writes
build/bench/period.json; figures cells, found."""
import argparse
import re
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
    ("alexnet", "alexnet", ["--batch", 8]),
    ("overfeat", "overfeat", ["--batch", 8]),
    ("googlenet", "googlenet", ["--batch", 8]),
    ("vgg-a", "vgg-a", ["--batch", 8]),
    ("vgg-16", "vgg", ["--batch", 8]),
    ("resnet-50", "resnet-imagenet", ["--batch", 8]),
    ("resnet-110", "resnet", ["--set", "depth=110", "--batch", 8]),
]
HABITS = [("eager", ["--alloc", "eager"]), ("upfront", ["--alloc", "upfront"])]
OPS = ("cuLaunchKernel", "cuMemcpy", "cuMemset")
COLUMNS = [("trainer", "trainer", ""), ("alloc", "alloc", ""), ("variant", "variant", ""),
           ("expected_ops", "ops", "d"), ("period_ops", "found", "d"),
           ("found_after_ops", "after", "d"), ("limit_ops", "at most", "d"), ("result", "result", "")]


def cells():
    """(trainer, description, arguments, variant) of every cell."""
    for name, net, args in TRAINERS:
        yield name, net, args, "plain"
        yield name, net, [*args, "--quiet"], "quiet"
        yield name, net, [*args, "--accumulate", 4], "accumulate 4"
    yield "vgg-16", "vgg", ["--batch", 8, "--quiet", "--accumulate", 4], "quiet, accumulate 4"
    yield "lstm-2048", "lstm", [*SMALL_LSTM, "--steps", 2048], "plain"
    yield "lstm-2048", "lstm", [*SMALL_LSTM, "--steps", 2048, "--quiet"], "quiet"


def ops(run):
    return sum(n for name, n in run.report.get("calls", {}).items() if name.startswith(OPS))


def expected(net, args):
    """Ops of one iteration of the bare program, and ops before its first iteration."""
    runs = [trainerlib.train(net, *args, "--iters", n, preset="h200-141g") for n in (1, 2)]
    for r in runs:
        if r.rc != 0:
            print(f"period: {net} bare: {r.why()}", file=sys.stderr)
            sys.exit(1)
    want = ops(runs[1]) - ops(runs[0])
    at_end = runs[0].report["calls"].get("cuMemcpyDtoH_v2", 0)  # the checksum's copies
    return want, ops(runs[0]) - want - at_end


def cell(name, net, args, variant, alloc, flags):
    """Four iterations: the first operation of the fourth is the latest that may reveal the third."""
    want, before = expected(net, [*args, *flags])
    r = trainerlib.train(net, *args, *flags, "--iters", 4, preset="h200-141g", preload=True,
                         VMEM_POLICY=opt.policy, VMEM_LOG="info",
                         VMEM_OFF=1 if opt.plant else None)
    got = int(r.stats.get("period_ops", 0))
    line = re.search(r"iteration found: (\d+) operations, after (\d+) operations", r.stderr)
    row = {"trainer": name, "alloc": alloc, "variant": variant, "expected_ops": want,
           "period_ops": got, "limit_ops": before + 3 * want + 1,
           "found_after_ops": int(line.group(2)) if line else 0}
    if r.rc != 0:
        row["result"] = "FAILED: " + r.why()
    elif not line or not got:
        row["result"] = "NOT FOUND"
    elif got != want or int(line.group(1)) != want:
        row["result"] = "WRONG"
    else:
        row["result"] = "found" if row["found_after_ops"] <= row["limit_ops"] else "LATE"
    return row


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--trainer", help="one trainer only")
parser.add_argument("--variant", help="one variant only")
parser.add_argument("--alloc", choices=["eager", "upfront"], help="one habit only")
parser.add_argument("--policy", default="auto")
parser.add_argument("--plant", action="store_true",
                    help="with libvmem switched off: nothing may be found")
opt = parser.parse_args()
ROWS = []
print("simulated")
for NAME, NET, ARGS, VARIANT in cells():
    for ALLOC, FLAGS in HABITS:
        if opt.trainer in (None, NAME) and opt.variant in (None, VARIANT) \
                and opt.alloc in (None, ALLOC):
            ROWS.append(cell(NAME, NET, ARGS, VARIANT, ALLOC, FLAGS))
            if ROWS[-1]["result"] != "found":
                print(f"{NAME} {ALLOC} {VARIANT}: {ROWS[-1]['result']}", flush=True)
benchlib.table(ROWS, COLUMNS)
FOUND = sum(r["result"] == "found" for r in ROWS)
benchlib.write("period", ROWS, {"cells": len(ROWS), "found": FOUND})
sys.exit(0 if ROWS and FOUND == len(ROWS) else 1)
