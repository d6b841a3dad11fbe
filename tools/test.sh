#!/bin/bash
# tools/test.sh [meson test args]: set up, build and pass every test. Last line: N passed, N failed, N skipped.
set -u
cd "$(dirname "$0")/.."
build=${VMEM_BUILD_DIR:-build}
tools/setup.sh || exit 1
[ -e "$build/build.ninja" ] || meson setup "$build" || exit 1
ninja -C "$build" || exit 1
meson test -C "$build" --no-rebuild --print-errorlogs "$@"
status=$?
python3 tools/count_tests.py "$build/meson-logs/testlog.json"
exit $status
