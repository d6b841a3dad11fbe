#!/bin/bash
# tools/soak.sh torture --seeds N [--first S] [--faults] [--bare] [--seconds T] | --shrink SEED
# Builds, then runs random programs under libvmem.so. Last line: N seeds, F failures.
set -eu
cd "$(dirname "$0")/.."
build=${VMEM_BUILD_DIR:-build}
if [ "${1:-}" != torture ]; then
    echo "usage: tools/soak.sh torture --seeds N [--first S] [--faults] [--bare] [--seconds T] | torture --shrink SEED" >&2
    exit 2
fi
tools/setup.sh >&2
[ -e "$build/build.ninja" ] || meson setup "$build" >&2
ninja -C "$build" >/dev/null || { ninja -C "$build" >&2; exit 1; }
exec python3 tests/torture/soak.py "$@"
