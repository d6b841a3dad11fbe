#!/usr/bin/env python3
"""Users of the CUDA driver other than PyTorch, bare and under libvmem.so: CuPy, Numba, Triton, JAX.

usage: others.py [--list] [ROW...]

Each row runs a program of tests/frameworks/others/ twice and requires the same output and exit status: on a
machine without a driver, and on the simulated GPU. Numba and Triton use the driver API alone, so they launch
there for real (their kernels do nothing); CuPy embeds NVIDIA's runtime, which refuses a driver that is not
NVIDIA's, so it fails as it does without libvmem; JAX falls back, or runs where the toolkit's libraries and our
stand-ins are put before it. The rows `train` run a loop of launches with 60 % of its memory, and require that
pages moved, that a plan was followed (not by JAX, see docs/compatibility.md) and that no byte changed.

The Python is VMEM_PYTHON_OTHERS, or an environment made in VMEM_CACHE (default ~/.cache/vmem) from others.txt.
Last line: N passed, N failed, N skipped.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
os.environ.setdefault("VMEM_TEST_BUILD", str(ROOT / os.environ.get("VMEM_BUILD_DIR", "build")))
sys.path.insert(0, str(HERE.parent / "integration"))
import sim_env  # noqa: E402
import vmtest  # noqa: E402

REQUIREMENTS = HERE / "others.txt"
# A budget in which the loop of work.py (12 blocks of 4 MiB) must move pages.
TIGHT = "30MiB"
# Where the libraries are that JAX's plugin loads and that no stand-in is for (cuFFT, cuSPARSE ...).
TOOLKIT = pathlib.Path("/usr/local/cuda/lib64")


class Skipped(Exception):
    pass


def make_environment():
    """An environment of these very packages; made once, kept by the name of what is in it."""
    given = os.environ.get("VMEM_PYTHON_OTHERS")
    if given:
        return given
    home = os.environ.get("VMEM_CACHE") or pathlib.Path(
        os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "vmem"
    named = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = pathlib.Path(home) / f"others-{named}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"making {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "-r", REQUIREMENTS], check=True)
        (folder / "complete").touch()
    return str(python)


def program(name, *args):
    return [PYTHON, HERE / "others" / f"{name}_probe.py", *args]


def variables(scratch, card):
    """Caches of compiled kernels go to the scratch folder, so that each row compiles for itself."""
    extra = {"TRITON_CACHE_DIR": scratch / "triton", "NUMBA_CACHE_DIR": scratch / "numba",
             "CUPY_CACHE_DIR": scratch / "cupy", "PYTHONWARNINGS": "ignore",
             "PYTHONDONTWRITEBYTECODE": "1"}
    if card:
        extra["SIMGPU_PRESET"] = "a100-40g"
        extra["LD_LIBRARY_PATH"] = vmtest.DRIVER.parent
    return extra


def same(name, card, scratch, *args):
    """The program bare and under libvmem.so; None if all is well, else what is not."""
    extra = variables(scratch, card)
    runs = [vmtest.run(program(name, *args), preload=preload, driver=card, timeout=280, **extra)
            for preload in (False, True)]
    bare, with_us = runs
    if bare.returncode < 0 or "Traceback" in bare.stderr and not bare.stdout:
        return f"bare it ended with {bare.returncode}: {bare.stderr[-800:]}"
    if (bare.returncode, bare.stdout) != (with_us.returncode, with_us.stdout):
        return (f"bare {bare.returncode}\n{bare.stdout}\nunder libvmem {with_us.returncode}\n"
                f"{with_us.stdout}\n{with_us.stderr[-800:]}")
    return None


def without_card(name):
    return lambda scratch: same(name, False, scratch)


def with_card(name, required=()):
    def row(scratch):
        problem = same(name, True, scratch)
        if problem or not required:
            return problem
        out = vmtest.run(program(name), timeout=280, **variables(scratch, True)).stdout
        missing = [word for word in required if word not in out]
        return f"{missing} not in\n{out}" if missing else None
    return row


def train(name):
    """Pages must move and a plan be followed; the program itself checks every byte."""
    def row(scratch):
        stats_file = scratch / "stats.json"
        r = vmtest.run(program(name, "train"), timeout=280, VMEM_BUDGET=TIGHT, VMEM_PLAN_WAIT=1,
                       VMEM_STATS_FILE=stats_file, SIMGPU_RACECHECK=1, **variables(scratch, True))
        if r.returncode or "wrong []" not in r.stdout:
            return f"ended with {r.returncode}: {r.stdout}{r.stderr[-800:]}"
        stats = json.loads(stats_file.read_text())
        if not stats["out_bytes"] or not stats["planned_iterations"]:
            return f"moved {stats['out_bytes']} bytes, {stats['planned_iterations']} planned iterations"
        return None
    return row


def jax_train(scratch):
    """JAX's plugin for CUDA itself, with our stand-ins for the libraries that would refuse the simulated driver."""
    if not (TOOLKIT / "libcusparse.so.12").exists():
        raise Skipped(f"JAX's plugin needs cuSPARSE and others, which are not in {TOOLKIT}")
    base = vmtest.environment(preload=False, driver=False)
    base.update({k: str(v) for k, v in variables(scratch, True).items()})
    # Blocks are JAX's buffers with this allocator; its search for the fastest kernels takes minutes here.
    base.update(XLA_PYTHON_CLIENT_ALLOCATOR="cuda_async", XLA_PYTHON_CLIENT_PREALLOCATE="false",
                XLA_FLAGS="--xla_gpu_autotune_level=0", TF_CPP_MIN_LOG_LEVEL="3", LD_LIBRARY_PATH=str(TOOLKIT))
    stats_file = scratch / "stats.json"
    outputs = []
    for vmem in (False, True):
        env = sim_env.environment(vmtest.BUILD, 13, vmem, base)
        if vmem:
            env.update(VMEM_BUDGET="60MiB", VMEM_STATS_FILE=str(stats_file))
        r = subprocess.run([PYTHON, HERE / "others" / "jax_train.py"], env=env, capture_output=True, text=True,
                           errors="replace", timeout=280)
        outputs.append((r.returncode, r.stdout))
        if r.returncode or "wrong []" not in r.stdout:
            return f"{'under libvmem' if vmem else 'bare'} it ended with {r.returncode}: {r.stdout}{r.stderr[-800:]}"
    if outputs[0] != outputs[1]:
        return f"bare {outputs[0]}, under libvmem {outputs[1]}"
    stats = json.loads(stats_file.read_text())
    return None if stats["out_bytes"] and stats["in_bytes"] else f"nothing moved: {stats}"


