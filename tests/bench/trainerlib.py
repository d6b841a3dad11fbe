"""Running the trainers of tests/trainers on the simulated GPU, bare and under libvmem.so."""
import dataclasses
import json
import pathlib
import re
import subprocess
import tempfile

import benchlib

TRAINERS = benchlib.BUILD / "tests" / "trainers"
NETS = benchlib.ROOT / "tests" / "trainers" / "nets"
GIB = 1 << 30


@dataclasses.dataclass
class Run:
    """What one run of a trainer printed and what the simulator and libvmem reported of it."""
    rc: int
    losses: list
    ms: list
    iterations: int
    checksum: str
    accuracy: str
    stdout: str
    stderr: str
    report: dict  # of the simulated GPU
    stats: dict   # of libvmem; {} when it was not there

    @property
    def out_of_memory(self):
        return self.rc != 0 and "out of memory" in self.stderr

    @property
    def numbers(self):
        """Everything that must not change under libvmem."""
        return (self.losses, self.checksum, self.accuracy)

    def why(self):
        """Last lines of the error output, for messages."""
        return " | ".join(self.stderr.strip().splitlines()[-3:])[:400]


def load_json(path):
    try:
        return json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError):
        return {}


def train(net, *args, preset="titanx-12g", mode="timing", preload=False, program="trainer",
          timeout=600, **env):
    """Runs `program nets/NET.net args`; env: VMEM_* and SIMGPU_* variables."""
    with tempfile.TemporaryDirectory(prefix="vmem-bench-") as tmp:
        report, stats = pathlib.Path(tmp, "report.json"), pathlib.Path(tmp, "stats.json")
        e = benchlib.sim_env(preset, mode, preload, SIMGPU_REPORT=report, **env)
        if preload:
            e.setdefault("VMEM_STATS_FILE", str(stats))
        cmd = [TRAINERS / program, NETS / f"{net}.net", *args]
        try:
            r = benchlib.run(cmd, e, timeout)
            rc, out, err = r.returncode, r.stdout, r.stderr
        except subprocess.TimeoutExpired as t:
            rc, out = -1, (t.stdout or b"").decode(errors="replace")
            err = f"no end within {timeout} s"
        lines = re.findall(r"^iter \d+(?: loss (\S+) ms (\S+))?$", out, re.M)
        checksum = re.search(r"^checksum (\w+)$", out, re.M)
        accuracy = re.search(r"^accuracy (\S+)$", out, re.M)
        return Run(rc, [a for a, _ in lines], [float(b) for _, b in lines if b], len(lines),
                   checksum.group(1) if checksum else "",
                   accuracy.group(1) if accuracy else "", out, err,
                   load_json(report), load_json(stats))


def sizes(net, *args, preset="titanx-64g"):
    """Bytes that the network needs by its shapes (trainer --sizes)."""
    r = train(net, *args, "--sizes", preset=preset)
    if r.rc != 0:
        raise RuntimeError(f"{net}: {r.why()}")
    return {k: int(v) for k, v in re.findall(r"^(\w+) (\d+)$", r.stdout, re.M)}
