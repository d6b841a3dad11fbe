"""Classification of images by a network of torchvision."""
import torch
import torch.nn.functional as F
import torchvision

import training


def main(name, batch):
    args = training.arguments(f"torchvision {name} on synthetic images", batch, optimizer="sgd")
    side, classes = (224, 1000) if args.size == "full" else (64, 10)

    def sample(generator):
        return (torch.randn(3, side, side, generator=generator),
                torch.randint(classes, (), generator=generator))

    def loss_of(model, images, labels):
        return F.cross_entropy(model(images), labels)

    training.run(args, torchvision.models.get_model(name, num_classes=classes), sample, loss_of)
