#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs nobody here wrote, under softnic: ibverbs-utils, perftest, ucx-utils, qperf, libfabric.
# Usage: programs.sh SOFTNIC GROUP [UCX_CHECK]
# Exit status 77: the program of this group is not installed.
set -u
softnic=$1
group=$2
ucx_check=${3:-}
fabric=programs-$group-$$
work=$(mktemp -d)
failures=0
trap 'rm -rf "$work" "/dev/shm/softnic-$(id -u)-$fabric"' EXIT

need() {
    for program in "$@"; do
        command -v "$program" > /dev/null || { echo "skipped: $program is not installed"; exit 77; }
    done
}

run() { "$softnic" run --fabric "$fabric" ${options:-} "${faults[@]}" -- timeout "${limit:-60}" "$@"; }
faults=()
fired=0

# The line of counters does not begin a line where a program leaves one unfinished until it ends (perftest does).
count_faults() { # outputs
    fired=$((fired + $(cat "$@" | sed -n 's/.*softnic: node .* faults \([0-9]*\) .*/+\1/p' | tr -d '\n') + 0))
}
export SOFTNIC_STATS=1

# Below those that the kernel gives to others.
port=$((10000 + $$ % 20000))

# The pingpongs end without a word to each other: if the last acknowledgement is lost, the end that waits for it asks in
# vain, as on hardware. The other has then seen and checked everything.
left_early() { # status of the end that left, output and status of the other
    [ ${#faults[@]} -gt 0 ] && [ "$1" = 0 ] && [ "$3" != 0 ] && grep -q "transport retry counter exceeded" "$2"
}

# Server and client of one program, on a TCP port of their own for the exchange of addresses. $only_server and
# $only_client: further arguments of one of them.
pair() {
    port=$((port + 1))
    run "$@" ${only_server:-} "$port_option" "$port" > "$work/server" 2>&1 &
    local server=$!
    for _ in $(seq 100); do
        grep -q ":$(printf %04X "$port") .* 0A " /proc/net/tcp /proc/net/tcp6 2> /dev/null && break
        sleep 0.05
    done
    run "$@" ${only_client:-} "${client_port_option:-$port_option}" "$port" 127.0.0.1 > "$work/client" 2>&1
    local client_status=$?
    wait "$server"
    local server_status=$?
    count_faults "$work/client" "$work/server"
    if [ $client_status = 0 ] && [ $server_status = 0 ]; then
        echo "ok   $*"
    elif left_early $client_status "$work/server" $server_status ||
        left_early $server_status "$work/client" $client_status; then
        echo "ok   $* (one end left before its last acknowledgement had arrived)"
    else
        echo "FAIL $* (client $client_status, server $server_status)"
        tail -n 5 "$work/client" "$work/server"
        failures=$((failures + 1))
    fi
}

check() { # description, then a command that must succeed
    local what=$1
    shift
    if "$@"; then
        echo "ok   $what"
    else
        echo "FAIL $what"
        failures=$((failures + 1))
    fi
}

pingpongs() {
    need ibv_rc_pingpong
    port_option=-p
    pair ibv_rc_pingpong -c -n 200
    pair ibv_rc_pingpong -e -c -n 200
    pair ibv_rc_pingpong -c -s 1 -n 100
    pair ibv_rc_pingpong -c -s 65536 -n 50
    pair ibv_rc_pingpong -c -s 1000000 -m 1024 -n 5
    pair ibv_ud_pingpong -c -n 100
    pair ibv_ud_pingpong -e -n 100
    pair ibv_srq_pingpong -c -n 200
    pair ibv_srq_pingpong -e -n 200
}

# A lost datagram is lost, and ibv_ud_pingpong then waits for ever, as on hardware. So: short runs, each of which ends
# well or is cut off; never with wrong data (-c) or an error. The seeds are fixed: so is what is lost.
datagram_pingpongs() {
    need ibv_ud_pingpong
    local completed=0 cut_off=0 lost round server client_status server_status
    limit=3
    mkdir "$work/traces"
    for round in $(seq 8); do
        port=$((port + 1))
        faults=(--fault "drop p=0.01 seed=$round" --trace "$work/traces")
        run ibv_ud_pingpong -c -n 30 -p "$port" > "$work/server" 2>&1 &
        server=$!
        for _ in $(seq 40); do
            grep -q ":$(printf %04X "$port") .* 0A " /proc/net/tcp /proc/net/tcp6 2> /dev/null && break
            sleep 0.05
        done
        run ibv_ud_pingpong -c -n 30 -p "$port" 127.0.0.1 > "$work/client" 2>&1
        client_status=$?
        wait "$server"
        server_status=$?
        case $client_status,$server_status in
            0,0) completed=$((completed + 1)) ;;
            0,124 | 124,0 | 124,124) cut_off=$((cut_off + 1)) ;;
            *) check "ibv_ud_pingpong, seed $round (client $client_status, server $server_status)" false
                tail -n 5 "$work/client" "$work/server" ;;
        esac
    done
    lost=$(cat "$work"/traces/* | grep -c " drop ")
    check "ibv_ud_pingpong -c: $completed runs completed, $cut_off cut off" test $completed -gt 0
    check "datagrams were lost: $lost" test "$lost" -gt 0
    faults=()
}

reliable_pingpongs() {
    need ibv_rc_pingpong
    port_option=-p
    pair ibv_rc_pingpong -c -n 300
    pair ibv_rc_pingpong -e -c -n 200
    pair ibv_rc_pingpong -c -s 100000 -m 1024 -n 20
    pair ibv_srq_pingpong -c -n 200
}

perf() {
    need ib_write_lat
    port_option=-p
    local common="-d mlx5_0 -F"
    for program in ib_write_lat ib_send_lat ib_read_lat ib_atomic_lat; do pair $program $common -n 200; done
    for program in ib_write_bw ib_send_bw ib_read_bw ib_atomic_bw; do pair $program $common -n 200; done
}

perf_shapes() {
    need ib_write_lat
    port_option=-p
    local common="-d mlx5_0 -F"
    for program in ib_send_lat ib_read_lat ib_atomic_lat; do pair $program $common -e -n 100; done
    for program in ib_send_bw ib_read_bw; do pair $program $common -e -q 4 -n 100; done
    pair ib_write_bw $common -q 4 -n 100
    for program in ib_write_bw ib_send_bw ib_read_bw; do pair $program $common -q 4 -l 8 -n 200 -s 1024; done
    for program in ib_write_bw ib_send_lat ib_read_bw; do pair $program $common -D 2; done
    pair ib_send_bw -d mlx5_0 -F -c UD -s 2048 -n 200
}

perf_large() {
    need ib_write_lat
    port_option=-p
    for program in ib_write_bw ib_send_bw ib_read_bw; do pair $program -d mlx5_0 -F -s 8388608 -n 10; done
    for program in ib_write_lat ib_send_lat ib_read_lat; do pair $program -d mlx5_0 -F -s 8388608 -n 10; done
    pair ib_write_bw -d mlx5_0 -F -a -n 20
}

# The shapes again, smaller: a lost packet costs a timeout.
perf_loss() {
    need ib_write_lat
    port_option=-p
    local common="-d mlx5_0 -F"
    for program in ib_write_lat ib_send_lat ib_read_lat ib_atomic_lat ib_write_bw ib_send_bw ib_read_bw ib_atomic_bw; do
        pair $program $common -n 100
    done
    pair ib_send_bw $common -e -q 4 -n 50
    for program in ib_write_bw ib_read_bw; do pair $program $common -q 4 -n 50; done
    pair ib_write_bw $common -q 4 -l 8 -n 200 -s 1024
    for program in ib_write_bw ib_send_bw ib_read_bw; do pair $program $common -s 8388608 -n 5; done
    pair ib_write_bw $common -D 2
}

# rc_x: rc_mlx5, with ud_mlx5 for the connection only. ucx_perftest does not check its data; ucx_data does that.
ucx() {
    need ucx_perftest
    port_option=-p
    export UCX_TLS=rc_x UCX_NET_DEVICES=mlx5_0:1 UCX_WARN_UNUSED_ENV_VARS=n
    for test in tag_lat tag_bw am_lat am_bw ucp_put_lat ucp_put_bw ucp_get ucp_add ucp_fadd ucp_swap ucp_cswap; do
        case $test in
            am_lat | am_bw) test=ucp_$test ;;
        esac
        local size=4096
        case $test in *add | *swap) size=8 ;; esac
        ucx_pair "$test" -s $size -n "${rounds:-300}" -w 10
    done
    ucx_pair tag_bw -s 1000000 -n 20 -w 2
}

# dc_x: dc_mlx5, which needs nothing else for its connections.
ucx_dynamic() {
    need ucx_perftest
    port_option=-p
    export UCX_TLS=dc_x UCX_NET_DEVICES=mlx5_0:1 UCX_WARN_UNUSED_ENV_VARS=n
    for test in tag_lat tag_bw ucp_am_bw ucp_put_lat ucp_get ucp_fadd ucp_cswap; do
        local size=4096
        case $test in *add | *swap) size=8 ;; esac
        ucx_pair "$test" -s $size -n "${rounds:-200}" -w 10
    done
    ucx_pair tag_bw -s 1000000 -n 10 -w 2
    if [ -n "$ucx_check" ]; then
        options="--trace $work/trace" check "tag, am, put, get and atomics over dc_mlx5" single "$ucx_check"
        check "its initiators, targets and receive queues are made by DevX" \
            sh -c "for made in QP DCT RMP MKEY; do grep -q \"CREATE_\$made = OK\" '$work/trace' || exit 1; done"
        UCX_IB_MLX5_DEVX=n check "the same over dc_mlx5 by verbs" single "$ucx_check"
    fi
}

ucx_pair() {
    local test=$1
    shift
    pair ucx_perftest -t "$test" "$@"
}

# UCX's own demo compares what it reads and wrote (-q); our client does so for every kind of operation.
ucx_data() {
    need io_demo
    export UCX_TLS=rc_x UCX_NET_DEVICES=mlx5_0:1 UCX_WARN_UNUSED_ENV_VARS=n
    if [ -n "$ucx_check" ]; then
        check "tag, am, put, get and atomics over rc_mlx5" single "$ucx_check"
        UCX_IB_MLX5_DEVX=n check "the same over rc_mlx5 by verbs" single "$ucx_check"
    else
        echo "skipped: softnic_ucx_check is not built (no libucx-dev)"
    fi
    # Its connections are made over TCP.
    export UCX_TLS=rc_x,tcp UCX_NET_DEVICES=mlx5_0:1,lo
    port=$((port + 1))
    run io_demo -q -p $port -d 1:300000 -o read,write > "$work/server" 2>&1 &
    local server=$!
    sleep 0.5
    check "io_demo -q: reads and writes to 300 kB" single \
        io_demo -q -p $port -n 5 -t 20 -i "${rounds:-100}" -w 4 -d 1:300000 -o read,write 127.0.0.1
    pkill -INT -f "^io_demo -q -p $port "
    wait $server
    count_faults "$work/server"
    check "io_demo counted reads and writes, and no error" grep -qE "Client exit with status 'OK'" "$work/single"
}

# A client asks the same server for one test after another, and ends it. Those with ver_ compare what they read.
qperf_tests="rc_lat rc_bi_bw rc_rdma_write_lat rc_rdma_read_bw rc_compare_swap_mr ver_rc_compare_swap ver_rc_fetch_add
    ud_lat ud_bw"
ask_qperf() {
    need qperf
    port=$((port + 1))
    run qperf -lp $port > "$work/server" 2>&1 &
    local server=$! test
    sleep 0.5
    for test in $qperf_tests; do
        check "qperf $test" single qperf -lp $port -t 1 127.0.0.1 "$test"
    done
    run qperf -lp $port 127.0.0.1 quit > "$work/client" 2>&1
    wait $server
    count_faults "$work/client" "$work/server"
}

# fi_pingpong -c compares its messages. Its reliable datagrams (ofi_rxd) are made of unreliable ones.
libfabric() {
    need fi_pingpong
    port_option=-B client_port_option=-P
    pair fi_pingpong -p "verbs;ofi_rxd" -e rdm -c -I 20
    check "by the device" grep -q 'softnic: node .* doorbells [1-9]' "$work/client"
}

# One program, whose output is shown if it fails; counts faults as pair() does.
single() {
    run "$@" > "$work/single" 2>&1
    local status=$?
    count_faults "$work/single"
    [ $status = 0 ] || tail -n 8 "$work/single"
    return $status
}

killed() {
    need ib_write_bw
    port=$((port + 1))
    run ib_write_bw -d mlx5_0 -F -D 30 -p $port > "$work/server" 2>&1 &
    sleep 1.5
    run ib_write_bw -d mlx5_0 -F -D 30 -p $port 127.0.0.1 > "$work/client" 2>&1 &
    local client=$!
    sleep 3
    # The server: the child of `timeout`, found by its own command line with this test's port.
    local victim
    victim=$(pgrep -f "^ib_write_bw -d mlx5_0 -F -D 30 -p $port\$" | head -n 1)
    check "the server is running" test -n "$victim"
    [ -n "$victim" ] && kill -KILL "$victim"
    for _ in $(seq 150); do kill -0 $client 2> /dev/null || break; sleep 0.1; done
    if kill -0 $client 2> /dev/null; then
        check "the client noticed within 15 s" false
        kill $client
    fi
    wait $client
    check "the client failed with a transport retry error" grep -q "status 12\|transport retry\|syndrom 0x81\|0x81" \
        "$work/client"
    port_option=-p
    pair ib_write_bw -d mlx5_0 -F -n 100
}

# in_shm OPTIONS COMMAND...: with a /dev/shm of its own, mounted so.
in_shm() {
    unshare -m -- sh -c 'mount -t tmpfs -o "$1" none /dev/shm && shift && exec "$@"' sh "$@" 2>&1
}
# says TEXT COMMAND...
says() {
    local said
    said=$("${@:2}")
    if [[ $said == *"$1"* ]]; then
        echo "ok   $1"
    else
        echo "FAIL ${*:2}: no '$1' in: $said"
        failures=$((failures + 1))
    fi
}
with_short_files() { (ulimit -f 1000 && "$@" 2>&1); }

# What the doctor says of /dev/shm is what programs meet there.
shared_memory() {
    need ibv_devinfo
    in_shm size=1m true >"$work/mount" || { echo "skipped: $(cat "$work/mount")"; exit 77; }
    local info=("$softnic" run -- ibv_devinfo)
    says "softnic can run programs here" in_shm size=9m "$softnic" doctor
    says mlx5_0 in_shm size=2m "${info[@]}"
    says "less than 8 MiB free" in_shm size=7m "$softnic" doctor
    says "/dev/shm is full" in_shm size=100k "${info[@]}"
    says "/dev/shm is full" in_shm size=800k "${info[@]}"
    says "/dev/shm is read-only" in_shm ro "$softnic" doctor
    says "/dev/shm is read-only" in_shm ro "${info[@]}"
    says "ulimit -f" with_short_files "$softnic" doctor
    says "ulimit -f" with_short_files "${info[@]}"
}

case $group in
    devices)
        need ibv_devices ibv_devinfo
        check "ibv_devices" sh -c "'$softnic' run --fabric $fabric -- ibv_devices | grep -q mlx5_0"
        check "ibv_devinfo -v" sh -c "'$softnic' run --fabric $fabric -- ibv_devinfo -v | grep -q PORT_ACTIVE"
        check "two devices, three ports" sh -c \
            "test \$('$softnic' run --fabric $fabric-m --devices ib+roce,roce -- ibv_devinfo | grep -c PORT_ACTIVE) = 3"
        check "RoCE GIDs" sh -c \
            "'$softnic' run --fabric $fabric-r --devices roce -- ibv_devinfo -v | grep -q 'RoCE v2'"
        rm -f "/dev/shm/softnic-$(id -u)-$fabric-m" "/dev/shm/softnic-$(id -u)-$fabric-r"
        ;;
    pingpong)
        pingpongs
        fabric=$fabric-roce options="--devices roce"
        port_option=-p
        pair ibv_rc_pingpong -c -g 1 -n 200
        pair ibv_ud_pingpong -g 3 -n 100
        rm -f "/dev/shm/softnic-$(id -u)-$fabric"
        fabric=$fabric-two options="--devices ib,ib+ib" only_server="-d mlx5_0" only_client="-d mlx5_1 -i 2"
        pair ibv_rc_pingpong -c -n 100
        pair ibv_ud_pingpong -c -n 100
        only_server="-d mlx5_1 -i 1"
        pair ibv_srq_pingpong -c -n 100
        rm -f "/dev/shm/softnic-$(id -u)-$fabric"
        ;;
    pingpong_loss) faults=(--fault "drop p=0.01 seed=$RANDOM") && reliable_pingpongs ;;
    datagram_loss) datagram_pingpongs ;;
    perftest) perf ;;
    perftest_shapes) perf_shapes ;;
    perftest_large) perf_large ;;
    perftest_loss) faults=(--fault "drop p=0.01 seed=$RANDOM") && perf_loss ;;
    ucx) ucx ;;
    ucx_loss) rounds=60 faults=(--fault "drop p=0.01 seed=$RANDOM") && ucx ;;
    ucx_dc) ucx_dynamic ;;
    ucx_dc_loss) rounds=40 faults=(--fault "drop p=0.01 seed=$RANDOM") && ucx_dynamic ;;
    ucx_data) ucx_data ;;
    ucx_data_loss) rounds=40 faults=(--fault "drop p=0.01 seed=$RANDOM") && ucx_data ;;
    qperf) ask_qperf ;;
    libfabric) libfabric ;;
    killed) killed ;;
    doctor) check "softnic doctor" "$softnic" doctor ;;
    shared_memory) shared_memory ;;
    *) echo "no group $group" && exit 2 ;;
esac
[ ${#faults[@]} = 0 ] || check "faults fired: $fired" test "$fired" -gt 0
exit $((failures > 0))
