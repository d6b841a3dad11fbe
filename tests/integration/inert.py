#!/usr/bin/env python3
"""libvmem.so in processes that have no use for it, or that do unusual things: nothing changes."""
import json
import pathlib
import sys
import tempfile

from vmtest import BUILD, LIBVMEM, PROGRAMS, check, finish, lines_of_libvmem, planted, run, same_outcome

PROBE = PROGRAMS / "probe"
TRAINERS = BUILD / "tests" / "trainers"
SMALL = "4MiB"  # the probe's blocks are 6 MiB: pages must move


def quiet(name, result):
    check(not lines_of_libvmem(result.stderr), f"{name}: libvmem wrote {result.stderr}")


def no_cuda():
    for name, command in [
        ("bash and python", ["bash", "-c", "python3 -c 'print(1)'; echo $?"]),
        ("pipes", ["bash", "-c", "seq 1000 | sort -n | tail -1"]),
        ("python with threads", [sys.executable, "-c",
                                 "import threading; t=threading.Thread(target=print, args=('hi',)); "
                                 "t.start(); t.join()"]),
    ]:
        _, with_us = same_outcome(name, command)
        quiet(name, with_us)


def took_part(path):
    """The counters that libvmem wrote at the end of a process; None if it was not there."""
    try:
        return json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError):
        return None


def cuda_processes():
    with tempfile.TemporaryDirectory() as folder:
        for what in ["compute", "fork", "launcher", "exec", "deepbind", "query", "errors"]:
            stats = pathlib.Path(folder) / f"{what}-%p.json"
            same_outcome(f"probe {what}", [PROBE, what])
            same_outcome(f"probe {what}, paging", [PROBE, what], VMEM_BUDGET=SMALL, VMEM_POLICY="lru",
                         VMEM_STATS_FILE=stats)
            found = [took_part(p) for p in pathlib.Path(folder).glob(f"{what}-*.json")]
            moved = [s for s in found if s and s.get("out_bytes", 0) > 0]
            if what not in ("query", "errors"):
                check(moved, f"probe {what}: no process says that it moved anything: {found}")
    planted("a program that ends otherwise", run([PROBE, "compute"]).stdout != run([PROBE, "query"]).stdout)


def both_link_styles():
    net = pathlib.Path(__file__).resolve().parents[1] / "trainers" / "nets" / "lenet.net"
    args = [net, "--batch", 4, "--iters", 3, "--seed", 1]
    with tempfile.TemporaryDirectory() as folder:
        for name in ["trainer", "trainer-static"]:
            program = TRAINERS / name
            if not check(program.exists(), f"{program} was not built"):
                continue
            bare = run([program, *args], preload=False)
            stats = pathlib.Path(folder) / f"{name}.json"
            with_us = run([program, *args], VMEM_STATS_FILE=stats)
            sums = [[l for l in r.stdout.splitlines() if "checksum" in l or "loss" in l] for r in (bare, with_us)]
            sums = [[l.split(" ms ")[0] for l in s] for s in sums]
            check(bare.returncode == 0 and sums[0], f"{name}: bare it ended with {bare.stderr}")
            check(sums[0] == sums[1], f"{name}: {sums[0]} bare and {sums[1]} under libvmem {with_us.stderr}")
            check(took_part(stats), f"{name}: libvmem took no part")


def no_driver():
    """As on a machine without CUDA: the simulated driver is simply not to be found."""
    libs = ":".join(str(BUILD / "tests" / "simgpu" / d) for d in ("runtime", "dnn", "blas"))
    trainer = TRAINERS / "trainer"
    net = pathlib.Path(__file__).resolve().parents[1] / "trainers" / "nets" / "lenet.net"
    command = [trainer, net, "--iters", 1]
    bare = run(command, preload=False, driver=False, LD_LIBRARY_PATH=libs)
    with_us = run(command, driver=False, LD_LIBRARY_PATH=libs)
    check(bare.returncode == with_us.returncode and bare.stderr == with_us.stderr and bare.returncode,
          f"no driver: bare {bare.returncode} {bare.stderr}, under libvmem {with_us.returncode} {with_us.stderr}")
    code = ("import ctypes\n"
            "cu = ctypes.CDLL('libcuda.so.1')\n"
            "v = ctypes.c_int(-1)\n"
            "print(cu.cuDriverGetVersion(ctypes.byref(v)), v.value, cu.cuInit(0))\n"
            "n = ctypes.c_int(-1)\n"
            "print(cu.cuDeviceGetCount(ctypes.byref(n)), n.value)\n"
            "s = ctypes.c_char_p()\n"
            "print(cu.cuGetErrorName(303, ctypes.byref(s)), s.value)\n"
            "print(cu.cuGetErrorString(303, ctypes.byref(s)), s.value.decode())\n"
            "print(cu.cuGetErrorName(3, ctypes.byref(s)), s.value.decode())\n"
            "f = ctypes.c_void_p()\n"
            "print(cu.cuGetProcAddress(b'cuInit', ctypes.byref(f), 12000, ctypes.c_uint64(0)), bool(f.value))\n"
            "print(cu.cuGetProcAddress(b'cuNonsense', ctypes.byref(f), 12000, ctypes.c_uint64(0)), bool(f.value))\n")
    r = run([sys.executable, "-c", code], driver=False)
    check(r.stdout.split("\n")[:7] == ["0 0 303", "3 -1", "1 None", "0 there is no CUDA driver on this machine",
                                       "0 CUDA_ERROR_NOT_INITIALIZED", "0 True", "500 False"],
          f"no driver: {r.stdout} {r.stderr}")


def switched_off():
    with tempfile.TemporaryDirectory() as folder:
        for name, extra in [("VMEM_OFF", {"VMEM_OFF": 1}), ("VMEM_DENY", {"VMEM_DENY": "other:pro*"}),
                            ("VMEM_STRICT", {"VMEM_STRICT": 1, "VMEM_WARMUP": "x"})]:
            stats = pathlib.Path(folder) / f"{name}.json"
            same_outcome(name, [PROBE, "compute"], VMEM_STATS_FILE=stats, VMEM_BUDGET=SMALL, **extra)
            check(not stats.exists(), f"{name}: libvmem took part all the same")
        stats = pathlib.Path(folder) / "on.json"
        same_outcome("VMEM_DENY of another", [PROBE, "compute"], VMEM_STATS_FILE=stats, VMEM_DENY="probes:x*")
        check(stats.exists(), "a deny list of other names keeps libvmem out")


def never_itself():
    """Naming libvmem.so as the driver must not make it call itself."""
    r = run([PROBE, "compute"], VMEM_LIBCUDA=LIBVMEM)
    check(r.returncode == 0 and "itself" in r.stderr and "checksum" in r.stdout, f"itself: {r.stdout}{r.stderr}")
    with tempfile.TemporaryDirectory() as folder:
        link = pathlib.Path(folder) / "libcuda.so.1"
        link.symlink_to(LIBVMEM)
        r = run([sys.executable, "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"],
                driver=False, LD_LIBRARY_PATH=folder)
        check(r.stdout.strip() == "303", f"itself by the library path: {r.stdout}{r.stderr}")


TESTS = [no_cuda, cuda_processes, both_link_styles, no_driver, switched_off, never_itself]
if len(sys.argv) > 1:
    TESTS = [t for t in TESTS if t.__name__ in sys.argv[1:]]
for t in TESTS:
    t()
finish()
