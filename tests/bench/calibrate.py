"""Simulated times of convnets on the Titan X preset beside the times published for the card.

The published times (ms; forward, forward + backward + plain update) are those in the header of Caffe2's
convnet_benchmarks.py for cuDNN v4 on a Titan X. As that script does it: the gradient of the input is
computed too, VGG-A takes 231 x 231 pixels, there is no local response normalisation and no dropout, the
update is one pass over weights and gradients, every algorithm and workspace is allowed. Times are those
of the kernels, without gaps between launches.

    calibrate.py          the table; exit status 1 past the limits
    calibrate.py --fit    also prints the constants that fit best, for tests/simgpu/driver/presets.c
    calibrate.py --plant  a card that is a fifth slower than it should be: must fail (one network alone)

One set of constants (a share of the peak for each class of kernels) serves all networks. For the
leave-one-out column they are fitted without the network; both fits pull towards PRIOR, what such kernels
were measured to reach elsewhere, because eight times cannot settle ten constants alone.
"""
import argparse
import math
import re
import sys
import tempfile

import benchlib

PUBLISHED = {"alexnet": (128, 27.4, 90.1), "overfeat": (128, 91.7, 276.5),
             "googlenet": (128, 125.7, 450.6), "vgg-a": (64, 164.1, 551.7)}
# The same source, Inception (GoogLeNet) by batch size; not used in any fit.
BY_BATCH = {16: (22.8, 72.7), 32: (38.0, 127.5), 64: (67.2, 233.6)}
LIMIT, LIMIT_LEFT_OUT = 0.15, 0.25

CLASSES = ["ELEMENTWISE", "CONV_FWD", "CONV_BWD_DATA", "CONV_BWD_FILTER", "CONV_FAST", "GEMM", "POOL",
           "NORM", "REDUCE", "GENERIC"]  # enum simgpu_class
# Constant -> (classes, column of struct sg_class_rate, prior, weight of the prior). Sources: products
# and convolutions by products, arXiv 1410.0759 and 1412.7580; streaming kernels, STREAM-like copies.
CONSTANTS = {
    "conv_fwd": (["CONV_FWD"], 0, 0.6, 1), "conv_bwd_data": (["CONV_BWD_DATA"], 0, 0.5, 1),
    "conv_bwd_filter": (["CONV_BWD_FILTER"], 0, 0.5, 1), "conv_fast": (["CONV_FAST"], 0, 0.5, 1),
    "gemm": (["GEMM"], 0, 0.7, 1), "stream": (["ELEMENTWISE"], 1, 0.7, 9),
    "pool": (["POOL"], 1, 0.6, 1), "reduce": (["REDUCE"], 1, 0.6, 1),
    "conv_bytes": (["CONV_FWD", "CONV_BWD_DATA", "CONV_BWD_FILTER", "CONV_FAST", "GEMM"], 1, 0.7, 9),
}
PRIOR_WEIGHT = 0.01


def preset():
    """Peaks, kernel start in ns and class rates of the Titan X, read from presets.c."""
    text = (benchlib.ROOT / "tests/simgpu/driver/presets.c").read_text()
    table = re.search(r"rates_maxwell\[.*?\] = \{(.*?)\};", text, re.S).group(1)
    rates = {c: [float(a), float(b)] for c, a, b in
             re.findall(r"\[SIMGPU_CLASS_(\w+)\] = \{([\d.]+), ([\d.]+)\}", table)}
    titan = re.search(r"#define TITANX\(.*?\n\n|#define TITANX.*?rates_maxwell\}", text, re.S).group(0)
    peak = float(re.search(r"\.flops = ([\d.e]+)", titan).group(1))
    bandwidth = float(re.search(r"\.bandwidth = ([\d.e]+)", titan).group(1))
    start = float(re.search(r"\.kernel_start = (\d+)", text).group(1))
    return {"peak": peak, "bandwidth": bandwidth, "start": start, "rates": rates}


def seconds(kernels, p, rates):
    """Roofline time of kernels [(class, flops, bytes, ...)] in ms."""
    total = 0.0
    for k in kernels:
        share = rates[CLASSES[k[0]]]
        total += p["start"] + 1e9 * max(k[1] / (p["peak"] * share[0]), k[2] / (p["bandwidth"] * share[1]))
    return total / 1e6


def description(net, folder):
    """The benchmark's form of a network: no normalisation across channels, no dropout."""
    text = (benchlib.ROOT / f"tests/trainers/nets/{net}.net").read_text()
    text = re.sub(r"^(lrn|dropout)\b.*\n", "", text, flags=re.M)
    if net == "vgg-a":
        text = text.replace("input 3 224 224", "input 3 231 231")
    path = f"{folder}/{net}.net"
    with open(path, "w") as f:
        f.write(text)
    return path


