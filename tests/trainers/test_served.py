"""Trainers under libvmem.so: both link styles are served alike, and in the planned state no allocation
or release of memory reaches the driver."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import trainerlib  # noqa: E402

NETS = {"vgg-small": [], "resnet": ["--set", "size=16", "--batch", 4],
        "lstm": ["--set", "layers=2", "--set", "hidden=48", "--steps", 16]}
NEVER = ("cuMemCreate", "cuMemRelease", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync",
         "cuMemFreeAsync")
WHERE = {"preset": "h200-141g", "mode": "functional", "SIMGPU_GRANULARITY": 4096}


def budget_of(net, args, share):
    bare = trainerlib.train(net, *args, "--iters", 2, **WHERE)
    return (bare.report["peak_physical_bytes"] - bare.report["context_bytes"]) * share // 100


class Served(unittest.TestCase):
    def served(self, net, args, **kw):
        r = trainerlib.train(net, *args, preload=True, **WHERE, **kw)
        self.assertEqual(r.rc, 0, r.why())
        self.assertGreater(r.stats["planned_iterations"], 1, r.stats)
        return r

    def test_steady_state_makes_no_memory(self):
        for net, args in NETS.items():
            for alloc in ("eager", "upfront") if net == "vgg-small" else ("eager",):
                with self.subTest(net=net, alloc=alloc):
                    args = [*args, "--alloc", alloc, "--workspace", 65536]
                    budget = budget_of(net, args, 70)
                    short, long = (self.served(net, [*args, "--iters", n], VMEM_BUDGET=budget).report
                                   for n in (7, 10))
                    for call in NEVER:
                        self.assertEqual(long["calls"].get(call, 0), short["calls"].get(call, 0), call)
                    # The count is one that can differ: three more iterations launch more kernels.
                    self.assertGreater(long["calls"]["cuLaunchKernel"],
                                       short["calls"]["cuLaunchKernel"])

    def test_bare_runs_do_make_memory(self):
        """What the other test counts is there to be counted."""
        short, long = (trainerlib.train("lstm", "--iters", n, **WHERE).report for n in (2, 3))
        self.assertGreater(long["calls"]["cuMemAlloc_v2"], short["calls"]["cuMemAlloc_v2"])

    def test_pool_takes_little_more_than_is_alive(self):
        """The blocks of the recording and the places of the plan lie elsewhere: one memory serves both."""
        r = self.served("resnet", [*NETS["resnet"], "--iters", 7], VMEM_POLICY="pool", VMEM_BUDGET="256MiB")
        self.assertEqual(r.stats["out_bytes"], 0)
        self.assertLess(r.stats["peak_device_bytes"], 1.1 * r.stats["peak_block_bytes"], r.stats)

    def test_static_runtime_is_served_alike(self):
        net, args = "resnet", [*NETS["resnet"], "--iters", 7]
        budget = budget_of(net, args, 60)
        shared, static = (self.served(net, args, program=p, VMEM_BUDGET=budget)
                          for p in ("trainer", "trainer-static"))
        self.assertEqual(shared.numbers, static.numbers)
        for key in ("period_ops", "planned_iterations", "state", "peak_block_bytes"):
            self.assertEqual(shared.stats[key], static.stats[key], key)
        self.assertGreater(static.stats["out_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
