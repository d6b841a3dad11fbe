"""The trainer that gives hints, under libvmem.so with too little memory: the same numbers as bare, and
feature maps were dropped and made again."""
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import trainerlib  # noqa: E402

ARGS = ["--set", "size=16", "--batch", 4, "--iters", 8]


def run(*args, **env):
    return trainerlib.train("resnet", *ARGS, *args, preset="h200-141g", mode="functional",
                            SIMGPU_GRANULARITY=4096, SIMGPU_RACECHECK=1, **env)


def stats_of(r):
    line = re.search(r"^vmem state .*$", r.stdout, re.M)
    return dict(re.findall(r"(\w+) (\d+)", line.group(0))) if line else {}


class Hints(unittest.TestCase):
    def test_dropped_and_regenerated(self):
        for alloc in ("eager", "upfront"):
            with self.subTest(alloc=alloc):
                bare = run("--alloc", alloc)
                budget = (bare.report["peak_physical_bytes"] - bare.report["context_bytes"]) * 55 // 100
                r = run("--alloc", alloc, program="trainer-hints", preload=True, VMEM_BUDGET=budget)
                self.assertEqual(r.rc, 0, r.why())
                self.assertEqual(r.numbers, bare.numbers)
                self.assertEqual(r.report["races"], 0, r.why())
                stats = stats_of(r)
                self.assertGreater(int(stats["iterations"]), 6)
                if alloc == "eager":
                    self.assertGreater(int(stats["regenerated"]), 0, stats)
                    self.assertGreater(int(stats["dropped_bytes"]), 0, stats)

    def test_absent(self):
        r = run(program="trainer-hints")
        self.assertEqual(r.rc, 0, r.why())
        self.assertEqual(stats_of(r), {})


if __name__ == "__main__":
    unittest.main()
