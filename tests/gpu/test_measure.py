"""The measurements, rehearsed on the simulated GPU: every step ends, says something, and says what is so."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from vmtest import BUILD, check, finish, run  # noqa: E402

MEASURE = BUILD / "tests" / "gpu" / "measure"
LIBRARIES = ":".join(str(BUILD / "tests" / "simgpu" / d) for d in ("driver", "cupti"))


def measure(step, **extra):
    """{name: line} of one step."""
    extra = {"SIMGPU_MODE": "timing", "SIMGPU_PRESET": "a100-40g", "LD_LIBRARY_PATH": LIBRARIES,
             "SIMGPU_GRANULARITY": None, **extra}
    r = run([MEASURE, step], preload=extra.pop("preload", False), **extra)
    check(r.returncode == 0, f"{step} {extra}: ended with {r.returncode}: {r.stderr[-400:]}")
    check("race" not in r.stderr and "undefined" not in r.stderr, f"{step}: {r.stderr[:400]}")
    found = {}
    for line in r.stdout.splitlines():
        entry = json.loads(line)
        check(entry["name"] not in found, f"{step}: {entry['name']} is there twice")
        found[entry["name"]] = entry
    check(found, f"{step} found nothing")
    return found


def value(found, name):
    return found.get(name, {}).get("value")


def number(found, name):
    return found.get(name, {}).get("median", float("nan"))


LISTED = run([MEASURE, "--list"], preload=False)
STEPS = [line.split()[0] for line in LISTED.stdout.splitlines()]
check(len(STEPS) == 14, f"steps: {STEPS}")
FOUND = {step: measure(step) for step in STEPS if step != "host"}  # host: seconds of touching memory

# The simulated card's own figures come back: its link, its engines, its rule about unmapping.
COPIES = FOUND["copies"]
check(value(COPIES, "copies/engines") == 3, "an A100 has three copy engines")
check(24 < number(COPIES, "copies/in/alone/262144KiB") < 27, "a preset's link of 25.5 GB/s")
check(number(COPIES, "copies/in/both-ways/262144KiB") < 0.8 * number(COPIES, "copies/in/alone/262144KiB"),
      "copies both ways share the link")
for SYNC, WAITS in ((0, "no"), (1, "yes")):
    BUSY = measure("vmm-busy", SIMGPU_UNMAP_SYNC=SYNC)
    check(value(BUSY, "vmm/unmap/waits-for-a-kernel") == WAITS, f"unmap, SIMGPU_UNMAP_SYNC={SYNC}")
    check(value(BUSY, "vmm/create/waits-for-a-kernel") == "no", "create does not wait")
check(FOUND["mappings"].get("mappings/one-more-with-100000"), "100,000 mappings")
check(value(FOUND["tensormap"], "tensormap/word-0") == "is the address", "the tensor map's address")
check(value(FOUND["params"], "params/function") == "CUDA_SUCCESS", "parameters of a function")
check(value(FOUND["pointers"], "pointers/mapped/MAPPED") == "CUDA_SUCCESS 0x1", "a mapped address")
check(value(FOUND["pointers"], "pointers/reserved-unmapped/MAPPED") == "CUDA_SUCCESS 0", "an unmapped address")

# What kernels leave behind, where the simulated card keeps contents.
REAL = {"SIMGPU_MODE": "functional", "SIMGPU_RACECHECK": 1}
GRAPHS = measure("graphs", **REAL)
check(value(GRAPHS, "graphs/replay/other-memory-at-the-same-address") == "right", "replay over other memory")
check(value(GRAPHS, "graphs/capture/relaxed/end") == "CUDA_SUCCESS", "allocations in a relaxed capture")
check(value(GRAPHS, "graphs/capture/global/cuMemAlloc") == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
      "an allocation in a global capture")
NUMA = measure("host-numa", **REAL)
check(value(NUMA, "host-numa/contents/host-memory-at-the-same-address") == "right", "host memory by a kernel")
NONE = measure("host-numa", SIMGPU_HOST_NUMA=0, **REAL)
check(value(NONE, "host-numa/create") != "CUDA_SUCCESS", "refused host-located memory is said to be")

# Under libvmem.so the launches and allocations are served and nothing else changes.
SERVED = {step: measure(step, preload=True) for step in ("launch", "malloc")}
for STEP, LINES in SERVED.items():
    check(LINES.keys() == FOUND[STEP].keys(), f"{STEP} under libvmem.so")


def growth():
    """How many times as much a launch of 1,365 blocks costs at least as one of 167: about 12, or 40 if quadratic."""
    found = measure("launch", preload=True)
    return found["launch/32KB-of-parameters"]["min"] / found["launch/4KB-of-parameters"]["min"]


GROWTH = min(growth() for _ in range(3))  # the best of three, as the machine may be busy
check(GROWTH < 22, f"1,365 blocks cost {GROWTH:.0f} times what 167 do")
finish()
