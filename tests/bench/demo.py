"""VGG-16 with batch 256 on a 12 GiB card: bare, on a card of the same speed with memory enough (the
oracle), and under libvmem.so. On a machine with a real GPU it runs there instead, with a budget that
does not fit. Writes build/bench/demo.json."""
import argparse
import os
import subprocess
import sys
import time

import benchlib
import trainerlib

sys.path.insert(0, str(benchlib.ROOT / "tests" / "gpu"))
import place  # noqa: E402

GIB = trainerlib.GIB
LIMITS = {"vdnn_all_slowdown": 1.25, "auto_slowdown": 1.10, "start_ratio": 1.5}
COLUMNS = [("card", "card", ""), ("workspace", "workspace", ""), ("policy", "policy", ""), ("budget_bytes", "budget B", ","),
           ("bare", "bare", ""), ("oracle_ms", "oracle ms", ".1f"), ("vmem_ms", "vmem ms", ".1f"),
           ("slowdown", "slowdown", ".4f"), ("peak_bytes", "peak B", ","),
           ("out_bytes", "out B/iter", ","), ("in_bytes", "in B/iter", ",")]


def planned_ms(run):
    """Median time of the iterations that followed a plan (the last ones of the run)."""
    n = min(int(run.stats.get("planned_iterations", 0)), len(run.ms) - 1)
    return benchlib.median(run.ms[-n:]) if n > 0 else float("nan")


def per_iteration(long, short):
    """Bytes copied out and in by one iteration: the difference of two runs that differ only in the
    number of iterations, so that set-up, the search for the plan and the end cancel."""
    n = long.iterations - short.iterations
    reports = (long.report, short.report) if short.report else (long.stats, short.stats)
    return [(reports[0].get(k, 0) - reports[1].get(k, 0)) / n for k in ("out_bytes", "in_bytes")]


def fail(what, run):
    print(f"demo: {what}: {run.why()}", file=sys.stderr)
    sys.exit(1)


def pair(what, args, iters, **where):
    """The same training over `iters` and over three iterations fewer."""
    runs = [trainerlib.train("vgg", *args, "--iters", n, **where) for n in (iters, iters - 3)]
    for r, n in zip(runs, (iters, iters - 3)):
        if r.rc != 0 or r.iterations != n:
            fail(what, r)
    return runs


def row(card, policy, bare, oracle, args, **where):
    """One policy; what it moves is what the oracle does not."""
    runs = pair(f"{policy} on {card}", args, ITERS, preload=True, VMEM_POLICY=policy, **where)
    out_bytes, in_bytes = (int(a - b) for a, b in zip(per_iteration(*runs), oracle["bytes"]))
    ms, stats = planned_ms(runs[0]), runs[0].stats
    return {"card": card, "policy": policy, "budget_bytes": int(stats.get("budget_bytes", 0)),
            "bare": bare, "oracle_ms": oracle["ms"], "vmem_ms": ms,
            "slowdown": ms / oracle["ms"],
            "peak_bytes": int(runs[0].report.get("peak_physical_bytes",
                                                 stats.get("peak_device_bytes", 0))),
            "out_bytes": out_bytes, "in_bytes": in_bytes, "iterations": runs[0].iterations,
            "planned_iterations": int(stats.get("planned_iterations", 0))}


def run_oracle(args, **where):
    runs = pair("the oracle", args, 5, **where)
    moved = per_iteration(*runs) if runs[0].report else (0, 0)
    return {"ms": benchlib.median(runs[0].ms[1:]), "bytes": moved}


