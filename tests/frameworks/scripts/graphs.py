"""ResNet-50 of torchvision whose whole iteration is one CUDA graph, captured once and launched from then on."""
import gc

import torch
import torch.nn.functional as F
import torchvision

import training


def main():
    args = training.arguments("torchvision resnet50 as one CUDA graph", batch=32)
    images = torch.randn(args.batch, 3, 224, 224, device="cuda")
    labels = torch.randint(1000, (args.batch,), device="cuda")
    model = torchvision.models.resnet50().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def update():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            update()
    torch.cuda.current_stream().wait_stream(side)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = update()
    for i in range(args.iterations):
        images.copy_(torch.randn(args.batch, 3, 224, 224))
        graph.replay()
        training.say(f"iter {i} loss {loss.item():.4f}")
    before = torch.cuda.mem_get_info()[0]

    # The graph goes, and with it what it held; then the same without one.
    del graph, loss
    optimizer.zero_grad(set_to_none=True)
    gc.collect()
    torch.cuda.empty_cache()
    training.say(f"freed {torch.cuda.mem_get_info()[0] - before}")
    for i in range(3):
        training.say(f"iter {args.iterations + i} loss {update().item():.4f}")
    training.say("done")


if __name__ == "__main__":
    main()
