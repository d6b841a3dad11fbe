"""The kit itself: its verdicts, its limits, its search, and that one failing step does not stop the others."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]
from vmtest import BUILD, check, finish  # noqa: E402

import c_steps  # noqa: E402
import kit  # noqa: E402
import place  # noqa: E402
import table  # noqa: E402
import torch_steps  # noqa: E402
from kitlib import LATE, Clock, Finished, OutOfTime  # noqa: E402


def run_of(rc=0, err="", **more):
    r = Finished(rc, "", err, 1.0)
    for name, value in {"losses": ["1"], "checksum": ["a"], "good": rc == 0, **more}.items():
        setattr(r, name, value)
    return r


def verdicts():
    native = run_of()
    for compare in (lambda r: c_steps.compare(native, r, 100, 50), lambda r: torch_steps.verdict(native, r)):
        check(compare(run_of()) == "equal", "equal runs")
        check(compare(run_of(losses=["2"])) == "DIFFERENT", "another loss")
        check(compare(run_of(checksum=["b"])) == "DIFFERENT", "another checksum")
        check(compare(run_of(1, "boom")).startswith("FAILED"), "a crash")
    check(c_steps.compare(native, run_of(1, "out of memory"), 100, 200).startswith("unfit"), "an operation too large")
    check(c_steps.compare(native, run_of(1, "out of memory"), 100, 50).startswith("FAILED"), "no reason to run out")
    check(c_steps.compare(native, run_of(err="simgpu: race: x"), 100, 50) == "RACE", "a race")
    check(torch_steps.verdict(native, run_of(1, "CUDA error: out of memory")) == "out of memory", "out of memory")
    for result in ("DIFFERENT", "RACE", "FAILED: x", "not run: x", "out of memory"):
        check(kit.bad({"result": result}), f"{result} counts")
    check(not kit.bad({"result": "equal"}) and not kit.bad({"result": "unfit: x"}) and not kit.bad({"value": 1}),
          "what is well does not count")


def search():
    for limit in (31, 32, 100, 1000, 5000):
        found, ended = torch_steps.largest(lambda batch: batch <= limit, 32, 4096)
        check(found <= limit and (found >= limit * 0.85 or limit == 31 or found == 4096), f"limit {limit}: {found}")
        check(ended == (limit < 4096), f"limit {limit}: {'ended' if ended else 'not ended'}")
    check(torch_steps.largest(lambda batch: batch <= 31, 32, 4096) == (0, True), "not even the first")

    def slow(batch):
        if batch > 64:
            raise OutOfTime
        return True
    check(torch_steps.largest(slow, 32, 4096) == (64, False), "what was found before the time was up")


def batches():
    """What the step says of a search that ends, one that meets a crash, one whose time is up."""
    well, full, crash, late = (0, ""), (1, "out of memory"), (1, "boom"), (LATE, "no end")
    kit_of_one = types.SimpleNamespace(place=types.SimpleNamespace(simulated=True))
    kept = torch_steps.ready, torch_steps.train
    for outcomes, batch, result in (([well] * 3 + [full] * 9, 128, "passed"), ([well, crash], 32, "FAILED: boom"),
                                    ([well, late], 32, "at least"), ([crash], 0, "FAILED")):
        programs = iter(outcomes * 2)

        def train(*_, **__):
            rc, err = next(programs)
            return run_of(rc, err, ms=1.0)
        torch_steps.ready, torch_steps.train = (lambda _: None), train
        kit_of_one.clock = Clock(100, 1)
        row = next(torch_steps.torch_batch(kit_of_one))
        check(row["largest_batch"] == batch and row["result"].startswith(result), f"{outcomes}: {row}")
    torch_steps.ready, torch_steps.train = kept


def libraries():
    """A trainer that would run on the stand-ins, though a real GPU is meant, is noticed; the driver's word counts."""
    trainer = BUILD / "tests" / "trainers" / "trainer"
    check(not place.Place(BUILD, "python3", True, "a100-40g").own_libraries(trainer), "stand-ins, as meant")
    real = place.Place(BUILD, "python3", False, "")
    real.library_path = []
    check(len(real.own_libraries(trainer)) == 3, f"stand-ins, not meant: {real.own_libraries(trainer)}")
    env = place.Place(BUILD, "python3", True, "a100-40g").c_environment(False)
    check("(simulated)" in (place.device(BUILD, env) or {}).get("device/name", ""), "the simulated card's name")
    check(place.device(BUILD, {**env, "SIMGPU_FAULTS": "cuInit:1+=NO_DEVICE"}) is None, "no card")


