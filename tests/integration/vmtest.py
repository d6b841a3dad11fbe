"""What the integration tests share: where things are, running programs bare and under libvmem, checks.

A test calls `check(condition, text)` for each thing it requires and `finish()` at its end; it fails if
any check failed or if there was none. `planted(name, function)` proves that a guard can fail: the
function must report a problem for an input that is known to be wrong.
"""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ["VMEM_TEST_BUILD"]).resolve()
LIBVMEM = BUILD / "cuda_hooks" / "libvmem.so"
DRIVER = BUILD / "tests" / "simgpu" / "driver" / "libcuda.so.1"
PROGRAMS = BUILD / "tests" / "integration"

_failed = 0
_checks = 0


def check(condition, text):
    global _failed, _checks
    _checks += 1
    if not condition:
        _failed += 1
        print(f"FAILED: {text}", flush=True)
    return bool(condition)


def planted(name, problems):
    """`problems` is what a guard reports for a planted fault: it must not be empty."""
    check(problems, f"the planted fault went unnoticed: {name}")


def finish():
    print(f"{_checks - _failed} of {_checks} checks passed")
    sys.exit(1 if _failed or not _checks else 0)


def environment(preload=True, driver=True, **extra):
    """Nothing of ours is inherited; keyword arguments are set as variables."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("VMEM_", "SIMGPU_", "LD_", "MESON"))}
    env["SIMGPU_PRESET"] = "titanx-64g"
    env["SIMGPU_MODE"] = "functional"
    env["SIMGPU_GRANULARITY"] = "65536"
    if driver:
        libs = [BUILD / "tests" / "simgpu" / d for d in ("driver", "runtime", "dnn", "blas")]
        env["LD_LIBRARY_PATH"] = ":".join(map(str, libs))
    if preload:
        runtimes = [r for r in os.environ.get("VMEM_TEST_RUNTIMES", "").split(":") if r]
        env["LD_PRELOAD"] = ":".join(runtimes + [str(LIBVMEM if preload is True else preload)])
    env.update({k: str(v) for k, v in extra.items() if v is not None})
    return env


def run(command, preload=True, driver=True, timeout=120, **extra):
    """The finished process: returncode, stdout and stderr as text."""
    return subprocess.run([str(c) for c in command], env=environment(preload, driver, **extra),
                          capture_output=True, text=True, errors="replace", timeout=timeout)


def lines_of_libvmem(text):
    return [line for line in text.splitlines() if line.startswith("libvmem[")]


def same_outcome(name, command, **extra):
    """Runs the program bare and under libvmem: output and exit status must be the same."""
    bare = run(command, preload=False, **{k: v for k, v in extra.items() if not k.startswith("VMEM_")})
    with_us = run(command, **extra)
    check(bare.returncode == with_us.returncode,
          f"{name}: exit status {bare.returncode} bare, {with_us.returncode} under libvmem: "
          f"{with_us.stderr[-500:]}")
    check(bare.stdout == with_us.stdout,
          f"{name}: bare it printed\n{bare.stdout}\nand under libvmem\n{with_us.stdout}\n{with_us.stderr}")
    return bare, with_us
