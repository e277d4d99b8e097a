#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# crossed_files.sh PROGRAMS local|tcp|rdma [SOFTNIC]: the files of the library that one request crosses, at both ends.
# PROGRAMS is the folder of `local_call` and `verbs_call`, compiled with line numbers. Two minutes build them:
#     cmake --preset release -B build/lines "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -g1 -DNDEBUG" -DCMAKE_UNITY_BUILD=ON
#     cmake --build build/lines --target local_call verbs_call softnic_cli
set -euo pipefail
usage='usage: crossed_files.sh path/to/programs local|tcp|rdma [path/to/softnic]'
programs=${1:?$usage}
scheme=${2:?$usage}
softnic=${3:-$programs/softnic}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

count() {
    local tool=(valgrind --tool=callgrind --callgrind-out-file="$files/$1")
    if [[ $scheme == rdma ]]; then
        LD_BIND_NOW=1 "$softnic" run --mode deterministic --fabric "crossed-$$" -- \
            "${tool[@]}" --toggle-collect='*measured_ours*' "$programs/verbs_call" ours "$1"
    else
        "${tool[@]}" "$programs/local_call" "$1" "$scheme"
    fi >"$files/log" 2>&1 || { cat "$files/log" >&2; return 1; }
}

count 512
count 2560
"$here/crossed_files.py" --calls 2048 "$files/512" "$files/2560"
