"""A loop of launches that looks like training, for packages that launch kernels by the driver API.

A package gives three kernels `forward`, `backward` and `update`, each called with three blocks. What the package
compiled does nothing on the simulated GPU, so every block must keep the contents that were copied into it, through
whatever moves there are.
"""
import sys

LAYERS = 10
BLOCK = 4 << 20  # bytes
ITERATIONS = 12


def contents(i):
    """The bytes of block i."""
    return bytes((i * 37 + k * 11) % 251 for k in range(4096)) * (BLOCK // 4096)


def train(upload, forward, backward, update, download):
    """Forward over all blocks, backward in reverse, then all are read back. Prints what is wrong."""
    blocks = [upload(contents(i)) for i in range(LAYERS + 2)]
    weights, gradient = blocks[LAYERS], blocks[LAYERS + 1]
    for _ in range(ITERATIONS):
        for i in range(LAYERS - 1):
            forward(blocks[i], weights, blocks[i + 1])
        for i in reversed(range(LAYERS - 1)):
            backward(blocks[i], blocks[i + 1], gradient)
        update(gradient, weights, weights)
    wrong = [i for i, b in enumerate(blocks) if download(b) != contents(i)]
    print("blocks", len(blocks), "wrong", wrong)
    if wrong:
        sys.exit(1)
