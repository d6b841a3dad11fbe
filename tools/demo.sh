#!/bin/bash
# tools/demo.sh [options]: sets everything up on a fresh clone, then trains VGG-16 with batch 256 on a
# 12 GiB card that is too small for it (simulated where there is no GPU). Options: --help.
set -eu
cd "$(dirname "$0")"
exec ./bench.sh demo "$@"
