"""A network trained through cuDNN's backend API, under budgets that do not fit: the same bits as bare, with
the race check on; and in timing mode what libvmem records of its operations: directions, and no access
unknown."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ["VMEM_TEST_BUILD"])
SIM = BUILD / "tests" / "simgpu"


def run(mode, *options, budget=None, iterations=10):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VMEM_", "SIMGPU_"))}
    env["LD_LIBRARY_PATH"] = ":".join(str(SIM / d) for d in ("driver", "runtime", "dnn"))
    report = tempfile.NamedTemporaryFile()
    env.update(SIMGPU_PRESET="a100-40g", SIMGPU_MODE=mode, SIMGPU_GRANULARITY="16384", SIMGPU_RACECHECK="1",
               SIMGPU_REPORT=report.name)
    cmd = [str(BUILD / "tests" / "integration" / "backend-net"), str(iterations)]
    if budget or options:
        cmd = [str(BUILD / "tools" / "vmem"), "run", *(["--budget", budget] if budget else []), "--log", "info",
               *options, "--", *cmd]
    r = subprocess.run(cmd, env=env, capture_output=True, text=True, timeout=200)
    if r.returncode != 0:
        sys.exit(f"{mode} {budget} {options}: status {r.returncode}: {r.stderr}")
    r.report = json.load(open(report.name))
    for finding in ("races", "undefined_reads", "early_frees", "late_maps", "illegal_addresses"):
        if r.report[finding]:
            sys.exit(f"{mode} {budget}: {r.report[finding]} {finding}\n{r.stderr}")
    return r


bare = run("functional")
if len(set(line.split(" ", 2)[2] for line in bare.stdout.splitlines())) != 10:
    sys.exit(f"the program does not train\n{bare.stdout}")
for budget in ("1900KiB", "1600KiB"):
    r = run("functional", budget=budget)
    if r.stdout != bare.stdout:
        sys.exit(f"budget {budget}: other bits\n{r.stdout}\n{bare.stdout}\n{r.stderr}")
    if "iteration found" not in r.stderr or "plan by auto" not in r.stderr:
        sys.exit(f"budget {budget}: no plan\n{r.stderr}")

with tempfile.NamedTemporaryFile(suffix=".jsonl") as trace:
    run("timing", "--trace", trace.name)
    events = [json.loads(line) for line in open(trace.name)]
names = {e["name"]: e["text"] for e in events if e.get("ev") == "name"}
ops = [e for e in events if e.get("ev") == "op" and names.get(e.get("name"), "").startswith("cudnn::graph::")]
directions = {"conv_fprop": ("conv", "forward"), "conv_dgrad": ("conv", "backward"),
              "conv_wgrad": ("conv", "backward")}
seen = set()
for op in ops:
    name = names[op["name"]].rsplit(":", 1)[1]
    unknown = [a for a in op["acc"] if "u" in a[1]]
    layer, direction = directions.get(name, (op.get("layer"), None))
    if unknown or op.get("layer") != layer or (direction and direction not in op.get("flags", [])):
        sys.exit(f"{name} was recorded as {op}")
    seen.add(name)
if len(ops) < 100 or seen != {"conv_fprop", "conv_dgrad", "conv_wgrad", "pointwise"}:
    sys.exit(f"{len(ops)} operations recorded of {seen}")
print("passed")
