"""A loop that looks like training, a jitted function for each layer, so that activations are buffers of their own.

Inputs were copied to the card and no function writes to them: whatever moved in between, they must come back as they
were. JAX looks for NVIDIA's device files before it asks the driver; the simulated GPU has none, so one is named.
"""
import sys

import jax._src.hardware_utils

jax._src.hardware_utils._NVIDIA_GPU_DEVICES = ["/dev/null"]

import jax  # noqa: E402
import numpy as np  # noqa: E402

import work  # noqa: E402

SIDE = 1024  # of a matrix of 4 MiB


@jax.jit
def forward(weights, x):
    return x * weights


@jax.jit
def backward(weights, x, gradient):
    return gradient * weights, x * gradient


@jax.jit
def update(weights, gradient):
    return weights - gradient / 8


def matrix(i):
    return np.frombuffer(work.contents(i), np.float32).reshape(SIDE, SIDE)


def main():
    print(jax.devices())
    kept = [jax.device_put(matrix(i)) for i in range(work.LAYERS)]
    trained = list(kept)
    for _ in range(work.ITERATIONS):
        activations = [jax.device_put(matrix(work.LAYERS))]
        for weights in trained:
            activations.append(forward(weights, activations[-1]))
        gradient = activations[-1]
        for i in reversed(range(work.LAYERS)):
            gradient, change = backward(trained[i], activations[i], gradient)
            trained[i] = update(trained[i], change)
        jax.block_until_ready(trained)
    wrong = [i for i, a in enumerate(kept) if np.asarray(a).tobytes() != work.contents(i)]
    print("blocks", len(kept), "wrong", wrong)
    if wrong:
        sys.exit(1)


main()
