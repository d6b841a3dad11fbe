"""ResNet-50 of torchvision."""
import images

if __name__ == "__main__":
    images.main("resnet50", batch=64)
