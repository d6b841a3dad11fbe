#!/usr/bin/env python3
"""Bad input: one clear line each, and the program is unharmed or ends by its own out-of-memory error."""
import os
import pathlib
import re
import stat
import sys
import tempfile

from vmtest import PROGRAMS, ROOT, check, finish, lines_of_libvmem, planted, run

sys.path.insert(0, str(ROOT / "tools"))
import xmacro  # noqa: E402

PROBE = PROGRAMS / "probe"
KNOBS = {r[1]: r for r in xmacro.rows(ROOT / "shim" / "knobs.def", "VM_KNOB")}

# A value that cannot be right, for each kind of knob.
BAD = {
    "FLAG": ["2", "maybe"],
    "COUNT": ["-1", "12abc", "99999999999", "0"],
    "BYTES": ["12 parsecs", "-5", "%"],
    "AMOUNT": ["120%", "0%", "twelve", "5GiBs", "99999999TiB", "-1"],
    "CHOICE": ["banana"],
}


def one_line(lines, *words):
    """Exactly one line of libvmem, and it has all the words."""
    return len(lines) == 1 and all(w in lines[0] for w in words)


def bad_values():
    """Every knob at once gets its n-th bad value: one line for each, and the defaults are used."""
    want = run([PROBE, "compute"], preload=False).stdout
    for n in range(max(len(v) for v in BAD.values())):
        values = {name: BAD[row[2]][n] for name, row in KNOBS.items() if n < len(BAD.get(row[2], []))}
        r = run([PROBE, "compute"], **values)
        lines = lines_of_libvmem(r.stderr)
        check(r.returncode == 0 and r.stdout == want, f"{values}: {r.stdout} {r.stderr}")
        check(len(lines) == len(values), f"{len(values)} bad values, {len(lines)} lines: {r.stderr}")
        for name, value in values.items():
            mine = [line for line in lines if f" {name}=" in line]
            check(one_line(mine, value, KNOBS[name][3] or "nothing"), f"{name}={value}: {mine}")
    # The defaults themselves, written out, are no reason for a line.
    r = run([PROBE, "compute"], **{name: row[3] for name, row in KNOBS.items() if row[3]})
    check(not lines_of_libvmem(r.stderr) and r.stdout == want, f"the defaults: {r.stderr}")
    planted("no line", not one_line([], "VMEM_BUDGET"))
    planted("two lines", not one_line(["VMEM_BUDGET", "VMEM_BUDGET"], "VMEM_BUDGET"))


def unknown_names():
    for name, near in [("VMEM_BUGDET", "VMEM_BUDGET"), ("VMEM_POLICIES", "VMEM_POLICY"),
                       ("VMEM_HOSTBUDGET", "VMEM_HOST_BUDGET"), ("VMEM_LOGFILE", "VMEM_LOG_FILE")]:
        r = run([PROBE, "compute"], **{name: "1"})
        check(one_line(lines_of_libvmem(r.stderr), name, near), f"{name}: {r.stderr}")
    r = run([PROBE, "compute"], VMEM_SOMETHING_ELSE_ENTIRELY="1")
    check(one_line(lines_of_libvmem(r.stderr), "VMEM_SOMETHING_ELSE_ENTIRELY"), r.stderr)


def unusable_settings():
    """Values that are well formed and cannot be had."""
    want = run([PROBE, "compute"], preload=False).stdout
    with tempfile.TemporaryDirectory() as folder:
        absent = pathlib.Path(folder) / "absent" / "file"
        for name, value, word in [
            ("VMEM_TRACE", absent, str(absent)),
            ("VMEM_STATS_FILE", absent, str(absent)),
            ("VMEM_LOG_FILE", absent, str(absent)),
            ("VMEM_LIBCUDA", absent, str(absent)),
            ("VMEM_LIBCUDA", "libcuda.so.1", "absolute"),
            ("VMEM_POLICY", "banana", "banana"),
            ("VMEM_BUDGET", "1000GiB", "VMEM_BUDGET"),
        ]:
            r = run([PROBE, "compute"], **{name: value})
            check(r.returncode == 0 and r.stdout == want, f"{name}={value}: {r.stdout} {r.stderr}")
            check(one_line(lines_of_libvmem(r.stderr), word), f"{name}={value}: {r.stderr}")
        link = pathlib.Path(folder) / "link"
        link.symlink_to(pathlib.Path(folder) / "target")
        r = run([PROBE, "compute"], VMEM_LOG_FILE=link, VMEM_LOG="info")
        check(r.stdout == want and not (pathlib.Path(folder) / "target").exists(), f"a link: {r.stderr}")


def too_small():
    """A budget below the largest working set of one operation: the program's own error, and why."""
    r = run([PROBE, "compute"], VMEM_BUDGET="128KiB")
    check(re.search(r"error 2\b", r.stdout) and r.returncode == 1, f"128KiB: {r.stdout} {r.stderr}")
    check(lines_of_libvmem(r.stderr), f"128KiB: no reason was given: {r.stdout} {r.stderr}")


def log_file():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "log-%p"
        r = run([PROBE, "compute"], VMEM_LOG_FILE=path, VMEM_LOG="info", VMEM_NONSENSE_HERE="1")
        files = list(pathlib.Path(folder).iterdir())
        check(not lines_of_libvmem(r.stderr), f"log file: {r.stderr}")
        check(len(files) == 1 and "VMEM_NONSENSE_HERE" in files[0].read_text(), f"log file: {files}")
        check(len(files) == 1 and os.stat(files[0]).st_mode & 0o777 == 0o600, "log file: not private")


def kind(path):
    return stat.S_IFMT(os.lstat(path).st_mode)


def replaced(paths):
    """Those that are not what they were."""
    return [str(path) for path, was in paths.items() if kind(path) != was]


def not_a_file():
    """Only a file is replaced: to rename one over a device would be the end of the device."""
    with tempfile.TemporaryDirectory() as folder:
        pipe, link, inner = (pathlib.Path(folder) / n for n in ("pipe", "link", "folder"))
        os.mkfifo(pipe)
        link.symlink_to("target")
        inner.mkdir()
        paths = {p: kind(p) for p in (pipe, link, inner, pathlib.Path("/dev/full"))}
        for name in ("VMEM_TRACE", "VMEM_STATS_FILE"):
            for path in paths:
                r = run([PROBE, "compute"], **{name: path})
                check(r.returncode == 0 and one_line(lines_of_libvmem(r.stderr), str(path)), f"{name}={path}: {r.stderr}")
        check(not replaced(paths), f"not what they were: {replaced(paths)}")
        check(sorted(os.listdir(folder)) == ["folder", "link", "pipe"], f"left behind: {os.listdir(folder)}")
        planted("a file in its place", replaced({inner: stat.S_IFREG}))
    r = run([PROBE, "compute"], VMEM_TRACE="/dev/null", VMEM_STATS_FILE="/dev/null")
    check(not lines_of_libvmem(r.stderr) and kind("/dev/null") == stat.S_IFCHR, f"the null device: {r.stderr}")


TESTS = [bad_values, unknown_names, unusable_settings, too_small, log_file, not_a_file]
if len(sys.argv) > 1:
    TESTS = [t for t in TESTS if t.__name__ in sys.argv[1:]]
for t in TESTS:
    t()
finish()
