#!/usr/bin/env python3
"""Makes docs/hooks.md from cuda_hooks/hooks.def, cudnn.def, cudnn_backend.def, cublas.def and cupti.def.

    gen_hooks.py HOOKS_DEF PAGE           writes the page
    gen_hooks.py --check HOOKS_DEF PAGE   fails when the page is not what would be written
"""
import os

import generate
import xmacro

HEAD = """# Hooked functions

<!-- Generated from cuda_hooks/hooks.def, cudnn.def, cudnn_backend.def, cublas.def and cupti.def by tools/gen_hooks.py. -->

libvmem.so exports every function of the CUDA driver. The ones below do something on the way; all
others jump straight to the driver. A function is reached by its exported name or by `cuGetProcAddress`
with the base name, from the stated version on.

| Kind | What happens |
|---|---|
| DOOR | the runtime is told, and may answer in the driver's stead |
| RELIEVE | forwarded; when device memory runs out, libvmem gives some back and repeats it |
| POKE | forwarded after page moves that are due were worked off |
| RAW | the loader's own |

| Exported name | cuGetProcAddress | Version | Kind |
|---|---|---|---|
"""

LIBRARIES = """
## Library calls

Exported by name and forwarded to the library that the program loaded. They tell which blocks a call
reads and writes and what for; none of them changes what is computed.

| Function | Library | Layer |
|---|---|---|
"""

FAMILIES = {
    "VM_GEMM": "gemm",
    "VM_GEMM_BATCHED": "gemm",
    "VM_GEMM_EX": "gemm",
    "VM_GEMM_BATCHED_EX": "gemm",
    "VM_GEMV": "gemm",
    "VM_GER": "gemm",
    "VM_GEAM": "elementwise",
    "VM_AXPY": "elementwise",
    "VM_SCAL": "elementwise",
    "VM_COPY": "elementwise",
    "VM_DOT": "elementwise",
    "VM_NORM": "elementwise",
    "VM_LT_MATMUL": "gemm",
}


def page(path):
    out = HEAD
    for kind, symbol, base, version, *_ in xmacro.rows(path, "VM_HOOK"):
        out += f"| `{symbol}` | `{base}` | {version} | {kind.rstrip('0')} |\n"
    for kind, symbol, suffix, base, version, twin, *_ in xmacro.rows(path, "VM_PAIR"):
        out += f"| `{symbol}` | `{base}` | {version} | {kind} |\n"
        out += f"| `{symbol}{suffix}` | `{base}`, per-thread stream | {twin} | {kind} |\n"
    folder = os.path.dirname(path)
    out += LIBRARIES
    for name, layer, *_ in xmacro.rows(os.path.join(folder, "cudnn.def"), "VM_CUDNN"):
        out += f"| `{name}` | cuDNN | {layer.lower()} |\n"
    for name, purpose, *_ in xmacro.rows(os.path.join(folder, "cudnn_backend.def"), "VM_BE_CALL"):
        out += f"| `{name}` | cuDNN | {purpose.strip(chr(34))} |\n"
    for family, layer in FAMILIES.items():
        for name, *_ in xmacro.rows(os.path.join(folder, "cublas.def"), family):
            out += f"| `{name}` | cuBLAS | {layer} |\n"
    for name, *_ in xmacro.rows(os.path.join(folder, "cupti.def"), "VM_CUPTI"):
        out += f"| `{name}` | CUPTI | makes way for another profiler |\n"
    return out


if __name__ == "__main__":
    generate.main(__doc__, page)
