#!/bin/bash
# tests/gpu/run.sh [options]: everything that only a real GPU can tell, in one command, under nine minutes, without
# a network. Needs a built tree (meson setup build && ninja -C build), the driver, and for its parts the CUDA
# runtime with cuDNN and cuBLAS, and a Python with PyTorch (VMEM_PYTHON, default python3). What is missing is
# said, and the rest runs. --rehearse: on the simulated GPU. Options: --help.
set -u
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/kit.py" "$@"
