#!/usr/bin/env python3
"""The rows of run.sh: scripts as PyTorch's users write them, on the simulated GPU.

usage: rows.py --python PYTHON [--old] [--starts N] [--jobs N] [--list] [ROW...]

Each script runs bare first. Under libvmem.so at half of the memory that the bare run had allocated at most, it
must print the same lines (times apart), follow a plan before its sixth iteration, and from then on not deviate
from it, unless the script itself does something else for a while (evaluation, a short batch): then it must be back
on its plan at the end. Where one launch needs more than half (the row says so, and that the run at half ends with
the message that names it is part of the row), the pages of that launch are the budget. The other rows are about starting, PyTorch's allocators, and processes. --old: an older
wheel, and the rows marked for it. Last line: N passed, N failed, N skipped.
"""
import argparse
import concurrent.futures
import itertools
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import imports
from wheel import BUILD, HERE, ROOT, SCRIPTS, Wheel, messages, operations, peak_of

# Iterations by whose end a plan is followed.
PLANNED_BY = 5
ITERATIONS = 30
# The last iterations of a script that interrupts its loop.
BACK = 3


class Failed(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Failed(text)


def said(lines):
    """What the script itself printed, without times and PyTorch's figures of memory."""
    kept = [line for line in lines if re.match(r"iter \d|evaluation |saved |profiled|checksum |done$", line)]
    return [re.sub(r" ms \S+ cpu \S+$", "", line) for line in kept]


def require_same(printed, alone):
    """What a script said under libvmem.so, and alone."""
    apart = [pair for pair in itertools.zip_longest(printed, alone) if pair[0] != pair[1]]
    require(not apart, f"printed, and alone: {apart[:3]}")


def bare(name, *args, **settings):
    status, lines, _ = WHEEL.script(name, *args, **settings)
    require(status == 0, f"bare it ended with {status}: " + " | ".join(lines[-4:]))
    return lines


def half_of(lines):
    """Half of what the script had allocated at most."""
    peak = peak_of(lines)
    require(peak, "the script did not print its peak")
    return peak[0] // 2


def largest_launch(name, page, *args):
    """Bytes of the pages, of `page` bytes each, that the script's largest launch names, counted from a trace."""
    with tempfile.TemporaryDirectory(prefix="vmem-rows-") as folder:
        trace = pathlib.Path(folder, "trace.jsonl")
        under(name, "100%", *args, "--iterations", 2, VMEM_POLICY="none", VMEM_CHUNK=page, VMEM_TRACE=trace)
        with open(trace, encoding="utf-8") as f:
            require(json.loads(next(f))["machine"]["page_bytes"] == page, "the trace has pages of another size")
        return page * max((len({n for at, size in blocks for n in range(at // page, (at + size - 1) // page + 1)})
                           for blocks in operations(trace)), default=0)


def refused(name, budget, *args):
    """The run is refused at this budget because of one launch: the bytes that message 304 names, and a page's."""
    status, lines, _ = WHEEL.script(name, *args, "--iterations", 1, vmem=True, VMEM_BUDGET=budget, VMEM_LOG="info")
    require(status != 0, "it ran at half of the peak")
    text = "\n".join(lines)
    page = re.search(r"^libvmem\[\d+\] info 300: .* in pages of (\d+) KiB", text, re.M)
    needed = re.search(r"^libvmem\[\d+\] error 304: \S+ needs (\d+) KiB", text, re.M)
    require(page and needed, "at half of the peak it ended for another reason: " + " | ".join(lines[-4:]))
    return int(needed[1]) << 10, int(page[1]) << 10


def under(name, budget, *args, **settings):
    """The script under libvmem.so: its lines mixed with the log, and the counters."""
    status, lines, stats = WHEEL.script(name, *args, vmem=True, VMEM_BUDGET=budget, VMEM_LOG="debug", **settings)
    require(status == 0, f"under libvmem it ended with {status}: " + " | ".join(lines[-4:]))
    return lines, stats


def check_planned(lines, stats, interrupted):
    plans = messages(lines, 401)
    require(plans, f"no plan was made: {stats}")
    require(plans[0][0] < PLANNED_BY, f"planned after {plans[0][0]} iterations")
    iterations = sum(bool(re.match(r"iter \d", line)) for line in lines)
    if interrupted:
        last = iterations - BACK
        whole = [n for n, line in messages(lines, 405) if n >= last and re.search(r" 0 deviations", line)]
        require(len(whole) >= BACK - 1, f"of the last {BACK} iterations {len(whole)} followed the plan; state {stats['state']}")
        return
    # What a script does after its last iteration is no longer its loop.
    after = [(n, line) for n, line in messages(lines, 403) if plans[0][0] < n < iterations]
    require(not after, f"{len(after)} deviations after the plan, the first in iteration {after[0][0] if after else 0}: "
                       f"{after[0][1] if after else ''}")
    lost = messages(lines, 404)
    require(not lost, f"the plan was left: {lost[:1]}")
    require(stats["state"] == "planned", f"the state at the end is {stats['state']}")


def half(script, *args, interrupted=False, large=False):
    """30 iterations at half of the native peak; large: one launch needs more than that."""
    def row():
        short = bare(script, *args, "--iterations", ITERATIONS)
        budget, note = half_of(short), ""
        if large:
            named, page = refused(script, budget, *args)
            needed = largest_launch(script, page, *args)
            require(named == needed > budget, f"the largest launch needs {needed}, the refusal says {named}, half is {budget}")
            note = f" (one launch needs {needed >> 20} MiB, half is {budget >> 20} MiB)"
            budget = needed
        lines, stats = under(script, budget, *args, "--iterations", ITERATIONS)
        require_same(said(lines), said(short))
        require(stats["out_bytes"] > 0, "nothing was moved")
        check_planned(lines, stats, interrupted)
        return (f"budget {budget >> 20} MiB{note}, planned after {messages(lines, 401)[0][0]} iterations, "
                f"{stats['planned_iterations']} planned, {stats['deviations']} deviations, {stats['demand_moves']} demand moves")
    return row


ROWS = {
    "resnet50": half("resnet50", "--batch", 32),
    "vgg16": half("vgg16", "--batch", 32),
    "gpt2": half("gpt2", "--batch", 4, "--clip", 1),
    "lstm": half("lstm", "--batch", 256),
    "unet": half("unet", "--batch", 8),
    "amp": half("resnet50", "--batch", 32, "--amp", "fp16", "--channels-last"),
    "accumulation": half("unet", "--batch", 4, "--accumulate", 4),
    "fused": half("gpt2", "--batch", 4, "--amp", "bf16", "--implementation", "fused"),
    "foreach": half("unet", "--batch", 8, "--implementation", "foreach"),
    "loop": half("unet", "--batch", 8, "--optimizer", "sgd", "--implementation", "loop"),
    "checkpointing": half("gpt2", "--batch", 2, "--optimizer", "sgd", "--implementation", "loop", "--checkpointing", large=True),
    "workers fork": half("resnet50", "--batch", 32, "--workers", 2),
    "workers spawn": half("unet", "--batch", 8, "--workers", 2, "--start-method", "spawn"),
    "evaluation": half("unet", "--batch", 8, "--epoch", 15, "--evaluate", 4, interrupted=True),
    "short batch": half("unet", "--batch", 8, "--epoch", 15, "--short-batch", interrupted=True),
}
OLD = ["smoke", "imports", "starts", "unet", "amp"]


def smoke():
    """What PyTorch does, in a minute: it says the same without and with libvmem."""
    outputs = []
    for vmem in (False, True):
        status, lines = WHEEL.launch([HERE / "smoke.py"], vmem=vmem)
        where = "under libvmem" if vmem else "bare"
        require(status == 0 and lines[-1:] == ["done"], f"{where} it ended with {status}: " + " | ".join(lines[-4:]))
        outputs.append([line for line in lines if not line.startswith("USDT:")])
    require(outputs[0] == outputs[1], f"bare {outputs[0]}, under libvmem {outputs[1]}")
    return f"{len(outputs[0])} parts"


def libraries():
    """The stand-ins have what the wheel's libraries take from those that they stand in for."""
    found = imports.missing(WHEEL.python, BUILD)
    lacking = [name for _, names in found.values() for name in names]
    require(not lacking, f"missing: {lacking}")
    require(all(n for n, _ in found.values()), f"nothing was taken from some: {found}")
    return f"{sum(n for n, _ in found.values())} functions of {len(found)} libraries"


def saving():
    with tempfile.TemporaryDirectory(prefix="vmem-rows-") as folder:
        return half("unet", "--batch", 8, "--epoch", 15, "--save", pathlib.Path(folder, "model.pt"), interrupted=True)()


def profiler():
    """torch.profiler attached, at half the memory: it sees the device's work as it does bare."""
    args = ["--batch", 8, "--iterations", 8, "--profile"]
    short = bare("unet", *args)
    require("profiled, work of the device seen" in short, "bare, the profiler saw no work of the device")
    lines, _ = under("unet", half_of(short), *args)
    require_same(said(lines), said(short))
    return "the same"


def graphs():
    """A whole iteration in one CUDA graph, which allocates while it is captured; what the graph held comes back."""
    args = ["--batch", 32, "--iterations", 5]
    short = bare("graphs", *args)
    lines, _ = under("graphs", "100%", *args)
    require_same(said(lines), said(short))
    require(len(messages(lines, 506)) == 1, "nothing was allocated in the capture")
    freed = [int(line.split()[1]) for line in short + lines if line.startswith("freed ")]
    require(len(freed) == 2 and freed[1] >= freed[0] > 1 << 30, f"with the graph came back, bare and under libvmem: {freed}")
    return f"the graph held {freed[1] >> 20} MiB, bare {freed[0] >> 20} MiB"


def two_ranks():
    """Two processes under torchrun, gloo between them, each on its own card. DistributedDataParallel compares what
    it sent through the cards, so their memory has contents here; kernels do nothing, so the losses say nothing."""
    def go(vmem, **settings):
        args = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, SCRIPTS / "unet.py",
                "--device", "cuda", "--size", "tiny", "--batch", 32, "--iterations", 12]
        return WHEEL.launch(args, vmem=vmem, apart=True, SIMGPU_DEVICES=2, SIMGPU_MODE="functional",
                            SIMGPU_GRANULARITY=65536, **settings)

    def course(lines):
        return [re.sub(r" loss \S+", "", line) for line in said(lines)]
    status, short = go(False)
    require(status == 0, f"bare it ended with {status}: " + " | ".join(short[-4:]))
    with tempfile.TemporaryDirectory(prefix="vmem-rows-") as folder:
        status, lines = go(True, VMEM_BUDGET=half_of(short), VMEM_LOG="debug",
                           VMEM_STATS_FILE=pathlib.Path(folder, "%p.json"))
        require(status == 0, f"under libvmem it ended with {status}: " + " | ".join(lines[-4:]))
        stats = [json.loads(p.read_text()) for p in pathlib.Path(folder).glob("*.json")]
    require_same(course(lines), course(short))
    moved = [s for s in stats if s["out_bytes"]]
    require(len(moved) == 2, f"{len(moved)} ranks moved anything")
    return f"{[s['planned_iterations'] for s in moved]} planned iterations"


START = "import torch; torch.cuda.init(); print('started', torch.cuda.device_count())"
FORK = """
import torch, torch.utils.data as data
loader = data.DataLoader(list(range(8)), num_workers=2)
torch.cuda.init()
print('started', sorted(int(x) for x in loader))
"""
PROFILE = """
import torch
torch.cuda.init()
with torch.profiler.profile() as p:
    torch.zeros(1000, device='cuda').add_(1)
    torch.cuda.synchronize()
print('started', len(p.events()) > 0)
"""


def starts():
    """Many starts of a process under LD_PRELOAD: output and exit status as without."""
    programs = [START] * 8 + [FORK, PROFILE]
    expected = {}
    for program in dict.fromkeys(programs):
        status, lines = WHEEL.launch(["-c", program])
        words = [line for line in lines if line.startswith("started")]
        require(status == 0 and words, f"bare: {status} {lines[-4:]}")
        expected[program] = words
    for i in range(OPTIONS.starts):
        program = programs[i % len(programs)]
        try:
            status, lines = WHEEL.launch(["-c", program], vmem=True)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"start {i}, of {program!r}, was not done in {error.timeout} s") from error
        words = [line for line in lines if line.startswith("started")]
        require((status, words) == (0, expected[program]), f"start {i}: {status} {lines[-6:]}")
        require(not [line for line in lines if line.startswith("libvmem[")], f"start {i}: libvmem wrote {lines}")
    return f"{OPTIONS.starts} starts"


def allocators():
    """Each way to choose PyTorch's allocator: what libvmem says, and what becomes of its cache."""
    program = ("import torch; x = torch.zeros(1 << 20, device='cuda'); y = x + 1; s = torch.cuda.Stream();\n"
               "y.record_stream(s); del y; print('reserved', torch.cuda.memory_reserved() > 0)")
    conf = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
    cases = [({}, False, [501])]
    for name in conf:
        cases += [({name: "expandable_segments:True"}, False, [501, 505]),
                  ({name: "max_split_size_mb:64", "VMEM_TORCH": 0}, True, [502]),
                  ({name: "expandable_segments:True", "VMEM_TORCH": 0}, True, [503]),
                  ({name: "backend:cudaMallocAsync"}, False, [504])]
    for settings, reserved, numbers in cases:
        status, lines = WHEEL.launch(["-c", program], vmem=True, VMEM_LOG="info", **settings)
        told = [int(n) for n in re.findall(r"^libvmem\[\d+\] \w+ (5\d\d):", "\n".join(lines), re.M)]
        require(status == 0 and f"reserved {reserved}" in lines and told == numbers,
                f"{settings}: {status}, messages {told}, {lines[-3:]}")
    return f"{len(cases)} settings"


def pluggable():
    """libvmem's functions as PyTorch's allocator: a training loop of its own at half the memory."""
    program = (f"import sys, torch; sys.argv[0] = 'unet.py'; sys.path.insert(0, {str(SCRIPTS)!r})\n"
               f"sys.path.insert(0, {str(ROOT / 'tools/python')!r}); import vmem\n"
               "torch.cuda.memory.change_current_allocator(vmem.torch_allocator())\n"
               "torch.cuda.max_memory_allocated = torch.cuda.max_memory_reserved = lambda: 0\n"
               "import unet; unet.main()")
    args = ["--device", "cuda", "--batch", 8, "--iterations", 12]
    short = bare("unet", *args[2:])
    with tempfile.TemporaryDirectory(prefix="vmem-rows-") as folder:
        stats = pathlib.Path(folder, "stats.json")
        status, lines = WHEEL.launch(["-c", program, *args], vmem=True, VMEM_BUDGET=half_of(short), VMEM_STATS_FILE=stats,
                               VMEM_LOG="debug", VMEM_TORCH=0)
        require(status == 0, f"ended with {status}: " + " | ".join(lines[-4:]))
        counters = json.loads(stats.read_text())
    require_same(said(lines), said(short))
    require(counters["planned_iterations"] > 3 and counters["out_bytes"] > 0, f"{counters}")
    check_pluggable_rest()
    return f"{counters['planned_iterations']} planned iterations"


def check_pluggable_rest():
    """What PyTorch asks of such an allocator beside memory."""
    program = (f"import sys, torch; sys.path.insert(0, {str(ROOT / 'tools/python')!r}); import vmem\n"
               "torch.cuda.memory.change_current_allocator(vmem.torch_allocator())\n"
               "tensors = [torch.ones(1 << 24, device='cuda') for _ in range(8)]\n"
               "tensors[0].record_stream(torch.cuda.Stream())\n"
               "held = lambda: vmem.stats().device_bytes >> 20\n"
               "before = held()\n"
               "torch.cuda.set_per_process_memory_fraction(0.25); torch.cuda.synchronize(); half = held()\n"
               "for t in tensors: t.add_(1)\n"
               "torch.cuda.synchronize(); again = held()\n"
               "del t, tensors; torch.cuda.synchronize(); torch.cuda.empty_cache()\n"
               "print('held', before, half <= 256, again <= 256, held())")
    status, lines = WHEEL.launch(["-c", program], vmem=True, VMEM_BUDGET="1GiB", VMEM_TORCH=0, VMEM_LOG="info")
    require(status == 0 and lines[-1:] == ["held 512 True True 0"] and any(" 312:" in line for line in lines),
            f"{status} {lines[-4:]}")


ROWS.update({"smoke": smoke, "imports": libraries, "starts": starts, "allocators": allocators, "pluggable": pluggable, "saving": saving, "profiler": profiler,
             "graphs": graphs, "two ranks": two_ranks})


def carry_out(name):
    """One row in this process: its line. Seconds passed, and of the processor in all its processes."""
    began, used = time.monotonic(), cpu_seconds()
    try:
        result = "passed: " + ROWS[name]()
    except (Failed, OSError, ValueError, subprocess.TimeoutExpired) as error:
        result = f"FAILED: {error}"
    return f"{name}: {result} ({time.monotonic() - began:.0f} s, {cpu_seconds() - used:.0f} s of a processor)"


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def elsewhere(name):
    """The same in a process of its own, so that rows can be carried out side by side."""
    r = subprocess.run([sys.executable, __file__, "--python", OPTIONS.python, "--starts", str(OPTIONS.starts), name],
                       stdout=subprocess.PIPE, text=True)
    return next((line for line in r.stdout.splitlines() if line.startswith(name + ": ")),
                f"{name}: FAILED: its process ended with {r.returncode}")


def main():
    global OPTIONS, WHEEL
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--python", required=True, help="a Python that has torch and torchvision")
    p.add_argument("--old", action="store_true", help="an older wheel: the rows " + ", ".join(OLD))
    p.add_argument("--starts", type=int, default=20)
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="rows at a time")
    p.add_argument("--list", action="store_true")
    p.add_argument("rows", nargs="*", metavar="ROW")
    OPTIONS = p.parse_args()
    if OPTIONS.list:
        print("\n".join(ROWS))
        return 0
    unknown = [r for r in OPTIONS.rows if r not in ROWS]
    if unknown:
        p.error(f"no such row: {', '.join(unknown)} (--list)")
    WHEEL = Wheel(OPTIONS.python)
    began, passed, failed = time.monotonic(), 0, 0
    names = OPTIONS.rows or (OLD if OPTIONS.old else list(ROWS))
    with concurrent.futures.ThreadPoolExecutor(OPTIONS.jobs) as pool:
        lines = pool.map(elsewhere, names) if OPTIONS.jobs > 1 else map(carry_out, names)
        for name, line in zip(names, lines):
            good = line.startswith(f"{name}: passed")
            passed += good
            failed += not good
            print(line, flush=True)
    print(f"{time.monotonic() - began:.0f} s")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
