#!/bin/bash
# tools/bench.sh NAME [args]: build, run one benchmark, print its table, write build/bench/NAME.json.
set -eu
cd "$(dirname "$0")/.."
build=${VMEM_BUILD_DIR:-build}
name=${1:-}
if [ -z "$name" ] || [ ! -e "tests/bench/$name.py" ]; then
    echo "usage: tools/bench.sh NAME [args]; NAME is one of: $(cd tests/bench && ls ./*.py | sed -n 's/^\.\/\(.*\)\.py$/\1/p' | grep -v 'lib$' | tr '\n' ' ')" >&2
    exit 2
fi
shift
tools/setup.sh >&2
[ -e "$build/build.ninja" ] || meson setup "$build" >&2
ninja -C "$build" >/dev/null || { ninja -C "$build" >&2; exit 1; }
mkdir -p "$build/bench"
exec python3 "tests/bench/$name.py" "$@"
