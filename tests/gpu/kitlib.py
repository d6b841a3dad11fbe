"""Running the kit's programs under time limits, and what its steps share."""
import dataclasses
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time


LATE = 124  # status of a program that was ended at its limit


class OutOfTime(Exception):
    """The kit, or the step, has no time left for another program."""


@dataclasses.dataclass
class Finished:
    rc: int
    out: str
    err: str
    seconds: float

    @property
    def out_of_memory(self):
        text = (self.out + self.err).lower()
        return self.rc != 0 and ("out of memory" in text or "outofmemory" in text)

    def why(self):
        """The last lines of what it said, for a table's cell."""
        lines = [line for line in (self.err or self.out).strip().splitlines() if line.strip()]
        return " | ".join(lines[-2:])[-300:]


class Clock:
    """The time left to the kit, and to the step that runs. `patience` stretches the limits of steps and programs."""

    def __init__(self, seconds, patience):
        self.end = self.step_end = time.monotonic() + seconds
        self.patience = patience

    def start_step(self, seconds):
        self.step_end = min(self.end, time.monotonic() + seconds * self.patience)

    def left(self):
        return self.step_end - time.monotonic()

    def run(self, command, env, limit, log):
        """Runs a program in a process group of its own, which ends with it. OutOfTime if too little time is left."""
        limit = min(limit * self.patience, self.left())
        if limit < 2:
            raise OutOfTime(f"no time left for {pathlib.Path(str(command[0])).name}")
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = subprocess.Popen([str(c) for c in command], env=env, stdout=out, stderr=err,
                                     stdin=subprocess.DEVNULL, start_new_session=True)
            try:
                rc = child.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                rc = LATE
            finally:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                child.wait()
            texts = []
            for f in (out, err):
                f.seek(0)
                texts.append(f.read())
        if rc == LATE:
            texts[1] += f"\nno end within {limit:.0f} s"
        done = Finished(rc, *texts, time.monotonic() - began)
        with open(log, "a") as f:
            f.write(f"$ {' '.join(map(str, command))}\n{done.out}{done.err}[{rc}, {done.seconds:.1f} s]\n\n")
        return done


def median(values):
    values = list(values)
    return statistics.median(values) if values else float("nan")
