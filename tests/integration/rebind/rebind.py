"""A trainer in the habit of Python programs (the new block is bound before the old one goes) under
budgets that do not fit: same bits as bare, and a plan over two of its iterations, which count as two."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ["VMEM_TEST_BUILD"])
SIM = BUILD / "tests" / "simgpu"


def run(budget=None, policy="auto", iterations=12):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VMEM_", "SIMGPU_"))}
    env["LD_LIBRARY_PATH"] = ":".join(str(SIM / d) for d in ("driver", "runtime", "dnn", "blas"))
    env.update(SIMGPU_PRESET="titanx-12g", SIMGPU_MODE="functional", SIMGPU_GRANULARITY="16384",
               SIMGPU_RACECHECK="1")
    cmd = [str(BUILD / "tests" / "integration" / "rebind"), str(iterations)]
    if budget:
        cmd = [str(BUILD / "tools" / "vmem"), "run", "--budget", budget, "--policy", policy, "--log",
               "info", "--", *cmd]
    with tempfile.TemporaryDirectory() as folder:
        stats = pathlib.Path(folder, "stats.json")
        r = subprocess.run(cmd, env=env | {"VMEM_STATS_FILE": str(stats)}, capture_output=True, text=True,
                           timeout=120)
        if r.returncode != 0:
            sys.exit(f"budget {budget}, {policy}: status {r.returncode}: {r.stderr}")
        r.stats = json.loads(stats.read_text()) if budget else {}
    return r


bare = run()
if bare.stdout.count("iter") != 12 or run(iterations=11).stdout.splitlines()[-1] == bare.stdout.splitlines()[-1]:
    sys.exit("the program does not train: its weights do not depend on the iterations")
for policy in ("auto", "lru"):
    for budget in ("6MiB", "3MiB", "2MiB"):
        r = run(budget, policy)
        if r.stdout != bare.stdout:
            sys.exit(f"budget {budget}, {policy}: other bits\n{r.stdout}\n{bare.stdout}\n{r.stderr}")
        found = re.search(r"iteration found: (\d+) operations", r.stderr)
        plan = re.search(r"plan by auto: (\d+) operations", r.stderr)
        if policy == "auto" and (not found or not plan or int(plan[1]) != 2 * int(found[1])):
            sys.exit(f"budget {budget}: no plan over two iterations\n{r.stderr}")
        if policy == "auto" and not 10 <= r.stats["iterations"] <= 12:
            sys.exit(f"budget {budget}: {r.stats['iterations']} iterations counted instead of 12")
print("passed")
