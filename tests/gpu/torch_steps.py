"""The kit's steps with PyTorch: the scripts of tests/frameworks/scripts, unmodified."""
import json
import re

from kitlib import LATE, OutOfTime, median
from place import ROOT

SCRIPTS = ROOT / "tests" / "frameworks" / "scripts"
ALTERNATIVES = ROOT / "tests" / "gpu" / "alternatives.py"
SHARES = (100, 60, 40)
GIB = 1 << 30
# PyTorch has deterministic algorithms for all that these do (not for VGG-16's pooling and the U-Net's loss).
BITS = [("resnet50", 32), ("gpt2", 4), ("lstm", 64)]
SPEED = [("resnet50", 128), ("gpt2", 8)]
ITERATIONS = 12


def ready(kit):
    """None, or why PyTorch cannot run here."""
    try:
        env = kit.place.torch_environment(False)
    except SystemExit as e:  # what sim_env.py says of a Python without torch
        return str(e)
    r = kit.clock.run([kit.place.python, "-c", "import torch; print(torch.__version__, torch.version.cuda, "
                       "torch.cuda.is_available())"], env, 120, kit.log)
    if r.rc:
        return f"{kit.place.python} has no PyTorch: {r.why()}"
    version, cuda, available = r.out.split()[-3:]
    kit.facts["torch"] = f"{version} (CUDA {cuda})"
    return None if available == "True" else f"PyTorch {version} sees no GPU"


