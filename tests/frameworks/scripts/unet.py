"""A U-Net: four levels of 64 to 1,024 channels on images of 256 x 256."""
import torch
import torch.nn.functional as F
from torch import nn

import training

SIZES = {"full": {"width": 64, "side": 256}, "tiny": {"width": 4, "side": 32}}


def twice(inside, out):
    layers = []
    for channels in (inside, out):
        layers += [nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, width, classes=2):
        super().__init__()
        widths = [width << level for level in range(5)]
        self.down = nn.ModuleList(twice(a, b) for a, b in zip([3] + widths[:-1], widths))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2)
                                  for a, b in reversed(list(zip(widths[:-1], widths[1:]))))
        self.up = nn.ModuleList(twice(2 * a, a) for a in reversed(widths[:-1]))
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        across = []
        for i, level in enumerate(self.down):
            x = level(F.max_pool2d(x, 2) if i else x)
            across.append(x)
        across.pop()
        for grow, level in zip(self.grow, self.up):
            x = level(torch.cat([across.pop(), grow(x)], dim=1))
        return self.last(x)


def loss_of(model, images, masks):
    return F.cross_entropy(model(images), masks)


def main():
    args = training.arguments("a U-Net on synthetic images", batch=8)
    size = SIZES[args.size]
    side = size["side"]

    def sample(generator):
        return torch.randn(3, side, side, generator=generator), torch.randint(2, (side, side), generator=generator)

    training.run(args, UNet(size["width"]), sample, loss_of)


if __name__ == "__main__":
    main()