def kernels_of(net, batch, forward_only, folder):
    """The kernels of one iteration as [(class, flops, bytes, simulated ns)]."""
    log = f"{folder}/kernels"
    cmd = [benchlib.BUILD / "tests/trainers/trainer", description(net, folder), "--batch", batch,
           "--iters", 1, "--alloc", "upfront", "--workspace", 4 << 30, "--any-order", "--input-gradient"]
    env = benchlib.sim_env("titanx-12g", SIMGPU_KERNEL_LOG=log)
    r = benchlib.run(cmd + (["--forward"] if forward_only else []), env)
    if r.returncode != 0:
        sys.exit(f"calibrate: {net} with batch {batch} failed: {r.stderr.strip()}")
    out, updates = [], 0
    for line in open(log):
        kclass, flops, nbytes, ns, _, name = line.split(maxsplit=5)
        if name.startswith("scal_kernel"):
            continue  # the trainer's momentum; the benchmark has none
        if name.startswith("axpy_kernel"):
            updates += 1
            if updates % 2:
                continue  # likewise: of two passes, one is the plain update
        out.append((int(kclass), float(flops), float(nbytes), float(ns)))
    return out


def rates_from(values, base):
    rates = {c: list(r) for c, r in base.items()}
    for name, v in values.items():
        classes, column, _, _ = CONSTANTS[name]
        for c in classes:
            rates[c][column] = v
    return rates


def fit(data, nets, p):
    """Constants with the least squared logarithmic error over the nets, drawn to the priors."""
    def cost(values):
        rates = rates_from(values, p["rates"])
        c = 0.0
        for net in nets:
            for kernels, published in data[net]:
                c += math.log(seconds(kernels, p, rates) / published) ** 2
        for name, (_, _, prior, weight) in CONSTANTS.items():
            c += PRIOR_WEIGHT * weight * math.log(values[name] / prior) ** 2
        return c

    values = {name: row[2] for name, row in CONSTANTS.items()}
    best, step = cost(values), 0.2
    while step > 0.005:
        better = False
        for name in values:
            for factor in (math.exp(step), math.exp(-step)):
                trial = dict(values, **{name: values[name] * factor})
                if trial[name] <= 0.95 and cost(trial) < best - 1e-9:
                    values, best, better = trial, cost(trial), True
        step = step if better else step / 2
    return values


def check_model(kernels, p):
    """Our roofline must be the simulator's, or the fits mean nothing."""
    for k in kernels:
        ours = 1e6 * seconds([k], p, p["rates"])
        if abs(ours - k[3]) > 1e-6 * k[3] + 1:
            sys.exit(f"calibrate: the simulator took {k[3]} ns where presets.c and the roofline give {ours}")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--fit", action="store_true", help="print the constants that fit best")
    args.add_argument("--plant", action="store_true", help="must fail: every kernel takes a fifth longer")
    args = args.parse_args()
    p = preset()
    data, batches = {}, {}
    published_nets = {"alexnet": PUBLISHED["alexnet"]} if args.plant else PUBLISHED
    with tempfile.TemporaryDirectory() as folder:
        for net, (batch, forward, both) in published_nets.items():
            data[net] = [(kernels_of(net, batch, True, folder), forward),
                         (kernels_of(net, batch, False, folder), both)]
        for batch, (forward, both) in ({} if args.plant else BY_BATCH).items():
            batches[batch] = [(kernels_of("googlenet", batch, True, folder), forward),
                              (kernels_of("googlenet", batch, False, folder), both)]
    for kernels, _ in data["alexnet"]:
        check_model(kernels, p)
    if args.plant:
        data = {net: [([(*k[:3], 1.2 * k[3]) for k in kernels], ms) for kernels, ms in runs]
                for net, runs in data.items()}
    rows, worst, worst_left_out, worst_batch = [], 0.0, 0.0, 0.0
    for net, (batch, *_) in published_nets.items():
        left_out = rates_from(fit(data, [n for n in data if n != net], p), p["rates"])
        for what, (kernels, published) in zip(("forward", "forward+backward"), data[net]):
            ms = sum(k[3] for k in kernels) / 1e6
            without = seconds(kernels, p, left_out)
            row = {"net": net, "batch": batch, "pass": what, "published_ms": published,
                   "simulated_ms": ms, "rel_error": ms / published - 1,
                   "left_out_ms": without, "left_out_rel_error": without / published - 1}
            rows.append(row)
            worst = max(worst, abs(row["rel_error"]))
            worst_left_out = max(worst_left_out, abs(row["left_out_rel_error"]))
    for batch, runs in batches.items():
        for what, (kernels, published) in zip(("forward", "forward+backward"), runs):
            ms = sum(k[3] for k in kernels) / 1e6
            rows.append({"net": "googlenet", "batch": batch, "pass": what, "published_ms": published,
                         "simulated_ms": ms, "rel_error": ms / published - 1})
            worst_batch = max(worst_batch, abs(ms / published - 1))
    benchlib.table(rows, [("net", "net", ""), ("batch", "batch", "d"), ("pass", "pass", ""),
                          ("published_ms", "published ms", ".1f"), ("simulated_ms", "simulated ms", ".1f"),
                          ("rel_error", "error", "+.3f"), ("left_out_rel_error", "left out", "+.3f")])
    if args.fit:
        print({name: round(v, 3) for name, v in fit(data, list(data), p).items()})
    if args.plant:
        sys.exit(0 if worst <= LIMIT else 1)
    benchlib.write("calibrate", rows, {"worst_rel_error": worst, "leave_one_out_error": worst_left_out,
                                       "other_batches_error": worst_batch})
    sys.exit(0 if worst <= LIMIT and worst_left_out <= LIMIT_LEFT_OUT else 1)


main()
