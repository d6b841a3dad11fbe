#!/bin/bash
# Installs what the build needs on a Debian machine, if it is not there. Quiet when nothing is missing.
set -eu
need=()
command -v meson >/dev/null || need+=(meson)
command -v ninja >/dev/null || need+=(ninja-build)
command -v gcc >/dev/null || need+=(gcc)
command -v pkg-config >/dev/null || need+=(pkg-config)
command -v python3 >/dev/null || need+=(python3)
[ -e /usr/include/uthash.h ] || need+=(uthash-dev)
[ -e /usr/include/cjson/cJSON.h ] || need+=(libcjson-dev)
[ -e /usr/include/criterion/criterion.h ] || need+=(libcriterion-dev)
[ ${#need[@]} -eq 0 ] && exit 0
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
echo "installing: ${need[*]}"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "${need[@]}" >/dev/null
