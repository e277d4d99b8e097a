#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Where the kernel has RDMA devices of its own, programs under softnic see softnic's and only those, and work.
# Usage: kernel_rdma.sh SOFTNIC. Exit status 77: the kernel has none.
set -eu
softnic=$1
own=$(ls /sys/class/infiniband 2> /dev/null | head -n 1)
[ -n "$own" ] || { echo "skipped: this kernel has no RDMA device"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ibv_devices | grep "$own" >/dev/null || { echo "FAIL the stock library does not find $own"; exit 1; }
"$softnic" run --fabric kernel -- ibv_devices > "$work/devices"
grep -q mlx5_0 "$work/devices" || { echo "FAIL no softnic device"; exit 1; }
if grep -q "$own" "$work/devices"; then echo "FAIL $own shows under softnic"; exit 1; fi
"$softnic" run --fabric kernel -- ibv_rc_pingpong -d mlx5_0 -c -n 20 > "$work/server" 2>&1 &
sleep 3
"$softnic" run --fabric kernel -- ibv_rc_pingpong -d mlx5_0 -c -n 20 127.0.0.1
wait $!
echo "ok   beside $own: mlx5_0 alone is seen, and works"
