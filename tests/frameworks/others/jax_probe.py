"""Which device JAX takes, and a sum on it: the CUDA plugin's or, where that finds no card, the CPU's."""
import jax
import jax.numpy as jnp
import jax_plugins.xla_cuda13

try:
    jax_plugins.xla_cuda13.initialize()  # what JAX itself does at its first use, and logs
except Exception as e:
    print("plugin", type(e).__name__, e)
try:
    print("cuda", jax.devices("cuda"))
except RuntimeError as e:
    print("cuda", type(e).__name__, e)
print("default", jax.devices()[0].platform, jax.device_count())
x = jnp.arange(1000.0)
print("sum", float((x * 2).sum()), sorted(str(d) for d in x.devices()))
print("gradient", jax.grad(lambda y: (y * y).sum())(x)[:4])
