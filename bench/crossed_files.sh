#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# crossed_files.sh PROGRAMS SCHEME: the files of the library that one request over SCHEME (local, tcp, rdma) crosses, at
# both ends. PROGRAMS holds `local_call`, `verbs_call` and `softnic`, compiled with line numbers:
#     cmake --preset release -B build/lines -DCMAKE_CXX_FLAGS=-g1 -DACCEL_BUILD_BENCH=ON
#     cmake --build build/lines --target local_call verbs_call softnic_cli
set -euo pipefail
usage='usage: crossed_files.sh path/to/programs local|tcp|rdma'
programs=${1:?$usage}
scheme=${2:?$usage}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

count() {
    local tool=(valgrind --tool=callgrind --callgrind-out-file="$files/$1")
    if [[ $scheme == rdma ]]; then
        LD_BIND_NOW=1 "$programs/softnic" run --mode deterministic --fabric "crossed-$$" -- \
            "${tool[@]}" --toggle-collect='*measured_ours*' "$programs/verbs_call" ours "$1"
    else
        "${tool[@]}" "$programs/local_call" "$1" "$scheme"
    fi >"$files/log" 2>&1 || { cat "$files/log" >&2; return 1; }
}

count 512
count 2560
"$here/crossed_files.py" --calls 2048 "$files/512" "$files/2560"