def train(kit, script, batch, *more, vmem=False, way=None, memory=None, iterations=ITERATIONS, limit=120, **env):
    """A script's run; `way` is one of alternatives.py."""
    stats_file = kit.scratch / "stats.json"
    stats_file.unlink(missing_ok=True)
    if vmem:
        env["VMEM_STATS_FILE"] = stats_file
    wrapper = [ALTERNATIVES, way, *(["--memory", memory] if memory else [])] if way else []
    # The tiny networks are little but weights, and an optimizer that names them all in one launch needs them at once.
    size = ["--size", "tiny", "--implementation", "loop"] if kit.place.simulated else []
    r = kit.clock.run([kit.place.python, *wrapper, SCRIPTS / f"{script}.py", "--batch", batch, "--iterations",
                       iterations, *size, *more], kit.place.torch_environment(vmem, **env), limit, kit.log)
    lines = re.findall(r"^iter \d+ loss (\S+) ms (\S+) cpu (\S+)$", r.out, re.M)
    r.losses = [loss for loss, _, _ in lines]
    r.ms = median(float(ms) for _, ms, _ in lines[len(lines) // 2:])
    r.cpu = median(float(cpu) for _, _, cpu in lines[len(lines) // 2:])
    r.peak = int((re.findall(r"^peak allocated (\d+)", r.out, re.M) or [0])[0])
    r.checksum = re.findall(r"^checksum (\w+)", r.out, re.M)
    r.stats = json.loads(stats_file.read_text()) if stats_file.exists() else {}
    r.good = r.rc == 0 and len(lines) == iterations and r.out.rstrip().endswith("done")
    return r


def verdict(native, r):
    if not r.good:
        return "out of memory" if r.out_of_memory else f"FAILED: {r.why()}"
    return "equal" if (r.losses, r.checksum) == (native.losses, native.checksum) else "DIFFERENT"


def torch_bits(kit):
    """Losses and weights with deterministic algorithms, native and at budgets of the native peak."""
    reason = ready(kit)
    if reason:
        yield {"script": "all", "result": f"not run: {reason}"}
        return
    for script, batch in kit.choose(BITS):
        native = train(kit, script, batch, "--deterministic", "--checksum")
        if not native.good or not native.checksum or not native.peak:
            yield {"script": script, "result": f"FAILED natively: {native.why()}"}
            continue
        for share in SHARES:
            budget = native.peak * share // 100
            r = train(kit, script, batch, "--deterministic", "--checksum", vmem=True, VMEM_BUDGET=budget,
                      VMEM_PLAN_WAIT=1)
            yield {"script": script, "share": share, "budget_bytes": budget,
                   "native_ms": native.ms, "ms": r.ms, "native_cpu_ms": native.cpu, "cpu_ms": r.cpu,
                   "out_bytes": int(r.stats.get("out_bytes", 0)),
                   "planned": int(r.stats.get("planned_iterations", 0)), "result": verdict(native, r)}


def torch_speed(kit):
    """The same batch natively, with libvmem in half the memory, by recomputation, by offload hooks."""
    reason = ready(kit)
    if reason:
        yield {"script": "all", "result": f"not run: {reason}"}
        return
    for script, batch in kit.choose(SPEED):
        native = train(kit, script, batch, way="native")
        yield {"script": script, "batch": batch, "way": "native", "ms": native.ms, "cpu_ms": native.cpu,
               "peak_bytes": native.peak, "result": "passed" if native.good else f"FAILED: {native.why()}"}
        if not native.good:
            continue
        ways = [("libvmem, 50 %", {"vmem": True, "VMEM_BUDGET": native.peak // 2}),
                ("libvmem, no limit", {"vmem": True}),
                ("checkpoint", {"way": "checkpoint"}), ("offload", {"way": "offload"})]
        for name, how in ways:
            r = train(kit, script, batch, **how)
            peak = r.peak or int(r.stats.get("peak_device_bytes", 0))
            yield {"script": script, "batch": batch, "way": name, "ms": r.ms, "cpu_ms": r.cpu,
                   "slowdown": r.ms / native.ms, "peak_bytes": peak,
                   "result": "passed" if r.good else "out of memory" if r.out_of_memory else f"FAILED: {r.why()}"}


def largest(trial, first, most):
    """The largest batch for which `trial` succeeds, to within an eighth, and whether that was the end of the search:
    a trial may raise OutOfTime. 0 if even the first does not succeed."""
    good, bad = 0, None
    batch = first
    try:
        while bad is None and batch <= most:
            if trial(batch):
                good, batch = batch, batch * 2
            else:
                bad = batch
        while good and bad and bad - good > max(1, good // 8):
            middle = (good + bad) // 2
            good, bad = (middle, bad) if trial(middle) else (good, middle)
    except OutOfTime:
        return good, False
    return good, bad is not None


def torch_batch(kit):
    """The largest batch of ResNet-50 in so much memory, natively and with libvmem."""
    reason = ready(kit)
    if reason:
        yield {"way": "all", "result": f"not run: {reason}"}
        return
    memory = (1 if kit.place.simulated else 6) * GIB
    natively = None
    ways = [("native", {"way": "native", "memory": memory}), ("libvmem", {"vmem": True, "VMEM_BUDGET": memory})]
    for name, how in ways:
        tried = []
        until = kit.clock.left() * (0.4 if natively is None else 0)  # what is left when this way has had its share

        def trial(batch):
            if kit.clock.left() < until:
                raise OutOfTime
            r = train(kit, "resnet50", batch, iterations=3, limit=60, **how)
            if not r.good and not r.out_of_memory:
                tried.append({"batch": batch, "status": r.rc, "result": r.why()})
                raise OutOfTime
            tried.append({"batch": batch, "ms": r.ms, "result": "fits" if r.good else "out of memory"})
            return r.good
        found, ended = largest(trial, natively or 32, 8192)
        crashed = tried and not ended and tried[-1].get("status", 0) not in (0, LATE)
        result = "passed" if ended else "at least: no time to look further"
        yield {"script": "resnet50", "memory_bytes": memory, "way": name, "largest_batch": found, "tried": tried,
               "gain": found / natively if natively else None,
               "result": result if found and not crashed else f"FAILED: {tried[-1]['result'] if tried else 'no time'}"}
        natively = found
