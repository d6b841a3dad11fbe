"""PyTorch's official wheel, unmodified, on the simulated A100 with 40 GiB.

For each script of tests/frameworks: the largest batch alone (with PyTorch's caching allocator) and under
libvmem.so, against what would be possible if only the largest launch had to fit; the predicted slowdown there;
device bytes under `pool` at the largest batch that runs alone, or nearly (see `pooled`), against what PyTorch reserved
and against what was alive at most; CPU time of an iteration against the time alone. The search for the largest batch
alone begins where it was found last, with us where one recording says; runs decide, of so many scripts at a time as
there are processors. Writes build/bench/pytorch.json.

CPU time is that of the whole process, every thread, user and system, for an iteration without what making its batches
takes (most of an iteration of images, and no work of ours); after twenty iterations, when there is a plan. It is taken
at an eighth of a small batch: the calls are the same with every batch. The stand-ins' own work is in it on both sides.
What else runs on the machine makes CPU time longer, so the sides take turns on one processor, a tenth of a second each
(side by side, each would find the caches as the other left them), and the median of all iterations of a side counts.
--cpu measures nothing else and writes build/bench/pytorch-cpu.json."""
import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import time

import benchlib

FRAMEWORKS = pathlib.Path(__file__).resolve().parents[1] / "frameworks"
sys.path.insert(0, str(FRAMEWORKS))
from wheel import Wheel, messages, operations, peak_of  # noqa: E402

# Arguments, a small batch, and the batch from which the search for the largest alone begins.
SCRIPTS = {"resnet50": ([], 128, 479), "vgg16": ([], 128, 520), "gpt2": ([], 8, 28), "lstm": ([], 256, 5328),
           "unet": ([], 16, 106)}
CARD = 39 << 30  # what the context leaves of the card's 40 GiB
ROUNDS = 4  # of pairs of runs
TURN = 0.1  # seconds
# Pinned memory is the simulated machine's, which has what is asked for.
ROOM = {"VMEM_HOST_BUDGET": "2TiB"}
BARS = {"resnet50_batch_gain": (3, 1), "unet_batch_gain": (3, 1), "worst_gain_of_possible": (0.9, 1),
        "worst_pool_batch": (0.95, 1), "worst_pool_over_reserved": (0, -1), "worst_over_max_live": (0.01, -1),
        "worst_cpu_ratio": (1.10, -1)}
COLUMNS = [("script", "script", ""), ("native", "largest alone", "d"), ("with_us", "with us", "d"), ("gain", "gain", ".2f"),
           ("possible", "possible", ".2f"), ("slowdown", "slowdown", ".3f"), ("pool_batch", "pool at", "d"),
           ("reserved", "reserved B", ","),
           ("pool", "pool B", ","), ("live", "most alive B", ","), ("cpu_alone", "CPU ms", ".1f"),
           ("cpu_with_us", "with us", ".1f"), ("cpu_ratio", "ratio", ".3f"), ("seconds", "took s", ".0f")]
CPU_COLUMNS = [COLUMNS[0], ("cpu_batch", "batch", "d"), *COLUMNS[-4:-1]]


# What a run says that needs more than the card has.
TOO_LARGE = "out of memory", "CUBLAS_STATUS_ALLOC_FAILED"


def attempt(name, args, batch, vmem):
    """Iterations with this batch: None where they need too much, else the lines of output. The first makes the
    optimizer's state and the second needs the most; PyTorch's cache may have come to pieces by the fourth."""
    status, lines, _ = WHEEL.script(name, *args, "--batch", batch, "--iterations", 2 if vmem else 6, vmem=vmem, timeout=1200,
                                    **(ROOM if vmem else {}))
    if status != 0 and not any(limit in "\n".join(lines) for limit in TOO_LARGE):
        sys.exit(f"pytorch: {name} with batch {batch}{' under libvmem' if vmem else ''}: {' | '.join(lines[-4:])}")
    print(f"  {name} batch {batch}{' with us' if vmem else ''}: {'fits' if status == 0 else 'too large'}", flush=True)
    return lines if status == 0 else None


