#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Wheels of PyPI under softnic: NIXL (with UCX and libmlx5 of its own) and Mooncake (with the system's); Open MPI (of
# the distribution) over UCX and over its own verbs, by mpi4py.
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
wheels=(numpy==1.26.4 nixl-cu12==1.5.1 mooncake-transfer-engine-non-cuda==0.3.13.post1 mpi4py==4.1.2)
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
case $program in mpi_*) command -v mpirun > /dev/null || skip "mpirun is not installed" ;; esac
mkdir -p "$folder"
exec 9> "$folder/lock"
flock 9
[ -e "$ready" ] || install || skip "the wheels cannot be installed: ${wheels[*]}"
exec 9>&-

# Ports of RoCE have addresses that the machine has no routes to, for which UCX would look.
export UCX_TLS=rc_x UCX_NET_DEVICES=mlx5_0:1 UCX_IB_ROCE_REACHABILITY_MODE=all
python=$folder/environment/bin/python
case $program in
    mpi_ucx) mpi="--mca pml ucx --mca osc ^ucx" ;;
    mpi_openib)
        mpi="--mca pml ob1 --mca btl openib,self --mca btl_openib_allow_ib 1 --mca btl_openib_if_include mlx5_0"
        ;;
    *) command=("$python" "$here/wheels.py" "$program") ;;
esac
if [ -n "${mpi:-}" ]; then
    # Both ranks are children of mpirun, which otherwise looks for ssh, and refuses to run for root.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # shellcheck disable=SC2086  # options are words
    command=(mpirun --oversubscribe -n 2 --mca plm isolated --mca btl_openib_warn_no_device_params_found 0 $mpi
        "$python" "$here/mpi.py")
fi
timeout 100 "$softnic" run --fabric "$fabric" "$@" -- "${command[@]}"
