"""The vmem command, as a person uses it. usage: test_vmem.py NAME (a test function without test_)."""
import csv
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ["VMEM_TEST_BUILD"])
SOURCE = pathlib.Path(os.environ["VMEM_TEST_SOURCE"])
VMEM = BUILD / "tools" / "vmem"
LIB = BUILD / "cuda_hooks" / "libvmem.so"
CORPUS = SOURCE / "tests" / "fuzz" / "corpus" / "trace"
TRACE = CORPUS / "lenet-eager.jsonl"


def clean_env(**extra):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("VMEM_", "SIMGPU_", "PYTORCH_")) and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    env.update(extra)
    return env


def sim_env(**extra):
    sim = BUILD / "tests" / "simgpu"
    return clean_env(LD_LIBRARY_PATH=":".join(str(sim / d) for d in ("driver", "runtime", "dnn", "blas")),
                     SIMGPU_PRESET="titanx-12g", SIMGPU_MODE="timing", **extra)


def vmem(*args, env=None):
    return subprocess.run([str(VMEM), *map(str, args)], env=env or clean_env(), capture_output=True,
                          text=True, timeout=120)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def expect_refused(result, status, text):
    """One line on stderr that holds the text, nothing on stdout."""
    expect(result.returncode == status, f"status {result.returncode}, not {status}: {result.stderr}")
    expect(result.stderr.count("\n") == 1, f"not one line: {result.stderr!r}")
    expect(text in result.stderr, f"{text!r} is not in {result.stderr!r}")
    expect(result.stdout == "", f"stdout: {result.stdout!r}")


# ---- vmem run ----------------------------------------------------------------------------------

def child_env(*options, env=None):
    r = vmem("run", *options, "--", "env", "-0", env=env)
    expect(r.returncode == 0, r.stderr)
    return dict(e.split("=", 1) for e in r.stdout.split("\0") if "=" in e)


