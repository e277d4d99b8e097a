#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Wheels of PyPI under softnic: NIXL (with UCX and libmlx5 of its own) and Mooncake (with the system's).
# Usage: wheels.sh SOFTNIC PROGRAM FOLDER [OPTION of `softnic run`...]
# FOLDER gets a virtual environment, once. Exit status 77: the wheels cannot be had here.
set -u
softnic=$1
program=$2
folder=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
fabric=wheels-$program-$$
trap 'rm -f "/dev/shm/softnic-$(id -u)-$fabric"' EXIT

# Without what they depend on: PyTorch and CUDA are large, and not used here.
wheels=(numpy==1.26.4 nixl-cu12==1.5.1 mooncake-transfer-engine-non-cuda==0.3.13.post1)
ready=$folder/$(printf '%s\n' "${wheels[@]}" | md5sum | cut -c1-8).ready

skip() { echo "skipped: $*"; exit 77; }

install() {
    rm -rf "$folder/environment"
    python3 -m venv "$folder/environment" || return
    timeout 200 "$folder/environment/bin/pip" --disable-pip-version-check install -q --no-deps --only-binary :all: \
        "${wheels[@]}" || return
    touch "$ready"
}

command -v python3 > /dev/null || skip "python3 is not installed"
mkdir -p "$folder"
exec 9> "$folder/lock"
flock 9
[ -e "$ready" ] || install || skip "the wheels cannot be installed: ${wheels[*]}"
exec 9>&-

# Ports of RoCE have addresses that the machine has no routes to, for which UCX would look.
export UCX_TLS=rc_x UCX_NET_DEVICES=mlx5_0:1 UCX_IB_ROCE_REACHABILITY_MODE=all
timeout 100 "$softnic" run --fabric "$fabric" "$@" -- "$folder/environment/bin/python" "$here/wheels.py" "$program"
