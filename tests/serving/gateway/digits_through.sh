#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# digits_through.sh PROGRAMS PAIR...: the digits service behind the gateway, once for each pair ("shm-tcp": clients by
# shm, the server by tcp). `load` compares every answer with the network's own.
# Exit status: that of the first that fails.
set -eu
programs=$1
shift
folder=$(mktemp -d)
server=
between=
# An emulated machine is slow.
factor=${ACCEL_TEST_TIME_FACTOR:-1}
trap 'kill $server $between 2>/dev/null || true; rm -rf "$folder"' EXIT

uri_of() {
    case $1 in
        shm) echo "shm://digits-$2-$$" ;;
        *) echo "$1://127.0.0.1:0?insecure=true" ;;
    esac
}

# Whole seconds since the machine's start. Like all of the loop below but its sleep, it starts no process.
now() {
    read -r seconds _ </proc/uptime
    now=${seconds%.*}
}

# runs PROCESS: a process that has ended stays a zombie until this shell waits for it.
runs() {
    read -r _ _ state _ 2>/dev/null <"/proc/$1/stat" && [ "$state" != Z ]
}

# endpoint FILE PROCESS PREFIX: what follows PREFIX on the first line, which says that the process is ready.
endpoint() {
    now
    until=$((now + 30 * factor))
    line=
    while ! read -r line <"$1"; do
        now
        if [ "$now" -ge $until ] || ! runs "$2"; then
            echo "no line '$3' in '$(cat "$1")'" >&2
            exit 1
        fi
        sleep 0.05
    done
    line=${line#"$3"}
    echo "${line%%[; ]*}"
}

# with_options ENDPOINT: shm takes no keys.
with_options() {
    case $1 in
        shm:*) echo "$1" ;;
        *) echo "$1?insecure=true" ;;
    esac
}

for pair in "$@"; do
    : >"$folder/server"
    : >"$folder/gateway"
    "$programs/model_server" "$(uri_of "${pair#*-}" server)" --model digits=builtin >"$folder/server" &
    server=$!
    at=$(endpoint "$folder/server" $server "serving digits at ")
    "$programs/gateway" --listen "$(uri_of "${pair%-*}" gateway)" --to "digits=$(with_options "$at")" \
        --channels 1 --slots 4 --patience $((20 * factor))s >"$folder/gateway" &
    between=$!
    at=$(endpoint "$folder/gateway" $between "forwarding at ")
    timeout $((30 * factor)) "$programs/load" "$(with_options "$at")" --model digits --clients 2 --requests 200 \
        --warm-up 1
    kill -TERM $between
    wait $between
    kill -TERM $server
    wait $server
    grep -q "402 requests.* 402 answers, errors {}" "$folder/gateway" || {
        echo "$pair: the gateway passed on $(cat "$folder/gateway")" >&2
        exit 1
    }
    tail -n 1 "$folder/gateway"
    echo "$pair: right"
done