def limits(folder):
    log = folder / "log.txt"
    clock = Clock(20, 1)
    clock.start_step(20)
    slow = clock.run(["bash", "-c", "sleep 60 & sleep 60"], dict(os.environ), 2, log)
    check(slow.rc == 124 and slow.seconds < 10 and "no end within" in slow.err, f"a slow program: {slow}")
    fast = clock.run(["bash", "-c", "echo hi; exit 3"], dict(os.environ), 10, log)
    check((fast.rc, fast.out) == (3, "hi\n"), f"a fast program: {fast}")
    clock.start_step(1)
    try:
        clock.run(["true"], dict(os.environ), 10, log)
        check(False, "a program started without time")
    except OutOfTime:
        check(True, "")


def steps(folder):
    """A step that raises, one that runs out of time after a row, one that is well."""
    def raises(_):
        yield {"result": "equal"}
        raise ValueError("planted")

    def slow(_):
        yield {"result": "equal"}
        raise OutOfTime("planted")

    stand_in = types.SimpleNamespace(clock=Clock(60, 1))
    for function, state in ((raises, "FAILED"), (slow, "not finished"), (lambda _: [{"result": "x"}], "done"),
                            (lambda _: [{"result": "RACE"}], "with failures")):
        step = kit.run_step(stand_in, "doctor", function, 10, "planted")
        check(step["state"].startswith(state) and len(step["rows"]) == 1, f"{state}: {step}")
    text = table.markdown({"facts": {"card": "c"}, "date": "d", "simulated": True, "commit": "x", "missing": ["m"],
                           "steps": [{"name": "trainer_speed", "what": "w", "seconds": 1, "state": "done",
                                      "rows": [{"policy": "auto", "ms": 1.23456, "out_bytes": 1234567}]}]})
    check("| auto | 1.235 | 1,234,567 |" in text and "(simulated)" in text and "missing: m" in text, text)


def rehearsal(folder):
    """The real thing where there is no PyTorch: that is said, what can run runs."""
    no_torch = folder / "python"
    no_torch.write_text("#!/bin/sh\nexit 1\n")
    no_torch.chmod(0o755)
    r = subprocess.run([HERE / "run.sh", "--rehearse", "--short", "--seconds", "2000", "--build", BUILD, "--out", folder,
                        "--python", no_torch, "--only", "torch_bits", "--only", "doctor", "--only", "trainer_bits"],
                       capture_output=True, text=True, timeout=380)
    check(r.returncode == 1, f"status {r.returncode}: {r.stdout}{r.stderr}")
    results = json.loads((folder / "results.json").read_text())
    states = {s["name"]: s["state"] for s in results["steps"]}
    check(states == {"doctor": "done", "trainer_bits": "done", "torch_bits": "with failures"}, f"{states} {r.stdout}")
    rows = [row for s in results["steps"] if s["name"] == "trainer_bits" for row in s["rows"]]
    check(len(rows) == 3 and all(row["result"] == "equal" for row in rows), f"{rows}")
    check(rows[1:] and all(row["out_bytes"] > 0 and row["planned"] > 0 for row in rows[1:]), f"nothing moved: {rows}")
    check("(simulated)" in (folder / "table.md").read_text(), "the table says that it is simulated")
    plain = subprocess.run([HERE / "run.sh", "--build", BUILD, "--out", folder, "--only", "doctor"],
                           capture_output=True, text=True, timeout=100)
    check(plain.returncode == (77 if "there is no GPU" in plain.stdout else 0), f"without --rehearse: {plain}")


with tempfile.TemporaryDirectory(prefix="vmem-kit-") as tmp:
    verdicts()
    search()
    batches()
    libraries()
    limits(pathlib.Path(tmp))
    steps(pathlib.Path(tmp))
    rehearsal(pathlib.Path(tmp))
finish()
