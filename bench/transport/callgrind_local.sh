#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# callgrind_local.sh LOCAL_CALL [metrics]: prints how many instructions one call over `local` takes, both ends
# together: the difference of two runs, so that start and end do not count. `metrics`: with metrics on.
set -euo pipefail
program=${1:?usage: callgrind_local.sh path/to/local_call [metrics]}
shift
short=2000 long=12000

instructions_of() {
    local log
    log=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1) || {
        echo "$log" >&2
        return 1
    }
    sed -n 's/^==[0-9]*== Collected : \([0-9]*\).*/\1/p' <<<"$log"
}

few=$(instructions_of $short "$@")
many=$(instructions_of $long "$@")
echo $(((many - few + (long - short) / 2) / (long - short)))
