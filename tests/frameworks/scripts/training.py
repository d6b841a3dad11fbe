"""What the scripts share: their arguments, synthetic data and the loop.

Each script gives a model, a dataset and a loss; everything else is the habits of PyTorch programs, chosen by
arguments. The last line that a run prints is `done`.
"""
import argparse
import contextlib
import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def arguments(description, batch, optimizer="adamw", **more):
    """The parsed command line; `more` are further on/off options with their help texts."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--batch", type=int, default=batch, help="samples in a (micro-)batch")
    p.add_argument("--iterations", type=int, default=30, help="updates of the weights")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--size", choices=["full", "tiny"], default="full", help="tiny: for a try on the CPU")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--optimizer", choices=["sgd", "adamw"], default=optimizer)
    p.add_argument("--implementation", choices=["default", "foreach", "fused", "loop"], default="default",
                   help="of the optimizer")
    p.add_argument("--amp", choices=["off", "fp16", "bf16"], default="off", help="mixed precision")
    p.add_argument("--accumulate", type=int, default=1, metavar="N", help="micro-batches an update")
    p.add_argument("--clip", type=float, default=0, metavar="NORM", help="clip the gradient's norm")
    p.add_argument("--epoch", type=int, default=0, metavar="N", help="updates an epoch (default: all)")
    p.add_argument("--short-batch", action="store_true", help="the last batch of an epoch is a smaller one")
    p.add_argument("--evaluate", type=int, default=0, metavar="N", help="batches of evaluation after each epoch")
    p.add_argument("--save", metavar="FILE", help="save model and optimizer after each epoch")
    p.add_argument("--workers", type=int, default=0, help="of the data loader")
    p.add_argument("--start-method", choices=["fork", "spawn"], default="fork", help="of the workers")
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--deterministic", action="store_true", help="deterministic algorithms only")
    p.add_argument("--profile", action="store_true", help="attach torch.profiler to three iterations")
    p.add_argument("--checksum", action="store_true", help="print a digest of the weights at the end")
    for name, text in more.items():
        p.add_argument("--" + name.replace("_", "-"), action="store_true", help=text)
    args = p.parse_args()
    if "RANK" in os.environ:  # started by torchrun
        dist.init_process_group("gloo")
        if args.device == "cuda":
            args.device = f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"
    if args.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)
    return args


class Synthetic(Dataset):
    """`length` samples out of eight that `make(generator)` draws."""

    def __init__(self, length, make, seed=1):
        generator = torch.Generator().manual_seed(seed)
        self.samples = [make(generator) for _ in range(8)]
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return self.samples[i % len(self.samples)]


def say(text):
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(text, flush=True)


def make_optimizer(args, model):
    how = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True},
           "loop": {"foreach": False}}[args.implementation]
    if args.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, **how)
    return torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, **how)


def make_loader(args, make, batches, seed, short=False):
    world = dist.get_world_size() if dist.is_initialized() else 1
    length = world * (batches * args.batch - (args.batch // 2 if short else 0))
    dataset = Synthetic(length, make, seed)
    sampler = DistributedSampler(dataset, shuffle=False) if dist.is_initialized() else None
    return DataLoader(dataset, batch_size=args.batch, sampler=sampler, num_workers=args.workers,
                      multiprocessing_context=args.start_method if args.workers else None,
                      persistent_workers=args.workers > 0, pin_memory=args.device != "cpu")


class Trainer:
    """`loss_of(model, inputs, targets)` is the loss of one batch."""

    def __init__(self, args, model, make, loss_of):
        self.args = args
        self.device = torch.device(args.device)
        if self.device.index is not None:
            torch.cuda.set_device(self.device)
        layout = torch.channels_last if args.channels_last else torch.preserve_format
        self.model = model.to(self.device, memory_format=layout)
        if dist.is_initialized():
            ids = [self.device.index] if self.device.type == "cuda" else None
            self.model = torch.nn.parallel.DistributedDataParallel(self.model, device_ids=ids)
        self.loss_of = loss_of
        self.optimizer = make_optimizer(args, self.model)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=args.amp == "fp16")
        self.epoch = args.epoch or args.iterations
        self.batches = make_loader(args, make, self.epoch * args.accumulate, args.seed, args.short_batch)
        self.held_out = make_loader(args, make, args.evaluate, args.seed + 1) if args.evaluate else None
        self.iteration = 0
        self.loading = 0.0  # seconds of CPU time that making batches took

    def next_batch(self, batches):
        began = time.process_time()
        batch = next(batches)
        self.loading += time.process_time() - began
        return batch

    def loss(self, inputs, targets):
        inputs = inputs.to(self.device, non_blocking=True)
        targets = targets.to(self.device, non_blocking=True)
        if self.args.channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        dtype = torch.bfloat16 if self.args.amp == "bf16" else torch.float16
        with torch.autocast(self.device.type, dtype, enabled=self.args.amp != "off"):
            return self.loss_of(self.model, inputs, targets)

    def update(self, batches):
        """One update of the weights from the next `accumulate` batches; its loss."""
        self.optimizer.zero_grad()
        total = 0.0
        for _ in range(self.args.accumulate):
            loss = self.loss(*self.next_batch(batches)) / self.args.accumulate
            self.scaler.scale(loss).backward()
            total += loss.item()
        if self.args.clip:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return total

    def clock(self):
        """Milliseconds: of the device where there is one, else of the host."""
        if self.device.type != "cuda":
            now = time.perf_counter()
            return lambda: 1e3 * (time.perf_counter() - now)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()

        def elapsed():
            end.record()
            end.synchronize()
            return begin.elapsed_time(end)
        return elapsed

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            losses = [self.loss(*batch).item() for batch in self.held_out]
        self.model.train()
        say(f"evaluation loss {sum(losses) / len(losses):.4f}")

    def save(self):
        if not dist.is_initialized() or dist.get_rank() == 0:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                        "iteration": self.iteration}, self.args.save)
        say(f"saved after {self.iteration}")

    def train_epoch(self, profiler):
        batches = iter(self.batches)
        for _ in range(min(self.epoch, self.args.iterations - self.iteration)):
            elapsed, cpu = self.clock(), time.process_time() - self.loading
            loss = self.update(batches)
            say(f"iter {self.iteration} loss {loss:.4f} ms {elapsed():.3f} "
                f"cpu {1e3 * (time.process_time() - self.loading - cpu):.3f}")
            self.iteration += 1
            if profiler:
                profiler.step()

    def run(self):
        self.model.train()
        with make_profiler(self.args) as profiler:
            while self.iteration < self.args.iterations:
                self.train_epoch(profiler)
                if self.held_out:
                    self.evaluate()
                if self.args.save:
                    self.save()
        if profiler:
            work = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
            say(f"profiled, work of the device {'seen' if work else 'not seen'}")
        if self.device.type == "cuda":
            say(f"peak allocated {torch.cuda.max_memory_allocated()} reserved {torch.cuda.max_memory_reserved()}")
        if self.args.checksum:
            say(f"checksum {self.digest()}")
        say("done")
        if dist.is_initialized():
            dist.destroy_process_group()

    def digest(self):
        total = hashlib.sha256()
        for name, value in self.model.state_dict().items():
            total.update(name.encode())
            total.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return total.hexdigest()


def make_profiler(args):
    if not args.profile:
        return contextlib.nullcontext()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if args.device != "cpu":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(activities=kinds, schedule=torch.profiler.schedule(wait=2, warmup=1, active=3, repeat=1))


def run(args, model, make, loss_of):
    Trainer(args, model, make, loss_of).run()
