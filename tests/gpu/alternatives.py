"""Runs a script of tests/frameworks/scripts as its users do who help themselves when memory is short.

usage: alternatives.py checkpoint|offload|native [--memory BYTES] SCRIPT [ARGUMENT...]

checkpoint: each residual block is recomputed in the backward pass (torch.utils.checkpoint); offload: what autograd
saves waits in page-locked host memory (torch.autograd.graph.save_on_cpu); native: neither. --memory bounds what
PyTorch's allocator may take, as if the card were smaller.
"""
import argparse
import functools
import os
import pathlib
import runpy
import sys

import torch
from torch.utils.checkpoint import checkpoint

# Classes whose instances are recomputed whole: torchvision's residual blocks, the decoder's layers.
BLOCKS = {"Bottleneck", "BasicBlock", "Block"}


def recompute_blocks(training):
    original = training.Trainer.__init__

    def with_checkpoints(self, *args, **more):
        original(self, *args, **more)
        blocks = [m for m in self.model.modules() if type(m).__name__ in BLOCKS]
        if not blocks:
            raise SystemExit("alternatives.py: this model has no block that is known")
        for block in blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    training.Trainer.__init__ = with_checkpoints


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1], description=__doc__.split("\n")[0])
    parser.add_argument("way", choices=["checkpoint", "offload", "native"])
    parser.add_argument("--memory", type=int)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    sys.path.insert(0, str(pathlib.Path(args.script).resolve().parent))
    sys.argv = [args.script, *args.arguments]
    if args.memory:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, args.memory / total))
    if args.way == "checkpoint":
        import training
        recompute_blocks(training)
    if args.way == "offload":
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            runpy.run_path(args.script, run_name="__main__")
    else:
        runpy.run_path(args.script, run_name="__main__")
    # With these hooks PyTorch aborts now and then in Python's own end, after all is done ("terminate called without an
    # active exception").
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