ROWS = {
    "cupy without a card": without_card("cupy"),
    "cupy": with_card("cupy"),
    "numba without a card": without_card("numba"),
    "numba": with_card("numba", ["copied True", "pinned 196608", "mapped 2000", "part 196308"]),
    "numba train": train("numba"),
    "triton without a card": without_card("triton"),
    "triton": with_card("triton", ["warps 4", "ValueError Pointer argument"]),
    "triton train": train("triton"),
    "jax without a card": without_card("jax"),
    "jax": with_card("jax"),
    "jax train": jax_train,
}


def main():
    global PYTHON
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1], description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all rows whose name begins so (default: all)")
    args = parser.parse_args()
    if args.list:
        print("\n".join(ROWS))
        return 0
    PYTHON = make_environment()
    rows = {n: f for n, f in ROWS.items() if not args.rows or any(n.startswith(r) for r in args.rows)}
    if not rows:
        parser.error("no such row; --list shows them")
    failed = skipped = 0
    for name, function in rows.items():
        with tempfile.TemporaryDirectory(prefix="vmem-others-") as scratch:
            try:
                problem = function(pathlib.Path(scratch))
            except Skipped as e:
                skipped += 1
                print(f"{name}: skipped, {e}", flush=True)
                continue
            except subprocess.TimeoutExpired as e:
                problem = f"no end within {e.timeout} s"
        failed += problem is not None
        print(f"{name}: {'passed' if problem is None else 'FAILED: ' + problem}", flush=True)
    print(f"{len(rows) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
