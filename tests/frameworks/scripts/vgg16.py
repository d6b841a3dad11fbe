"""VGG-16 of torchvision."""
import images

if __name__ == "__main__":
    images.main("vgg16", batch=64)
