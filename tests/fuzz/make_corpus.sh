#!/bin/bash
# tests/fuzz/make_corpus.sh BUILD: writes the corpus anew from small runs on the simulated GPU.
set -eu
build=$(realpath "$1")
cd "$(dirname "$0")"
sim=$build/tests/simgpu
export LD_LIBRARY_PATH=$sim/driver:$sim/runtime:$sim/dnn:$sim/blas SIMGPU_PRESET=titanx-12g SIMGPU_MODE=timing
nets=../trainers/nets
trace() { # NAME trainer-arguments
    "$build/tools/vmem" run --policy none --warmup 1000 --trace "corpus/trace/$1.jsonl" -- \
        "$build/tests/trainers/trainer" "${@:2}" >/dev/null
}
mkdir -p corpus/trace corpus/plan
trace lenet-eager "$nets/lenet.net" --batch 4 --iters 2
trace lenet-upfront "$nets/lenet.net" --batch 4 --iters 2 --alloc upfront --quiet --accumulate 2
trace lstm "$nets/lstm.net" --steps 3 --iters 2 --batch 2
for t in lenet-eager lstm; do
    "$build/tools/vmem" plan "corpus/trace/$t.jsonl" --budget 70% --page 4KiB \
        -o "corpus/plan/$t.json" >/dev/null
done
