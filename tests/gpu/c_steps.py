"""The kit's steps that need no Python framework: the measurements and the C trainers. A step yields rows, so
that one that runs out of time leaves those it had."""
import json
import re

from kitlib import median
from place import ROOT

NETS = ROOT / "tests" / "trainers" / "nets"
SHARES = (100, 60, 40)
GIB = 1 << 30
# Steps of `measure` that look at what kernels wrote: a simulated card keeps that in functional mode only.
JUDGES_CONTENTS = ("graphs", "host-numa")
# Networks whose blocks are much larger than a real card's pages, and what a simulated card computes in seconds.
REAL_NETS = [("vgg", ["--set", "depth=16", "--batch", 16]), ("resnet", ["--batch", 32]),
             ("lstm", ["--set", "hidden=1024", "--set", "layers=2", "--steps", 64, "--batch", 256])]
SMALL_NETS = [("vgg-small", ["--workspace", 1 << 16]),
              ("lstm", ["--set", "hidden=48", "--set", "layers=2", "--steps", 24, "--batch", 16])]


def measure(kit, step, vmem=False):
    """One step of the `measure` program: its lines, by name."""
    name = f"{step} under libvmem" if vmem else step
    functional = kit.place.simulated and step in JUDGES_CONTENTS
    r = kit.clock.run([kit.place.build / "tests" / "gpu" / "measure", step],
                      kit.place.c_environment(vmem, functional), 60, kit.log)
    rows = []
    for line in r.out.splitlines():
        try:
            rows.append({**json.loads(line), "vmem": vmem})
        except ValueError:
            continue
    if r.rc:
        rows.append({"name": f"{name}/ended", "unit": "", "value": f"status {r.rc}: {r.why()}", "vmem": vmem,
                     "failed": True})
    return rows


def measurements(kit):
    listed = kit.clock.run([kit.place.build / "tests" / "gpu" / "measure", "--list"], kit.place.c_environment(False),
                           20, kit.log)
    for line in listed.out.splitlines():
        step = line.split()[0]
        yield from measure(kit, step)
        if step in ("launch", "malloc"):
            yield from measure(kit, step, vmem=True)


def doctor(kit):
    env = kit.place.c_environment(False)
    r = kit.clock.run([kit.place.build / "tools" / "vmem", "doctor"], env, 60, kit.log)
    yield {"name": "vmem doctor", "result": "passed" if r.rc == 0 else f"FAILED: {r.why()}"}


def train(kit, net, args, vmem=False, functional=False, iters=10, **env):
    stats_file = kit.scratch / "stats.json"
    stats_file.unlink(missing_ok=True)
    if vmem:
        env["VMEM_STATS_FILE"] = stats_file
    r = kit.clock.run([kit.place.trainers / "trainer", NETS / f"{net}.net", *args, "--iters", iters],
                      kit.place.c_environment(vmem, functional, **env), 90, kit.log)
    r.losses = re.findall(r"^iter \d+ loss (\S+)", r.out, re.M)
    r.ms = [float(x) for x in re.findall(r"^iter \d+ loss \S+ ms (\S+)", r.out, re.M)]
    r.checksum = re.findall(r"^checksum (\w+)", r.out, re.M)
    r.stats = json.loads(stats_file.read_text()) if stats_file.exists() else {}
    return r


def largest_op(kit, net, args):
    r = kit.clock.run([kit.place.trainers / "trainer", NETS / f"{net}.net", *args, "--sizes"],
                      kit.place.c_environment(False), 60, kit.log)
    found = re.search(r"^largest_op_bytes (\d+)$", r.out, re.M)
    return int(found.group(1)) if found else 0


def trainers_ready(kit):
    """None, or why the C trainers cannot run here."""
    bad = kit.place.own_libraries(kit.place.trainers / "trainer")
    return "; ".join(bad) or None


def compare(native, r, budget, need):
    """A cell of a table of equalities."""
    if r.rc == 0 and r.losses == native.losses and r.checksum == native.checksum:
        return "equal" if "race:" not in r.err else "RACE"
    if r.out_of_memory and need > budget:
        return f"unfit: one operation needs {need} B"
    return f"FAILED: {r.why()}" if r.rc else "DIFFERENT"


def trainer_bits(kit):
    """Losses and weights of the C trainers, native and at budgets of 100, 60 and 40 % of the native peak."""
    reason = trainers_ready(kit)
    if reason:
        yield {"net": "all", "result": f"not run: {reason}"}
        return
    functional = kit.place.simulated
    for net, args in kit.choose(SMALL_NETS if functional else REAL_NETS):
        native = train(kit, net, args, functional=functional)
        recorded = train(kit, net, args, vmem=True, functional=functional, VMEM_POLICY="none", iters=3)
        peak = int(recorded.stats.get("peak_block_bytes", 0))
        if native.rc or not native.checksum or not peak:
            yield {"net": net, "result": f"FAILED natively: {native.why()} {recorded.why()}"}
            continue
        need = largest_op(kit, net, args)
        for share in SHARES:
            budget = peak * share // 100
            r = train(kit, net, args, vmem=True, functional=functional, VMEM_BUDGET=budget,
                      VMEM_PLAN_WAIT=1)
            yield {"net": net, "share": share, "budget_bytes": budget, "out_bytes": int(r.stats.get("out_bytes", 0)),
                   "planned": int(r.stats.get("planned_iterations", 0)), "result": compare(native, r, budget, need)}


def trainer_speed(kit):
    """VGG-16 with batch 256: native, and with 12 GiB."""
    reason = trainers_ready(kit)
    if reason:
        yield {"policy": "all", "result": f"not run: {reason}"}
        return
    args = ["--set", "depth=16", "--batch", 256]
    native = train(kit, "vgg", args, iters=5)
    native_ms = median(native.ms[1:])
    yield {"policy": "native", "ms": native_ms, "result": "passed" if native.rc == 0 else f"FAILED: {native.why()}"}
    for policy in ("auto", "vdnn-all"):
        r = train(kit, "vgg", args, vmem=True, VMEM_POLICY=policy, VMEM_BUDGET=12 * GIB)
        planned = min(int(r.stats.get("planned_iterations", 0)), max(len(r.ms) - 1, 0))
        ms = median(r.ms[-planned:]) if planned else float("nan")
        same = r.losses[:len(native.losses)] == native.losses
        yield {"policy": policy, "ms": ms, "slowdown": ms / native_ms, "planned": planned,
               "out_bytes": int(r.stats.get("out_bytes", 0)),
               "result": f"FAILED: {r.why()}" if r.rc else "passed" if same and planned else
               "DIFFERENT" if not same else "FAILED: not planned"}
