"""The trainers by themselves, on the simulated GPU: they learn, both memory habits and both link styles
compute the same, errors are one clear line, and hints change nothing where nobody listens."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import benchlib  # noqa: E402
import trainerlib  # noqa: E402

SMALL = {"vgg-small": ["--iters", 3], "lenet-digits": ["--iters", 3],
         "resnet": ["--set", "size=16", "--batch", 4, "--iters", 3],
         "lstm": ["--set", "layers=2", "--iters", 3]}


def run(net, *args, **kw):
    kw.setdefault("preset", "h200-141g")
    kw.setdefault("mode", "functional")
    return trainerlib.train(net, *args, SIMGPU_RACECHECK=1, **kw)


class Trainers(unittest.TestCase):
    def good(self, net, *args, **kw):
        r = run(net, *args, **kw)
        self.assertEqual(r.rc, 0, r.why())
        self.assertTrue(r.checksum)
        self.assertEqual(r.report["races"], 0, r.why())
        return r

    def test_lenet_learns_the_digits(self):
        digits = benchlib.DATA / "digits.csv.gz"
        if not digits.exists():
            self.skipTest(f"{digits} is absent")
        r = self.good("lenet-digits", "--data", digits, "--batch", 64, "--iters", 280, "--lr", 0.05)
        self.assertGreater(float(r.accuracy), 0.95)
        self.assertLess(float(r.losses[-1]), 0.1 * float(r.losses[0]))

    def test_lstm_learns_the_digits(self):
        digits = benchlib.DATA / "digits.csv.gz"
        if not digits.exists():
            self.skipTest(f"{digits} is absent")
        r = self.good("lstm", "--data", digits, "--iters", 400, "--lr", 0.1)
        self.assertGreater(float(r.accuracy), 0.9)

    def test_habits_compute_the_same(self):
        for net, args in SMALL.items():
            with self.subTest(net=net):
                eager, upfront = (self.good(net, *args, "--alloc", a) for a in ("eager", "upfront"))
                self.assertEqual(eager.numbers, upfront.numbers)
                self.assertLess(eager.report["peak_physical_bytes"],
                                upfront.report["peak_physical_bytes"])

    def test_link_styles_and_hints_compute_the_same(self):
        shared = self.good("resnet", *SMALL["resnet"])
        for program in ("trainer-static", "trainer-hints"):
            self.assertEqual(self.good("resnet", *SMALL["resnet"], program=program).numbers,
                             shared.numbers)

    def test_streams_compute_the_same(self):
        args = SMALL["vgg-small"]
        self.assertEqual(self.good("vgg-small", *args).numbers,
                         self.good("vgg-small", *args, "--default-stream").numbers)

    def test_seed_changes_the_numbers(self):
        a, b = (self.good("lstm", "--iters", 1, "--seed", s) for s in (1, 2))
        self.assertNotEqual(a.checksum, b.checksum)
        self.assertNotEqual(a.losses, b.losses)

    def test_quiet_copies_nothing_back(self):
        r = self.good("lstm", "--iters", 3, "--quiet")
        self.assertNotIn("cuMemcpyDtoHAsync_v2", r.report["calls"])
        self.assertNotIn("cuEventRecord", r.report["calls"])
        self.assertEqual(r.checksum, self.good("lstm", "--iters", 3).checksum)

    def test_accumulation_is_one_larger_batch(self):
        """Without batch normalisation or dropout, 4 x 4 samples weigh as 16 (up to rounding)."""
        a = self.good("lenet-digits", "--batch", 4, "--accumulate", 4, "--iters", 1)
        b = self.good("lenet-digits", "--batch", 16, "--iters", 1)
        self.assertAlmostEqual(float(a.losses[0]), float(b.losses[0]), places=5)

    def test_too_small_a_card_is_out_of_memory(self):
        r = run("vgg", "--batch", 256, "--iters", 1, preset="titanx-12g", mode="timing")
        self.assertTrue(r.out_of_memory, r.why())
        self.assertEqual(len(r.stderr.strip().splitlines()), 1)

    def test_bad_input_is_one_line(self):
        cases = [(["--batch", "many"], "--batch many"), (["--alloc", "lazy"], "--alloc lazy"),
                 (["--set", "depth=20"], "no parameter for --set depth=20"),
                 (["--steps", "9"], "no parameter for --steps"),
                 (["--data", "/nonexistent.csv"], "/nonexistent.csv")]
        for args, text in cases:
            with self.subTest(args=args):
                r = run("lenet-digits", *args, "--iters", 1)
                self.assertNotEqual(r.rc, 0)
                self.assertIn(text, r.stderr)
                self.assertEqual(len(r.stderr.strip().splitlines()), 1, r.stderr)

    def test_bad_descriptions_name_the_line(self):
        start = "input 1 8 8 classes 10 batch 2\n"
        cases = [("convv 3 3\n", ":2: unknown statement `convv`"),
                 ("conv 3 $k\n", ":2: no such name: `$k`"), ("conv 3 9\n", ":2: window larger"),
                 ("repeat 2\nrelu\n", ":2: no end for `repeat`"), ("add x\n", ":2: no such mark"),
                 ("fc 7\nsoftmax\n", ":3: the softmax's input"), ("fc (3/0\nsoftmax\n", ":2: not a"),
                 ("module m\nuse m\nend\nuse m\n", "nested too deeply"),
                 ("fc 10\n", "the last statement must be softmax"),
                 ("mark x\nfc 4\nfrom x\nfc 10\nsoftmax\n", "is never used")]
        for text, message in cases:
            with self.subTest(text=text), tempfile.TemporaryDirectory() as tmp:
                path = pathlib.Path(tmp, "bad.net")
                path.write_text(start + text)
                r = benchlib.run([trainerlib.TRAINERS / "trainer", path],
                                 benchlib.sim_env("h200-141g", "functional"))
                self.assertEqual(r.returncode, 1)
                self.assertIn(message, r.stderr)
                self.assertEqual(len(r.stderr.strip().splitlines()), 1, r.stderr)

    def test_every_description_has_sizes(self):
        for path in sorted(trainerlib.NETS.glob("*.net")):
            with self.subTest(net=path.stem):
                s = trainerlib.sizes(path.stem)
                self.assertGreaterEqual(s["live_peak_bytes"], s["largest_op_bytes"])
                self.assertGreater(s["upfront_bytes"], s["live_peak_bytes"])

    def test_vgg_sizes_are_the_published_ones(self):
        """One map of conv1_2 at batch 256 is 3.29 GB; all of VGG-416's at batch 32 are 65 GB."""
        s = trainerlib.sizes("vgg", "--batch", 256)
        self.assertAlmostEqual(s["largest_op_bytes"] / 1e9, 2.5 * 3.288, places=1)
        s = trainerlib.sizes("vgg", "--set", "depth=416", "--batch", 32)
        self.assertAlmostEqual(s["map_bytes"] / 1e9, 64.6, places=1)


if __name__ == "__main__":
    unittest.main()
