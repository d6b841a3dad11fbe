#!/bin/bash
# tests/frameworks/run.sh [--old] [--starts N] [--jobs N] [ROW...]: PyTorch's official wheels, unmodified, on the
# simulated GPU.
# --jobs N carries out N rows at a time (a row takes up to 3 GiB of memory).
# Makes a virtual environment of pinned wheels (--old: the older pair, for the rows marked so), then runs the
# rows of rows.py in one process each, bare and under libvmem.so. --list names them; --print-python
# makes the environment only and prints its Python.
# VMEM_PYTHON and VMEM_PYTHON_OLD name Pythons to use instead; wheels and environments are kept in VMEM_CACHE
# (default ~/.cache/vmem). Last line: N passed, N failed, N skipped.
set -eu
cd "$(dirname "$0")"
cache=${VMEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vmem}
packages="torch==2.15.0 torchvision==0.29.2"
given=${VMEM_PYTHON:-}
old=
if [ "${1:-}" = --old ]; then
    shift
    old=--old
    packages="torch==2.9.1 torchvision==0.24.1"
    given=${VMEM_PYTHON_OLD:-}
fi

# environment PACKAGES...: a Python that has them; made once, kept by the name of what is in it.
environment() {
    local folder
    folder=$cache/torch-$(echo "$* $(python3 -V)" | sha256sum | cut -c1-12)
    if [ ! -e "$folder/complete" ]; then
        echo "making $folder" >&2
        rm -rf "$folder"
        python3 -m venv "$folder" >&2
        PIP_CACHE_DIR=$cache/pip "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
            numpy "$@" >&2
        touch "$folder/complete"
    fi
    echo "$folder/bin/python"
}

[ "${1:-}" != --list ] || exec python3 rows.py --python python3 $old --list
# shellcheck disable=SC2086
python=${given:-$(environment $packages)}
if [ "${1:-}" = --print-python ]; then
    echo "$python"
    exit
fi
exec python3 rows.py --python "$python" $old "$@"
