"""Where the kit runs: a real GPU or the simulated one; libraries, Python, environments of its programs."""
import glob
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "frameworks"))
import sim_env  # noqa: E402

STAND_INS = ["driver", "runtime", "dnn", "blas", "blaslt", "cupti"]


def usual_folders(python):
    """Where CUDA's libraries lie: the library path, the toolkit, and the wheels beside this Python's torch."""
    folders = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    for pattern in ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib", "/usr/local/cuda-*/lib64",
                    "/usr/local/cuda/extras/CUPTI/lib64",
                    "/opt/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"):
        folders += sorted(glob.glob(pattern), reverse=True)
    where = "import sysconfig; print(sysconfig.get_path('purelib')); print(sysconfig.get_path('platlib'))"
    try:
        found = subprocess.run([python, "-c", where], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        found = ""
    for packages in dict.fromkeys(found.split()):
        folders += sorted(glob.glob(f"{packages}/nvidia/*/lib")) + [f"{packages}/torch/lib"]
    return [f for f in folders if os.path.isdir(f)]


class Place:
    """One of the two; `simulated` says which."""

    def __init__(self, build, python, simulated, preset):
        self.build, self.python = pathlib.Path(build).resolve(), python
        self.simulated, self.preset = simulated, preset
        self.libvmem = self.build / "cuda_hooks" / "libvmem.so"
        self.trainers = self.build / "tests" / "trainers"
        self.missing = []  # what the machine lacks, in words
        self.library_path = self._library_path()

    def _library_path(self):
        """Folders in which the C programs find their libraries."""
        if self.simulated:
            return [str(self.build / "tests" / "simgpu" / d) for d in STAND_INS]
        folders = usual_folders(self.python)
        for name in ("libcudart.so.13", "libcublas.so.13", "libcudnn.so.9"):
            if not any(os.path.exists(os.path.join(f, name)) for f in folders):
                self.missing.append(f"{name} was not found: the C trainers cannot run (LD_LIBRARY_PATH)")
        return folders

    def base(self):
        return {k: v for k, v in os.environ.items()
                if not k.startswith(("VMEM_", "SIMGPU_")) and k not in ("LD_PRELOAD", "PYTORCH_NO_CUDA_MEMORY_CACHING")}

    def c_environment(self, vmem, functional=False, **extra):
        """Of a C program. `functional`: a simulated card computes, with small pages, and checks for races."""
        env = self.base()
        env["LD_LIBRARY_PATH"] = ":".join(self.library_path)
        if vmem:
            env["LD_PRELOAD"] = str(self.libvmem)
        if self.simulated:
            env["SIMGPU_PRESET"] = "h200-141g" if functional else self.preset
            if functional:
                env.update(SIMGPU_MODE="functional", SIMGPU_GRANULARITY="4096", SIMGPU_RACECHECK="1")
        env.update({k: str(v) for k, v in extra.items()})
        return env

    def torch_environment(self, vmem, **extra):
        """Of a PyTorch program: its own libraries, or the stand-ins for them."""
        env = self.base()
        if self.simulated:
            env.update(SIMGPU_PRESET=self.preset, OMP_NUM_THREADS="1")
            env = sim_env.environment(self.build, sim_env.cuda_major(self.python), vmem, env)
        elif vmem:
            env["LD_PRELOAD"] = str(self.libvmem)
        env.update({k: str(v) for k, v in extra.items()})
        return env

    def own_libraries(self, program):
        """What stands against the program running with the libraries that are meant, in the loader's words: libraries
        that are absent and, on a real GPU, the stand-ins that it was linked with. [] if nothing does."""
        env = {**self.c_environment(False), "LD_TRACE_LOADED_OBJECTS": "1"}
        out = subprocess.run([str(program)], env=env, capture_output=True, text=True, timeout=60).stdout
        stand_ins = self.build / "tests" / "simgpu"
        bad = []
        for line in out.splitlines():
            found = re.search(r"=> (/.*) \(0x", line)
            if "not found" in line or (found and not self.simulated and
                                       pathlib.Path(found.group(1)).resolve().is_relative_to(stand_ins)):
                bad.append(line.strip())
        return bad

    def describe(self):
        """Card, driver and versions, for the head of the table."""
        if self.simulated:
            return {"card": f"simulated {self.preset}", "driver": "simulated"}
        found = device(self.build, self.c_environment(False)) or {}
        facts = {"card": f"{found.get('device/name')}, {found.get('device/memory', 0) / (1 << 30):.0f} GiB",
                 "driver": f"of CUDA {found.get('device/driver-api', 0) / 1000:g}"}
        try:  # the kernel's part says its version here; a container may not
            text = pathlib.Path("/proc/driver/nvidia/version").read_text()
            facts["kernel module"] = re.search(r"\d+\.\d+(\.\d+)?", text).group(0)
        except (OSError, AttributeError):
            pass
        return facts


def device(build, env):
    """What the driver says of its first card, by the names of `measure device`; None where there is none."""
    try:
        r = subprocess.run([pathlib.Path(build) / "tests" / "gpu" / "measure", "device"], env=env,
                           capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [json.loads(line) for line in r.stdout.splitlines()] if r.returncode == 0 else []
    return {line["name"]: line["value"] for line in lines} or None


def real_gpu(build):
    found = device(build, dict(os.environ))
    return found is not None and "(simulated)" not in found["device/name"]