def simulated_rows(args, cards):
    """The trainer's own limit of workspace on every card; then the fastest convolution algorithms on the
    first, which leave less time to copy in."""
    runs = [(c, "256 MiB", args) for c in cards]
    runs.append((cards[0], "4 GiB", [*args, "--workspace", 4 * GIB]))
    rows = []
    for (card, big), workspace, more in runs:
        bare = trainerlib.train("vgg", *more, "--iters", 2, preset=card)
        if not bare.out_of_memory and bare.rc != 0:
            fail(f"bare on {card}", bare)
        text = "out of memory" if bare.out_of_memory else f"{benchlib.median(bare.ms):.1f}"
        oracle = run_oracle(more, preset=big)
        rows += [{**row(card, policy, text, oracle, more, preset=card), "workspace": workspace}
                 for policy in ("vdnn-all", "auto")]
    return rows


def real_env():
    """The machine's own libraries instead of the simulated ones, which the trainers were linked with."""
    here = place.Place(benchlib.BUILD, os.environ.get("VMEM_PYTHON") or "python3", False, "")
    stand_ins = here.own_libraries(trainerlib.TRAINERS / "trainer")
    if stand_ins:
        sys.exit("demo: there is a GPU, but not all of CUDA's libraries (LD_LIBRARY_PATH; --simulated runs without): " +
                 "; ".join(here.missing or stand_ins))
    return {"LD_LIBRARY_PATH": ":".join(here.library_path)}


def real_rows(args):
    """A real GPU holds this network, so a budget of 12 GiB stands for the small card."""
    where = {**real_env(), "VMEM_LIBCUDA": "", "SIMGPU_PRESET": None}
    oracle = run_oracle(args, **where)
    card = place.device(benchlib.BUILD, dict(os.environ))["device/name"]
    where["VMEM_BUDGET"] = 12 * GIB
    return [row(card, policy, f"{oracle['ms']:.1f}", oracle, args, **where)
            for policy in ("vdnn-all", "auto")]


def start_ratio(pairs=101):
    """Median over paired starts of /bin/true: time under LD_PRELOAD over time without."""
    env = benchlib.sim_env("titanx-12g")
    under = benchlib.sim_env("titanx-12g", preload=True)
    ratios = []
    for i in range(pairs):
        took = {}
        for name, e in (("bare", env), ("under", under))[:: 1 if i % 2 else -1]:
            t = time.perf_counter()
            subprocess.run(["/bin/true"], env=e, check=True)
            took[name] = time.perf_counter() - t
        ratios.append(took["under"] / took["bare"])
    return benchlib.median(ratios)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--iters", type=int, default=10)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--only", choices=["titanx-12g", "k40-12g"], help="one card only")
parser.add_argument("--simulated", action="store_true", help="even where there is a real GPU")
opt = parser.parse_args()
ITERS = opt.iters
if ITERS < 8:
    parser.error("--iters must be at least 8: a plan exists after a few iterations")
ARGS = ["--batch", opt.batch, "--alloc", "eager"]
REAL = place.real_gpu(benchlib.BUILD) and not opt.simulated
if REAL:
    ROWS = real_rows(ARGS)
else:
    CARDS = [("titanx-12g", "titanx-64g"), ("k40-12g", "k40-64g")]
    ROWS = simulated_rows(ARGS, [c for c in CARDS if opt.only in (None, c[0])])
print("VGG-16, batch %d, %s" % (opt.batch, "a real GPU" if REAL else "simulated"))
benchlib.table(ROWS, COLUMNS)
FIGURES = {r["policy"].replace("-", "_") + "_slowdown": r["slowdown"] for r in reversed(ROWS)}
FIGURES.update({r["policy"].replace("-", "_") + "_slowdown_fast": r["slowdown"] for r in ROWS
                if r.get("workspace") == "4 GiB"})
FIGURES["start_ratio"] = start_ratio()
benchlib.write("demo", ROWS, FIGURES, simulated=not REAL)
for NAME, LIMIT in LIMITS.items():
    if not REAL and not FIGURES[NAME] <= LIMIT:
        print(f"demo: {NAME} {FIGURES[NAME]:.3f} is above {LIMIT}", file=sys.stderr)
        sys.exit(1)