def largest(name, args, expected, vmem, grain):
    """The largest batch that fits, to one part in `grain`, and what it printed: `expected`, which is nearly right, is
    put between one that fits and one that does not, then bisection."""
    low, high, best, stride = 0, None, None, max(1, expected // grain)
    at = max(1, expected)
    while high is None or high - low > max(1, low // grain):
        lines = attempt(name, args, at, vmem)
        if lines:
            low, best = at, lines
        else:
            high = at
        if high == 1:
            sys.exit(f"pytorch: {name} does not train with a single sample")
        if low and high:
            at = (low + high) // 2
        else:
            at = at + stride if low else max(1, at - stride)
            stride *= 2
    return low, best


def largest_launch(name, args, batch):
    """Bytes of the blocks that one operation names at most, from a recording."""
    with tempfile.TemporaryDirectory(prefix="vmem-bench-") as folder:
        trace = pathlib.Path(folder, "t.jsonl")
        run(name, args, batch, 4, VMEM_TRACE=trace)
        return max((sum(size for _, size in blocks) for blocks in operations(trace)), default=0)


def run(name, args, batch, iterations, vmem=True, started=None, **settings):
    """What a run that must not fail prints and counts."""
    status, lines, stats = WHEEL.script(name, *args, "--batch", batch, "--iterations", iterations, vmem=vmem, timeout=1200,
                                        started=started, **(ROOM if vmem else {}), **settings)
    if status != 0:
        sys.exit(f"pytorch: {name} with batch {batch}: {' | '.join(lines[-4:])}")
    return lines, stats


def pooled(name, args, native, alone, grain):
    """The largest batch that runs alone and under `pool`, what PyTorch reserved there, and the counters of
    `pool`. At the edge of the card PyTorch has cuDNN do with a smaller workspace when its cache refuses one; without its
    cache it takes that for the end (docs/limits.md), and the search goes down from there."""
    batch = native
    while True:
        # Nothing is kept back for others: alone it has all of the card too.
        status, lines, stats = WHEEL.script(name, *args, "--batch", batch, "--iterations", 16, vmem=True, timeout=1200,
                                            VMEM_POLICY="pool", VMEM_RESERVE="64MiB", VMEM_LOG="info", **ROOM)
        if status == 0 and messages(lines, 401):
            break
        if status == 0 or not any(limit in "\n".join(lines) for limit in TOO_LARGE) or batch == 1:
            sys.exit(f"pytorch: {name} with batch {batch} under pool: {' | '.join(lines[-4:])}")
        batch -= max(1, native // grain)
    print(f"  {name} batch {batch} under pool: fits", flush=True)
    if batch != native:
        alone, _ = run(name, args, batch, 6, vmem=False)
    return batch, peak_of(alone)[1], stats


def cpu_of(lines):
    """CPU ms of the iterations that count."""
    return [float(v) for v in re.findall(r"^iter .* cpu (\S+)", "\n".join(lines), re.M)][20:]


def take_turns(processes):
    """Lets two processes run by turns until one has ended, then the other."""
    while all(p.poll() is None for p in processes):
        for p, other in (processes, processes[::-1]):
            other.send_signal(signal.SIGSTOP)
            p.send_signal(signal.SIGCONT)
            time.sleep(TURN)
    for p in processes:
        p.send_signal(signal.SIGCONT)


def cpu_pair(name, args, batch, core):
    """CPU ms of the iterations alone and of those with us, taken by turns on one processor."""
    os.sched_setaffinity(0, {core})  # this thread's, and so its children's
    with concurrent.futures.ThreadPoolExecutor(2) as pair:
        running = queue.SimpleQueue()
        sides = [pair.submit(run, name, args, batch, 400, vmem, running.put) for vmem in (False, True)]
        processes = []
        while len(processes) < 2 and not any(side.done() for side in sides):
            with contextlib.suppress(queue.Empty):
                processes.append(running.get(timeout=1))
        if len(processes) == 2:
            take_turns(processes)
        return [cpu_of(side.result()[0]) for side in sides]


def cpu_times(name, args, batch):
    """CPU ms of an iteration alone and with us."""
    cores = sorted(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(len(cores)) as several:
        pairs = list(several.map(lambda i: cpu_pair(name, args, batch, cores[i % len(cores)]), range(ROUNDS)))
    return [benchlib.median([ms for pair in pairs for ms in pair[side]]) for side in (0, 1)]


def cpu_row(name, args, start):
    batch = max(1, start // 8)
    alone, with_us = cpu_times(name, args, batch)
    return {"script": name, "cpu_batch": batch, "cpu_alone": alone, "cpu_with_us": with_us, "cpu_ratio": with_us / alone}


def sizes(name, args, expected, grain):
    """All of a script's row but the CPU times."""
    began = time.monotonic()
    native, alone = largest(name, args, expected, False, grain)
    launch = largest_launch(name, args, native)
    with_us, _ = largest(name, args, int(native * CARD / launch), True, grain)
    batch, reserved, stats = pooled(name, args, native, alone, grain)
    most, _ = run(name, args, with_us, 6, VMEM_LOG="info")
    plan = re.search(r"predicted (\d+) us against (\d+) us", messages(most, 401)[-1][1]) if messages(most, 401) else None
    row = {"script": name, "native": native, "with_us": with_us, "gain": with_us / native,
           "possible": peak_of(alone)[0] / launch,
           "slowdown": int(plan[1]) / int(plan[2]) if plan else float("nan"),
           "pool_batch": batch, "reserved": reserved, "pool": stats["peak_device_bytes"], "live": stats["peak_block_bytes"],
           "seconds": time.monotonic() - began}
    print("  " + ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def measure(names, grain):
    """Rows of all scripts. CPU times are taken while nothing else of ours runs."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as several:
        rows = list(several.map(lambda name: sizes(name, SCRIPTS[name][0], SCRIPTS[name][2], grain), names))
    for row in rows:
        began = time.monotonic()
        row.update(cpu_row(row["script"], *SCRIPTS[row["script"]][:2]))
        row["seconds"] += time.monotonic() - began
    return rows


def figures_of(rows):
    gain = {r["script"]: r["gain"] for r in rows}
    return {"resnet50_batch_gain": gain.get("resnet50", 0.0), "unet_batch_gain": gain.get("unet", 0.0),
            "worst_gain_of_possible": min(r["gain"] / r["possible"] for r in rows),
            "worst_pool_batch": min(r["pool_batch"] / r["native"] for r in rows),
            "worst_pool_over_reserved": max(r["pool"] / r["reserved"] - 1 for r in rows),
            "worst_over_max_live": max(r["pool"] / r["live"] - 1 for r in rows),
            "worst_cpu_ratio": max(r["cpu_ratio"] for r in rows), "scripts": len(rows)}


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--only", choices=SCRIPTS, help="one script")
parser.add_argument("--cpu", action="store_true", help="CPU time only")
parser.add_argument("--grain", type=int, default=50, help="the largest batch to one part in so many")
opt = parser.parse_args()
PYTHON = os.environ.get("VMEM_PYTHON") or subprocess.run(
    [FRAMEWORKS / "run.sh", "--print-python"], check=True, capture_output=True, text=True).stdout.strip()
WHEEL = Wheel(PYTHON)
if opt.cpu:
    ROWS = [cpu_row(name, *SCRIPTS[name][:2]) for name in SCRIPTS if opt.only in (None, name)]
    benchlib.table(ROWS, CPU_COLUMNS)
    worst = max(r["cpu_ratio"] for r in ROWS)
    benchlib.write("pytorch-cpu", ROWS, {"worst_cpu_ratio": worst})
    bar = BARS["worst_cpu_ratio"][0]
    sys.exit(f"pytorch: worst_cpu_ratio {worst:.3f} (bar {bar})" if worst > bar else 0)
ROWS = measure([name for name in SCRIPTS if opt.only in (None, name)], opt.grain)
benchlib.table(ROWS, COLUMNS)
FIGURES = figures_of(ROWS)
benchlib.write("pytorch", ROWS, FIGURES)
MISSED = [f"{k} {FIGURES[k]:.3f} (bar {bar})" for k, (bar, sign) in BARS.items()
          if not sign * FIGURES[k] >= sign * bar and opt.only is None]
if MISSED:
    sys.exit("pytorch: " + ", ".join(MISSED))
