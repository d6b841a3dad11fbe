#!/usr/bin/env python3
"""Packing: the published hard instances, larger ones, op logs of real training iterations, and the
iterations of our trainers as recorded on the simulated GPU.

Every packing is checked by the verifier, which shares no code with the packers. Times are CPU seconds;
q is the time qsort takes for 10^6 random 64-bit keys in the same process. Where the program
`minimalloc` is on PATH, or MINIMALLOC names it, it solves the same instances in the same run."""
import gzip
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

import benchlib
import trainerlib

PROGRAM = benchlib.BUILD / "tests" / "bench" / "pack_bench"
CAPACITY = 1048576
TRAINERS = [
    ("vgg16 b64", "vgg", ["--batch", "64"]),
    ("alexnet b128", "alexnet", ["--batch", "128"]),
    ("overfeat b128", "overfeat", ["--batch", "128"]),
    ("googlenet b128", "googlenet", ["--batch", "128"]),
    ("resnet b32", "resnet-imagenet", ["--batch", "32"]),
    ("lstm 128 steps", "lstm", ["--set", "hidden=1024", "--batch", "64", "--steps", "128"]),
]


def ask(*args):
    """One run of pack_bench as a dict; ends the benchmark where it fails."""
    p = subprocess.run([str(PROGRAM), *map(str, args)], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"pack_bench {' '.join(map(str, args))}: {p.stderr.strip()}")
    objects = [json.loads(line) for line in p.stdout.splitlines()]
    return {k: v for o in objects for k, v in o.items()}


def unpacked(path, folder):
    """The file itself, or what is in it where it is compressed."""
    if path.suffix != ".gz":
        return path
    out = pathlib.Path(folder) / path.stem
    out.write_bytes(gzip.decompress(path.read_bytes()))
    return out


def others_seconds(path, folder):
    """CPU seconds the minimalloc program takes for one file; None where there is none."""
    program = os.environ.get("MINIMALLOC") or shutil.which("minimalloc")
    if not program:
        return None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    p = subprocess.run([program, f"--capacity={CAPACITY}", f"--input={path}",
                        f"--output={folder}/other.csv"], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if p.returncode:
        print(f"{program} failed on {path.name}: {p.stderr.strip()[:200]}")
        return None
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def hard(folder):
    """minimalloc's eleven at the published capacity, and its example of capacity 12."""
    rows = []
    for path in sorted((benchlib.DATA / "minimalloc").glob(f"*.{CAPACITY}.csv")):
        r = ask("search", path, CAPACITY, 60)
        rows.append({"name": path.name, "kind": "hard", **r,
                     "minimalloc_seconds": others_seconds(path, folder)})
    example = benchlib.DATA / "minimalloc" / "input.12.csv"
    rows.append({"name": example.name, "kind": "example", **ask("search", example, 12, 60)})
    return rows


def large(folder):
    rows = []
    for name, args in (("G_1.csv", ("best", 20)), ("resnet50.csv", ("best", 20)), ("S_1.csv.gz", ("fast",))):
        path = unpacked(benchlib.DATA / "idealloc" / name, folder)
        rows.append({"name": path.name, "kind": "large", **ask(args[0], path, *args[1:])})
    return rows


def real(folder, q):
    rows = []
    for path in sorted((benchlib.DATA / "dtr").glob("*.log.gz")):
        r = ask("oplog", unpacked(path, folder), 3 * q)
        rows.append({"name": path.name.removesuffix(".log.gz"), "kind": "real", **r})
    return rows


def trainers(folder, q):
    """Our trainers, recorded where they fit; packed contiguously and in pages."""
    rows = []
    for name, net, args in TRAINERS:
        trace = pathlib.Path(folder, name.replace(" ", "_") + ".trace")
        run = trainerlib.train(net, *args, "--iters", "4", "--quiet", preset="titanx-64g", preload=True,
                               VMEM_POLICY="pool", VMEM_TRACE=trace)
        if not trace.exists():
            sys.exit(f"{name}: no trace was recorded: {run.why()}")
        rows.append({"name": name, "kind": "real", **ask("trace", trace, 3 * q)})
    return rows


def main():
    benchlib.require_data("minimalloc", "idealloc", "dtr")
    with tempfile.TemporaryDirectory() as folder:
        rows = hard(folder)
        rows += large(folder)
        q = benchlib.median([r["q"] for r in rows])
        rows += real(folder, q)
        rows += trainers(folder, q)
    for r in rows:
        r["over"] = 100 * (r["height"] / r["max_live"] - 1) if r["solved"] else None
        r["q_units"] = r["seconds"] / r["q"]
        if "pool_bytes" in r:
            r["over_paged"] = 100 * (r["pool_bytes"] / r["rounded_live"] - 1)
    benchlib.table(rows, [("name", "problem", ""), ("items", "blocks", "d"), ("solved", "solved", "d"),
                          ("max_live", "max live", "d"), ("over", "over %", ".4f"), ("over_paged", "paged over %", ".4f"),
                          ("seconds", "s", ".4f"), ("q_units", "q", ".2f"), ("nodes", "nodes", "d"),
                          ("minimalloc_seconds", "minimalloc s", ".2f")])
    eleven = [r for r in rows if r["kind"] == "hard"]
    figures = {
        "solved": sum(r["solved"] for r in eleven),
        "pack_q": sum(r["q_units"] for r in eleven),
        "seconds": sum(r["seconds"] for r in eleven),
        "idealloc_worst_over": max(r["over"] for r in rows if r["kind"] == "large") / 100,
        "real_over_max_live": max(r["over"] for r in rows if r["kind"] == "real") / 100,
        "real_worst_q": max(r["q_units"] for r in rows if r["kind"] == "real"),
    }
    figures["real_paged_over"] = max(r["over_paged"] for r in rows if "over_paged" in r) / 100
    if all(r["minimalloc_seconds"] is not None for r in eleven):
        figures["minimalloc_seconds"] = sum(r["minimalloc_seconds"] for r in eleven)
    figures["exact"] = sum(r["height"] == r["max_live"] for r in rows
                           if r["name"] in ("G_1.csv", "resnet50.csv"))
    benchlib.write("pack", rows, figures, simulated=False)
    ok = (figures["solved"] == 11 and figures["pack_q"] <= 50 and figures["exact"] == 2 and
          figures["idealloc_worst_over"] <= 0.003 and figures["real_over_max_live"] <= 0.001 and
          figures["real_worst_q"] <= 5 and all(r["solved"] for r in rows))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
