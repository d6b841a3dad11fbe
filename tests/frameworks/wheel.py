"""Running the scripts with a wheel's Python on the simulated GPU: what rows.py and tests/bench/pytorch.py share."""
import json
import os
import pathlib
import re
import subprocess
import tempfile

import sim_env

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / os.environ.get("VMEM_BUILD_DIR", "build")
SCRIPTS = HERE / "scripts"


class Wheel:
    """A Python that has torch and torchvision."""

    def __init__(self, python):
        self.python = str(python)
        self.cuda = sim_env.cuda_major(self.python)

    def launch(self, command, vmem=False, timeout=400, apart=False, started=None, **settings):
        """Exit status, and the lines of output and log in the order of writing; `apart`: the output, then the log, where
        several processes write at a time (torchrun's write a line and its end by two calls, and another's line may
        come between). `started` is called with the process."""
        base = {k: v for k, v in os.environ.items() if not k.startswith(("VMEM_", "SIMGPU_", "PYTORCH_", "LD_"))}
        # Device addresses where real drivers put reservations: PyTorch's kernels are scanned by what a word can be.
        base.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", SIMGPU_PRESET="a100-40g", SIMGPU_LOW_SPACE="1")
        env = sim_env.environment(BUILD, self.cuda, vmem, base)
        env.update({k: str(v) for k, v in settings.items()})
        log = subprocess.PIPE if apart else subprocess.STDOUT
        with subprocess.Popen([self.python, *map(str, command)], env=env, stdout=subprocess.PIPE, stderr=log,
                              text=True, errors="replace") as process:
            try:
                if started:
                    started(process)
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return process.returncode, out.splitlines() + (err or "").splitlines()

    def script(self, name, *args, vmem=False, timeout=400, started=None, **settings):
        """One of tests/frameworks/scripts; also libvmem's counters, {} where it was not there."""
        with tempfile.TemporaryDirectory(prefix="vmem-wheel-") as folder:
            stats = pathlib.Path(folder, "stats.json")
            if vmem:
                settings.setdefault("VMEM_STATS_FILE", stats)
            status, lines = self.launch([SCRIPTS / f"{name}.py", "--device", "cuda", *args], vmem, timeout, started=started,
                                        **settings)
            try:
                return status, lines, json.loads(stats.read_text())
            except (OSError, ValueError):
                return status, lines, {}


def operations(trace):
    """For each operation of a trace the blocks that it names, each once: pairs of address and size."""
    blocks = {}
    with open(trace, encoding="utf-8") as f:
        for line in f:
            e = json.loads(line)
            if e.get("ev") in ("alloc", "block"):
                blocks[e["id"]] = int(e["addr"], 16), e["size"]
            elif e.get("ev") == "op":
                yield [blocks[b] for b in {a[0] for a in e.get("acc", [])}]


def peak_of(lines):
    """Bytes that PyTorch had allocated and reserved at most; None if the script did not come to its end."""
    found = re.search(r"^peak allocated (\d+) reserved (\d+)", "\n".join(lines), re.M)
    return (int(found[1]), int(found[2])) if found else None


def messages(lines, number):
    """(iterations printed before it, the line) for each message of libvmem of this number."""
    done, found = 0, []
    for line in lines:
        done += bool(re.match(r"iter \d", line))
        if re.match(rf"libvmem\[\d+\] \w+ {number}:", line):
            found.append((done, line))
    return found
