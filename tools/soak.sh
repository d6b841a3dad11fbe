#!/bin/bash
# tools/soak.sh torture --seeds N [--first S] [--faults] [--free] [--bare] [--seconds T] | torture --shrink SEED
#     Random programs under libvmem.so. Last line: N seeds, F failures.
# tools/soak.sh fuzz [--seconds T] [READER...]
#     Coverage-guided fuzzing of each reader of files under sanitizers (clang with libFuzzer), T seconds
#     each (60). What crashes is kept in build-fuzz/found. Last line: N readers, F failures.
set -eu
cd "$(dirname "$0")/.."

torture() {
    build=${VMEM_BUILD_DIR:-build}
    tools/setup.sh >&2
    [ -e "$build/build.ninja" ] || meson setup "$build" >&2
    ninja -C "$build" >/dev/null || { ninja -C "$build" >&2; exit 1; }
    exec python3 tests/torture/soak.py torture "$@"
}

fuzz() {
    seconds=60 readers=() failed=0 build=build-fuzz
    while [ $# -gt 0 ]; do
        case $1 in
        --seconds) seconds=$2; shift 2 ;;
        *) readers+=("$1"); shift ;;
        esac
    done
    if [ ${#readers[@]} -eq 0 ]; then
        for f in tests/fuzz/fuzz_*.c; do
            f=${f##*/fuzz_}
            readers+=("${f%.c}")
        done
    fi
    command -v clang >/dev/null || { echo "fuzz: clang is needed (Debian: apt install clang)" >&2; exit 1; }
    tools/setup.sh >&2
    [ -e "$build/build.ninja" ] || CC=clang meson setup "$build" -Db_sanitize=address,undefined \
        -Dc_args=-fsanitize=fuzzer-no-link -Db_lundef=false >&2
    for r in "${readers[@]}"; do
        ninja -C "$build" "tests/fuzz/fuzz-$r" >/dev/null || { echo "fuzz: there is no reader '$r'" >&2; exit 2; }
        mkdir -p "$build/corpus/$r" "$build/found"
        if "$build/tests/fuzz/fuzz-$r" -max_total_time="$seconds" -max_len=65536 -verbosity=0 -print_final_stats=1 \
            -artifact_prefix="$build/found/$r-" "$build/corpus/$r" "tests/fuzz/corpus/$r" >"$build/$r.log" 2>&1; then
            echo "$r: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$r.log") runs in $seconds s, nothing found"
        else
            failed=$((failed + 1))
            echo "$r: failed, see $build/$r.log"
        fi
    done
    echo "${#readers[@]} readers, $failed failures"
    [ "$failed" -eq 0 ]
}

case ${1:-} in
torture) shift; torture "$@" ;;
fuzz) shift; fuzz "$@" ;;
*) sed -n 's/^# \{0,1\}//p' "$0" | sed -n '2,7p' >&2; exit 2 ;;
esac
