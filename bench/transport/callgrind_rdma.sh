#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# callgrind_rdma.sh VERBS_CALL SOFTNIC [--functions]: how many instructions a round trip over `rdma` takes, both ends
# together, beside a ping-pong that uses libibverbs itself: `ours` drives the device's queues directly, `verbs` is the
# library by way of libibverbs. The emulated device's own work is left out: softnic does it inside the program's calls,
# all of it in `runner::help` and, where no call of libmlx5 makes it look, in `drive_device`. The last line is what the
# library adds.
set -euo pipefail
usage='usage: callgrind_rdma.sh path/to/verbs_call path/to/softnic [--functions]'
program=${1:?$usage}
softnic=${2:?$usage}
functions=${3:-}
count=2048
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

# Lines "number, object, function" from what callgrind_annotate prints.
lines() {
    callgrind_annotate --threshold=100 --show=Ir --auto=no "$@" | awk '
        match($0, /^ *[0-9,]+ \([^)]*\) /) && / \[[^]]*\]$/ {
            number = $1; gsub(",", "", number)
            object = $NF; gsub(/[][]/, "", object); sub(/.*\//, "", object)
            name = substr($0, RLENGTH + 1); sub(/ \[[^]]*\]$/, "", name); sub(/^[^:]*:/, "", name); sub(/^ +/, "", name)
            printf "%d\t%s\t%s\n", number, object, name
        }'
}

profile() {
    local out=$files/$1.out measured=measured_ours
    if [[ $1 == bare ]]; then measured=measured_bare; fi
    LD_BIND_NOW=1 "$softnic" run --mode deterministic --fabric "callgrind-$$" -- \
        valgrind --tool=callgrind --toggle-collect="*$measured*" --callgrind-out-file="$out" "$program" "$1" $count \
        >"$files/log" 2>&1 || { cat "$files/log" >&2; return 1; }
    lines "$out" >"$files/$1"
    lines --inclusive=yes "$out" | awk -F '\t' '$3 ~ /softnic::runner::help\(|drive_device\(/' >"$files/$1.device"
}

profile bare
profile ours
profile verbs
awk -F '\t' -v count=$count '
    function side() { match(FILENAME, /(bare|ours|verbs)(\.device)?$/); return substr(FILENAME, RSTART, RLENGTH) }
    {
        which = side()
        if (sub(/\.device$/, "", which)) { total[which] -= $1; next }
        total[which] += $1
        if ($2 ~ /^verbs_call/ && $3 !~ /drive_device\(/) program[which] += $1
        if ($2 ~ /^libmlx5/) driver[which] += $1
    }
    function row(name, b, o, v) {
        printf "%-28s %8.0f %8.0f %8.0f %8.0f %8.0f\n", name, b / count, o / count, v / count, \
            (o - b) / count, (v - b) / count
    }
    function rest(which) { return total[which] - program[which] - driver[which] }
    END {
        printf "%-28s %8s %8s %8s %8s %8s\n", "instructions a round trip", "bare", "ours", "verbs", "more", "more"
        row("program and library", program["bare"], program["ours"], program["verbs"])
        row("libmlx5", driver["bare"], driver["ours"], driver["verbs"])
        row("libc and others", rest("bare"), rest("ours"), rest("verbs"))
        row("all", total["bare"], total["ours"], total["verbs"])
        printf "%.0f\n", (total["ours"] - total["bare"]) / count
    }' "$files"/{bare,ours,verbs}{,.device} >"$files/table"
if [[ $functions == --functions ]]; then
    for each in bare ours verbs; do
        echo "$each, by function:"
        awk -F '\t' -v count=$count '$2 ~ /^(verbs_call|libmlx5)/ && $1 / count >= 0.5 {
            printf "%8.1f  %-20s %s\n", $1 / count, $2, $3 }' "$files/$each"
    done
fi
cat "$files/table"
