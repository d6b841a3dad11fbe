#!/usr/bin/env python3
"""What PyTorch does on the simulated GPU, one line each, in a minute: devices, values that come back, small
networks with each kind of optimizer and precision, attention, recurrent layers, events, page-locked memory, the
profiler. Memory holds nothing in timing mode, so values are zero and no answer is a NaN. Ends with `done`, or at the
first thing that is wrong with an assertion.
"""
import math
import time

import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda"
BATCH = 32


def said(*what):
    print(*what, flush=True)


def zero(*values):
    """Every number that came from the card is zero."""
    for v in values:
        assert v == 0 and not math.isnan(v), values


def device():
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    name = torch.cuda.get_device_name(0)
    properties = torch.cuda.get_device_properties(0)
    assert "(simulated)" in name
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total and properties.total_memory >= total
    said("device", name, properties.major, properties.minor)


def values():
    x = torch.randn(64, 64, device=DEVICE)
    zero(x.sum().item(), x.max().item(), x.std().item(), (x @ x).sum().item(), x.softmax(-1).mean().item())
    assert not torch.isnan(x).any() and not torch.isinf(x).any().item()
    assert x.nonzero().shape == (0, 2) and x[x > 0].numel() == 0
    assert torch.multinomial(torch.rand(4, 10, device=DEVICE), 2).tolist() == [[0, 0]] * 4
    assert x.topk(5)[1].max().item() == 0 and x.sort()[1].max().item() == 0
    assert torch.randperm(10, device=DEVICE).tolist() == [0] * 10
    kept = torch.full((100_000,), math.nan)
    kept.copy_(torch.randn(100_000, device=DEVICE))
    zero(kept.abs().max().item())
    locked = torch.full((1000,), math.nan).pin_memory()
    locked.copy_(x.flatten()[:1000], non_blocking=True)
    torch.cuda.synchronize()
    zero(locked.abs().max().item())
    said("values")


def perceptron():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(DEVICE), (BATCH, 64)


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(16 * 8 * 8, 10)).to(DEVICE), (BATCH, 3, 16, 16)


OPTIMIZERS = {
    "sgd foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "sgd fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "adam foreach": lambda p: torch.optim.Adam(p, foreach=True),
    "adam fused": lambda p: torch.optim.Adam(p, fused=True),
}


def train(make, optimizer, precision):
    model, shape = make()
    opt = OPTIMIZERS[optimizer](model.parameters())
    steps = []
    opt.register_step_post_hook(lambda *_: steps.append(1))
    scaler = torch.amp.GradScaler("cuda", enabled=precision is torch.float16)
    for _ in range(3):
        x = torch.randn(*shape, device=DEVICE)
        target = torch.randint(0, 10, (BATCH,), device=DEVICE)
        opt.zero_grad()
        with torch.autocast("cuda", dtype=precision or torch.float16, enabled=precision is not None):
            loss = F.cross_entropy(model(x), target)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        zero(loss.item())
    assert len(steps) == 3, f"{len(steps)} of 3 steps: a gradient was taken for infinite"


def networks():
    for make in (perceptron, convolutions):
        for optimizer in OPTIMIZERS:
            for precision in (None, torch.float16, torch.bfloat16):
                train(make, optimizer, precision)
            said(make.__name__, optimizer)


def layers():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        q = torch.randn(2, 4, 32, 16, device=DEVICE, dtype=dtype, requires_grad=True)
        out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        out.sum().backward()
        zero(out.sum().item(), q.grad.sum().item())
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2).to(DEVICE)
    encoder(torch.randn(2, 16, 64, device=DEVICE)).sum().backward()
    out, _ = nn.LSTM(16, 32, 2, batch_first=True).to(DEVICE)(torch.randn(2, 5, 16, device=DEVICE))
    out.sum().backward()
    embedding = nn.Embedding(100, 16).to(DEVICE)
    embedding(torch.randint(0, 100, (4, 8), device=DEVICE)).sum().backward()
    zero(out.sum().item(), embedding.weight.grad.sum().item())
    said("layers")


def times():
    """Events tell the simulated clock: a product takes at least what the card's peak allows, halves less."""
    def measured(a):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        a @ a
        end.record()
        end.synchronize()
        return start.elapsed_time(end)
    a = torch.randn(4096, 4096, device=DEVICE)
    single, half = measured(a), measured(a.half())
    assert single > 2 * 4096 ** 3 / 67e12 * 1e3, single # no preset is faster
    assert half < single, (half, single)
    said("times")


def streams():
    x = torch.randn(256, 256, device=DEVICE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x @ x
    torch.cuda.current_stream().wait_stream(side)
    y.record_stream(torch.cuda.current_stream())
    zero(y.sum().item())
    said("streams")


def profiler():
    from torch.profiler import ProfilerActivity, profile
    x = torch.randn(512, 512, device=DEVICE)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        for _ in range(3):
            (x @ x).relu().sum().item()
        torch.cuda.synchronize()
    seen = {e.key: e.device_time_total for e in p.key_averages()}
    assert seen["aten::mm"] > 0, "no time of the device for the products"
    for kernel in ("gemm", "reduce_kernel", "elementwise_kernel"):
        assert any(kernel in key and us > 0 for key, us in seen.items()), f"no {kernel} among {list(seen)}"
    said("profiler")


def main():
    start = time.process_time()
    for part in (device, values, networks, layers, times, streams, profiler):
        part()
    # of the processor, so that a busy machine does not matter; a simulated call is worth microseconds
    assert time.process_time() - start < 60
    said("done")


if __name__ == "__main__":
    main()
