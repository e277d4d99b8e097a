#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the virtual machine of tools/rxe-vm, on rxe0: job.sh PROGRAMS RESULTS. Stock programs first, then ours. Writes
# RESULTS/counts (passed, failed, skipped; a line for each part), reports and figures. Ends with 0 if nothing failed.
# `job.sh PROGRAMS RESULTS gateway` runs only the part with the gateway.
set -uo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=$1 results=$2
passed=0 failed=0
# An emulated processor is slow, and fork costs tens of milliseconds.
export ACCEL_TEST_TIME_FACTOR=${ACCEL_TEST_TIME_FACTOR:-4}
: >"$results/counts"

check() { # check NAME COMMAND...
    if "${@:2}" >"$results/$1.log" 2>&1; then
        echo "ok: $1"
        passed=$((passed + 1))
    else
        echo "FAILED: $1"
        tail -n 40 "$results/$1.log"
        failed=$((failed + 1))
    fi
}

# run_tests NAME PROGRAM FILTER SECONDS
run_tests() {
    local log=$results/$1.log program=$programs/$2 status=0 ok skips fails
    echo "== $1: $2 --gtest_filter=$3"
    timeout -k 10 "$4" "$program" --gtest_filter="$3" --gtest_output="xml:$results/$1.xml" --gtest_color=no \
        >"$log" 2>&1 || status=$?
    ok=$(grep -c '^\[       OK \]' "$log")
    skips=$(grep -cE '^\[  SKIPPED \] .* ms\)$' "$log")
    fails=$(grep -cE '^\[  FAILED  \] .* ms\)$' "$log")
    # Without a failure, it ended before its last test, or there was none.
    if ((fails == 0 && status != 0 && status != 77)); then fails=1; fi
    if ((fails != 0)); then
        grep -E '^\[  FAILED  \]|Failure$' -A3 "$log"
        tail -n 40 "$log"
    fi
    echo "$ok passed, $fails failed, $skips skipped; exit status $status"
    echo "$ok $fails $skips" >>"$results/counts"
    failed=$((failed + fails))
}
# The digits service through the gateway: once all of it processes, with rdma at both ends; then each pair of transports
# with rdma at an end, then servers and gateways that are killed and started again.
gateway_part() {
    local passed=0 failed=0
    check gateway_digits "$tests/serving/gateway/digits_through.sh" "$programs" rdma-rdma
    echo "$passed $failed 0" >>"$results/counts"
    run_tests gateway gateway_tests "*pairs_of_transports*rdma*:*gateway_soak*rdma:-*gdr*" 300
    ((failed == 0))
}
if [[ ${3:-} == gateway ]]; then
    gateway_part
    exit
fi

ipv4_gid() { grep -l '^0000:0000:0000:0000:0000:ffff:' /sys/class/infiniband/rxe0/ports/1/gids/* | head -n 1; }
gid=$(basename "$(ipv4_gid)")
here=10.77.0.1

# Both stock programs listen on port 18515 (0x4853); state 0A is listening.
listens() { grep -qE ':4853 [0-9A-F]+:0000 0A ' /proc/net/tcp /proc/net/tcp6; }

# two_ends PROGRAM...: a server, and a client as soon as the server listens.
two_ends() {
    timeout 60 "$@" &
    local server=$! i
    for ((i = 0; i < 50; ++i)); do
        listens && break
        sleep 0.2
    done
    timeout 60 "$@" "$here" && wait "$server"
}
devinfo() { ibv_devinfo -d rxe0 | tee /dev/stderr | grep -q PORT_ACTIVE; }

check ibv_devinfo devinfo
check ibv_rc_pingpong two_ends ibv_rc_pingpong -d rxe0 -g "$gid" -n 1000
check ibv_rc_pingpong_events two_ends ibv_rc_pingpong -d rxe0 -g "$gid" -n 200 -e
check ib_write_lat two_ends ib_write_lat -d rxe0 -x "$gid" -s 64 -n 1000
check ib_write_bw two_ends ib_write_bw -d rxe0 -x "$gid" -s 65536 -n 500
check accel_doctor bash -c "'$programs/accel_doctor' | tee /dev/stderr | grep -q 'rdma *yes *rxe0'"
grep -h 'usec/iter' "$results/ibv_rc_pingpong.log" | tail -n 1
for one in ib_write_lat ib_write_bw; do
    grep -A1 '#bytes' "$results/$one.log" | tail -n 2 # both ends print the same
done
echo "$passed $failed 0" >>"$results/counts"

# Faults of the device are softnic's alone. To fill a gibibyte takes an emulated processor two minutes: softnic's again.
elsewhere="verbs_devices.*:rdma_busy.*:*rdma_faults.*:*rdma_device_faults.*:faulty_device.*:*gibibyte"
# What makes and copies memory for most of its time, on the host: softnic's, and those of `./run test --weekly rxe`.
if [[ ${ACCEL_TEST_SCOPE:-} != weekly ]]; then
    elsewhere+=":*gpu_service.gives_long_copies_*:*gpu_client.copies_long_payloads_*:rdma_idle_session.*"
fi
run_tests rdma rdma_tests "-$elsewhere" 600
run_tests kernels_rdma kernels_rdma_tests "-$elsewhere" 600
# suites SCHEME SUITE...: a filter.
suites() { printf "backends/%s.*/$1:" "${@:2}"; }
# Suites of calls, which the device carries. Faults of the control plane are no matter of the device.
# `./run test --all` has heard enough here: softnic runs all suites.
if [[ ${ACCEL_TEST_SCOPE:-} != weekly ]]; then
    run_tests conformance conformance_tests "$(suites rdma sizes random_calls answers death)" 900
    ((failed == 0))
    exit
fi
of_calls=(sizes random_calls answers deadlines cancelling reconnecting)
run_tests conformance conformance_tests "*/rdma:-backends/leaks.*:backends/faults.*" 900
# This kernel encrypts what is sent.
run_tests tcp_tls_links unit_tests "tcp_tls.*:kernel_tls*.*" 200
in_kernel() { grep '^TlsTxSw' /proc/net/tls_stat | tee /dev/stderr | awk '$2 == 0 { exit 1 }'; }
before=$failed
check kernel_tls in_kernel
echo "$((1 - failed + before)) $((failed - before)) 0" >>"$results/counts"

gateway_part || failed=$((failed + 1))

# The device has no queues that a GPU could drive, and no faults to order.
run_tests services service_tests "*proxy*:device_engine_choice.*-*device_faults*" 600
# A worker in a kernel's place, by the proxy. A message of rxe0 has at most 8 MiB, and such a response is not divided.
run_tests conformance_gpu conformance_tests "$(suites gpu "${of_calls[@]}")-backends/sizes.large_messages*" 400
ACCEL_TEST_ENCRYPT=1 run_tests tcp_tls conformance_tests "$(suites tcp "${of_calls[@]}" waiting)" 400
# 250 connects instead of 4,000.
ACCEL_TEST_TIME_FACTOR=16 run_tests leaks conformance_tests "backends/leaks.*/rdma" 300
echo "== accel_bench --rdma"
"$programs/accel_bench" --rdma --quick --json "$results/bench.json" || failed=$((failed + 1))
((failed == 0))