def test_run_sets_what_it_was_told():
    env = child_env("--budget", "12GiB", "--policy=lru", "--host-budget", "60%")
    expect(env["LD_PRELOAD"] == str(LIB), env["LD_PRELOAD"])
    expect(env["VMEM_BUDGET"] == "12GiB" and env["VMEM_POLICY"] == "lru" and env["VMEM_HOST_BUDGET"] == "60%",
           "a knob is not set")
    expect(env["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1", "PyTorch's caching stays on")
    expect("VMEM_TRACE" not in env, "a knob is set that was not asked for")


def test_run_keeps_what_was_there():
    with tempfile.TemporaryDirectory() as d:
        other = pathlib.Path(d) / "other.so"
        subprocess.run(["cc", "-shared", "-o", str(other), "-x", "c", "/dev/null"], check=True)
        env = child_env(env=clean_env(LD_PRELOAD=str(other), VMEM_BUDGET="1GiB", VMEM_LOG="info",
                                      PYTORCH_NO_CUDA_MEMORY_CACHING="0"))
        expect(env["LD_PRELOAD"] == f"{LIB}:{other}", env["LD_PRELOAD"])
        expect(env["VMEM_BUDGET"] == "1GiB" and env["VMEM_LOG"] == "info", "a knob was changed")
        expect(env["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "0", "the user's choice was changed")
        twice = child_env(env=clean_env(LD_PRELOAD=f"{other}:{LIB}"))
        expect(twice["LD_PRELOAD"].count("libvmem.so") == 1, "the library is listed twice")


def test_run_leaves_pytorch_alone_when_told():
    expect("PYTORCH_NO_CUDA_MEMORY_CACHING" not in child_env("--torch", "0"), "--torch 0 is not heard")


def test_run_passes_on_the_exit_status():
    expect(vmem("run", "sh", "-c", "exit 41").returncode == 41, "exit status lost")
    expect(vmem("run", "sh", "-c", "kill -9 $$").returncode == -9, "signal lost")
    r = vmem("run", "sh", "-c", "echo out; echo err >&2; cat")
    expect(r.stdout == "out\n" and r.stderr == "err\n", "output changed")


def test_run_refuses_with_one_line():
    expect_refused(vmem("run", "--budget", "12 apples", "--", "true"), 2, "--budget cannot be \"12 apples\"")
    expect_refused(vmem("run", "--log", "loud", "true"), 2, "error|warn|info|debug")
    expect_refused(vmem("run", "--warmup", "0", "true"), 2, "--warmup cannot be \"0\"")
    expect_refused(vmem("run", "--policy", "best", "true"), 2, "there are auto pool vdnn-all")
    expect_refused(vmem("run", "--bugdet", "1G", "true"), 2, "unknown option '--bugdet'")
    expect_refused(vmem("run", "-x", "true"), 2, "unknown option '-x'")
    expect_refused(vmem("run", "--budget"), 2, "needs a value")
    expect_refused(vmem("run", "--budget", "1G"), 2, "which program?")
    expect_refused(vmem("run", "/no/such/program"), 127, "cannot run '/no/such/program'")
    expect_refused(vmem("run", "/etc/passwd"), 126, "cannot run '/etc/passwd'")
    expect_refused(vmem("run", "--lib", "/no/lib.so", "true"), 1, "/no/lib.so")


def test_run_serves_a_trainer():
    with tempfile.TemporaryDirectory() as d:
        trace = pathlib.Path(d) / "t.jsonl"
        net = SOURCE / "tests" / "trainers" / "nets" / "lenet.net"
        r = vmem("run", "--trace", trace, "--policy", "none", "--warmup", "1000",
                 BUILD / "tests" / "trainers" / "trainer", net, "--iters", "4", env=sim_env())
        expect(r.returncode == 0, r.stderr)
        expect(trace.stat().st_mode & 0o777 == 0o600, "others may read the trace")
        out = vmem("trace", trace)
        expect(re.search(r"^iterations  4 of \d+ ops each", out.stdout, re.M), out.stdout + out.stderr)


# ---- vmem trace --------------------------------------------------------------------------------

def peak_allocated(path):
    """The peak over the whole file, straight from its lines."""
    live = peak = 0
    sizes = {}
    for text in path.read_text().splitlines():
        e = json.loads(text)
        if e.get("ev") in ("alloc", "block"):
            sizes[e["id"]] = e["size"]
            live += e["size"]
        elif e.get("ev") == "free":
            live -= sizes[e["id"]]
        peak = max(peak, live)
    return peak


def in_bytes(text):
    number, unit = text.split()
    return float(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]


def test_trace_agrees_with_the_file():
    for path in CORPUS.iterdir():
        r = vmem("trace", path)
        expect(r.returncode == 0, r.stderr)
        shown = in_bytes(re.search(r"^allocated   (\S+ \S+) at most", r.stdout, re.M).group(1))
        real = peak_allocated(path)
        expect(abs(shown - real) <= 0.006 * real, f"{path.name}: {shown} shown, {real} in the file")
        lines = path.read_text().splitlines()
        ops = sum(json.loads(x).get("ev") == "op" for x in lines)
        expect(f"{ops} ops" in r.stdout.splitlines()[0], r.stdout.splitlines()[0])


def test_trace_says_what_a_budget_asks():
    full = vmem("trace", TRACE, "--budget", "100%").stdout
    expect("it fits: nothing has to move" in full, full)
    half = vmem("trace", TRACE, "--budget", "60%").stdout
    expect("has to be away" in half and "at least" in half, half)
    tiny = vmem("trace", TRACE, "--budget", "1K").stdout
    expect("alone needs" in tiny and "cannot run" in tiny, tiny)


def test_trace_writes_buffers():
    with tempfile.TemporaryDirectory() as d:
        out = pathlib.Path(d) / "b.csv"
        r = vmem("trace", TRACE, "--buffers", out)
        expect(r.returncode == 0, r.stderr)
        rows = list(csv.DictReader(out.open()))
        ops = int(re.search(r"of (\d+) ops each", r.stdout).group(1))
        expect(rows and all(0 <= int(x["lower"]) < int(x["upper"]) <= ops for x in rows), "a row is wrong")
        curve = [sum(int(x["size"]) for x in rows if int(x["lower"]) <= t < int(x["upper"]))
                 for t in range(ops)]
        shown = in_bytes(re.search(r"^allocated   (\S+ \S+) at most", r.stdout, re.M).group(1))
        expect(abs(max(curve) - shown) <= 0.006 * shown, f"{max(curve)} in the CSV, {shown} shown")


def test_trace_writes_a_chrome_trace():
    with tempfile.TemporaryDirectory() as d:
        out = pathlib.Path(d) / "c.json"
        r = vmem("trace", TRACE, "--chrome", out)
        expect(r.returncode == 0, r.stderr)
        events = json.loads(out.read_text())["traceEvents"]
        slices = [e for e in events if e["ph"] == "X"]
        ops = int(re.search(r"of (\d+) ops each", r.stdout).group(1))
        expect(len(slices) == ops and all(e["name"] and e["dur"] >= 0 for e in slices), "slices are wrong")
        ends = [e["ts"] + e["dur"] for e in slices]
        expect(all(abs(a - b["ts"]) < 1e-6 for a, b in zip(ends, slices[1:])), "slices overlap")
        peak = max(sum(e["args"].values()) for e in events if e["ph"] == "C")
        shown = in_bytes(re.search(r"^allocated   (\S+ \S+) at most", r.stdout, re.M).group(1))
        expect(abs(peak - shown) <= 0.006 * shown, f"{peak} in the counters, {shown} shown")
        late = vmem("trace", TRACE, "--chrome", "/no/such/folder/c.json")
        expect(late.returncode == 1 and "/no/such" in late.stderr, "no line")


def test_trace_writes_a_memory_snapshot():
    lines = [json.loads(x) for x in TRACE.read_text().splitlines()]
    size = {x["id"]: x["size"] for x in lines if x.get("ev") in ("block", "alloc")}
    freed = [x["id"] for x in lines if x.get("ev") == "free"]
    with tempfile.TemporaryDirectory() as d:
        out = pathlib.Path(d) / "s.pickle"
        r = vmem("trace", TRACE, "--memory-viz", out)
        expect(r.returncode == 0, r.stderr)
        snapshot = pickle.loads(out.read_bytes())
    segments, (trace,) = snapshot["segments"], snapshot["device_traces"]
    alive = sum(n for i, n in size.items() if i not in freed)
    expect(sum(s["total_size"] for s in segments) == alive, "live bytes at the end")
    for s in segments:
        expect(sum(b["size"] for b in s["blocks"]) == s["total_size"] == s["active_size"], "a segment's blocks")
        expect(all(b["state"] == "active_allocated" for b in s["blocks"]), "states")
    actions = [e["action"] for e in trace]
    expect(actions.count("alloc") == sum(x.get("ev") == "alloc" for x in lines), "allocations")
    expect(actions.count("free_completed") == len(freed), "frees")
    named = [e["frames"][0]["name"] for e in trace if e["frames"]]
    expect(named and all(named), "blocks have the operation that first uses them")
    spans = sorted((s["address"], s["address"] + s["total_size"]) for s in segments)
    expect(all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), "segments overlap")


def test_trace_refuses_with_one_line():
    with tempfile.TemporaryDirectory() as d:
        bad = pathlib.Path(d) / "bad.jsonl"
        bad.write_text('{"format":"vmem-trace","version":1}\n{"ev":"free","id":9}\n')
        expect_refused(vmem("trace", bad), 1, f"{bad}:2: block 9 is freed before it is allocated")
        bad.write_text('{"format":"vmem-trace","version":99}\n')
        expect_refused(vmem("trace", bad), 1, "take a newer vmem")
        bad.write_text('{"format":"vmem-trace","version":1}\n')
        expect_refused(vmem("trace", bad), 1, "holds no operation")
        expect_refused(vmem("trace", d), 1, "cannot be read")
    expect_refused(vmem("trace", "/no/such/file"), 1, "cannot open '/no/such/file'")
    expect_refused(vmem("trace"), 2, "which file?")
    expect_refused(vmem("trace", TRACE, TRACE), 2, "one file, please")
    expect_refused(vmem("trace", TRACE, "--budget", "lots"), 2, "--budget cannot be 'lots'")
    expect_refused(vmem("trace", TRACE, "--largest", "-1"), 2, "--largest cannot be '-1'")
    expect_refused(vmem("trace", TRACE, "--fast"), 2, "unknown option '--fast'")


# ---- vmem plan ---------------------------------------------------------------------------------

def test_plan_writes_what_it_says():
    with tempfile.TemporaryDirectory() as d:
        out = pathlib.Path(d) / "p.json"
        r = vmem("plan", TRACE, "--budget", "70%", "--page", "4KiB", "-o", out)
        expect(r.returncode == 0, r.stderr)
        plan = json.loads(out.read_text())
        ops = int(re.search(r"of (\d+) ops each", vmem("trace", TRACE).stdout).group(1))
        expect(plan["format"] == "vmem-plan" and len(plan["sigs"]) == ops, "wrong head")
        expect(plan["page_bytes"] == 4096, "wrong page")
        expect(plan["predicted_ns"] >= plan["bound_ns"] > 0, "faster than the bound")
        expect(any(a["do"] == "out" for a in plan["actions"]), "70 % of the peak moves nothing")
        expect(all(a["op"] < ops for a in plan["actions"]), "an action beyond the end")


def test_plan_sweeps():
    with tempfile.TemporaryDirectory() as d:
        out = pathlib.Path(d) / "s.csv"
        r = vmem("plan", TRACE, "--sweep", "--page", "4KiB", "-o", out)
        expect(r.returncode == 0, r.stderr)
        rows = list(csv.DictReader(out.open()))
        auto = {int(x["budget_percent"]): float(x["slowdown"]) for x in rows if x["policy"] == "auto"}
        expect(auto[100] < 1.02, f"auto at 100 % is {auto[100]}")
        for x in rows:
            expect(int(x["predicted_ns"]) >= int(x["bound_ns"]), f"faster than the bound: {x}")
        expect(len({x["policy"] for x in rows}) >= 3, "policies are missing")


def test_plan_explains_every_block():
    with tempfile.TemporaryDirectory() as d:
        out = pathlib.Path(d) / "p.json"
        r = vmem("plan", TRACE, "--budget", "70%", "--page", "4KiB", "--explain", "-o", out)
        expect(r.returncode == 0, r.stderr)
        told = {int(x) for x in re.findall(r"^block (\d+), .*: ", r.stdout, re.M)}
        blocks = json.loads(out.read_text())["blocks"]
        expect(told == set(range(len(blocks))), f"not explained: {set(range(len(blocks))) - told}")
        expect("goes after op" in r.stdout, "nothing goes at 70 %")


def test_plan_refuses_with_one_line():
    expect_refused(vmem("plan", TRACE, "--budget", "1G", "--policy", "best"), 2, "no policy 'best'")
    expect_refused(vmem("plan", TRACE, "--budget", "0"), 2, "--budget cannot be '0'")
    expect_refused(vmem("plan", TRACE, "--page", "3000"), 2, "not a power of two")
    expect_refused(vmem("plan", TRACE, "--link", "fast"), 2, "--link cannot be 'fast'")
    expect_refused(vmem("plan"), 2, "which trace?")
    expect_refused(vmem("plan", TRACE, "--polcy", "auto"), 2, "unknown option '--polcy'")
    small = vmem("plan", TRACE, "--budget", "8KiB", "--page", "4KiB")
    expect(small.returncode == 1 and small.stderr.count("\n") == 1, small.stderr)
    expect(re.search(r"\d", small.stderr), "no number in " + small.stderr)
    wrong = vmem("plan", TRACE, "--budget", "70%", "--page", "4KiB", "-o", "/no/such/folder/p")
    expect(wrong.returncode == 1 and "/no/such/folder/p" in wrong.stderr, wrong.stderr)


# ---- vmem doctor -------------------------------------------------------------------------------

def test_doctor_with_a_simulated_card():
    r = vmem("doctor", env=sim_env(VMEM_BUDGET="3GiB"))
    expect(r.returncode == 0, r.stdout + r.stderr)
    expect(re.search(r"^driver .*/libcuda\.so\.1, CUDA", r.stdout, re.M), r.stdout)
    expect("(simulated)" in r.stdout and "12.0 GiB" not in r.stdout.split("block")[1].split("\n")[0], r.stdout)
    expect(re.search(r"^block +served by libvmem; budget 3\.00 GiB", r.stdout, re.M), r.stdout)
    expect(re.search(r"^  VMEM_BUDGET +3GiB +set", r.stdout, re.M), r.stdout)
    expect(re.search(r"^hooks +\d+ functions are hooked", r.stdout, re.M), r.stdout)


def test_doctor_switched_off():
    r = vmem("doctor", env=sim_env(VMEM_OFF="1"))
    expect(r.returncode == 0 and "libvmem stays out of this process" in r.stdout, r.stdout + r.stderr)


def test_doctor_without_a_driver():
    if any(pathlib.Path(p).exists() for p in ("/usr/lib/x86_64-linux-gnu/libcuda.so.1",
                                              "/usr/lib64/libcuda.so.1")):
        sys.exit(77)
    r = vmem("doctor")
    expect(r.returncode == 0 and "none found" in r.stdout, r.stdout + r.stderr)


def test_doctor_reports_bad_knobs():
    r = vmem("doctor", env=clean_env(VMEM_BUDGET="x", VMEM_BUGDET="1G"))
    expect("2 wrong or unknown" in r.stdout, r.stdout)
    expect("VMEM_BUGDET" in r.stderr and "VMEM_BUDGET" in r.stderr, r.stderr)


# ---- all ---------------------------------------------------------------------------------------

def test_help_is_there():
    for args in ([], ["run"], ["trace"], ["plan"], ["doctor"]):
        r = vmem(*args, "--help")
        expect(r.returncode == 0 and r.stdout.startswith("usage: vmem") and not r.stderr, f"{args}: {r}")
        expect(all(len(x) <= 110 for x in r.stdout.splitlines()), f"{args}: a line is too long")
    expect(re.fullmatch(r"vmem \d+\.\d+\.\d+\n", vmem("--version").stdout), "no version")
    expect_refused(vmem("dance"), 2, "no command 'dance'")
    expect(vmem().returncode == 2, "no command is no success")


def words_missing_from(page):
    source = (SOURCE / "planner" / "words.c").read_text()
    words = set(re.findall(r'\{\w+, "(\w+)"\}', source))
    fields = set(re.findall(r'vm_json_(?:u64|hex|text|real|open)\(&?j, "(\w+)"',
                            "".join((SOURCE / "planner" / f"{n}_write.c").read_text()
                                    for n in ("trace", "plan"))))
    expect(len(words) > 40 and len(fields) > 30, "words.c is not understood any more")
    return sorted(w for w in words | fields if f"`{w}`" not in page and f'"{w}"' not in page)


def test_formats_page_names_every_word():
    page = (SOURCE / "docs" / "formats.md").read_text()
    expect(not words_missing_from(page), f"docs/formats.md lacks {words_missing_from(page)}")
    # a planted gap is noticed
    expect(words_missing_from(page.replace("`elementwise`", "")) == ["elementwise"], "a gap is not noticed")


def test_man_page_names_every_option():
    page = (SOURCE / "docs" / "vmem.1").read_text().replace("\\-", "-")
    for command in ("trace", "plan"):
        options = re.findall(r"^  (--?[a-z-]+)", vmem(command, "--help").stdout, re.M)
        expect(len(options) >= 4, f"{command}: {options}")
        for o in options:
            expect(o in page, f"docs/vmem.1 lacks {command} {o}")


if __name__ == "__main__":
    globals()["test_" + sys.argv[1]]()
    print("passed")
