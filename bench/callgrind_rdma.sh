#!/usr/bin/env bash
# callgrind_rdma.sh VERBS_CALL SOFTNIC [--functions]: how many instructions a round trip over `rdma` takes, both ends
# together, beside a ping-pong that uses libibverbs itself. The emulated device's own work is left out: softnic does it
# inside the program's calls, all of it in `runner::help`. The last line is what the library adds.
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
    local out=$files/$1.out
    LD_BIND_NOW=1 "$softnic" run --mode deterministic --fabric "callgrind-$$" -- \
        valgrind --tool=callgrind --toggle-collect="*measured_$1*" --callgrind-out-file="$out" "$program" "$1" $count \
        >"$files/log" 2>&1 || { cat "$files/log" >&2; return 1; }
    lines "$out" >"$files/$1"
    lines --inclusive=yes "$out" | awk -F '\t' '$3 ~ /softnic::runner::help\(/' >"$files/$1.device"
}

profile bare
profile ours
awk -F '\t' -v count=$count '
    function add(which, number, object) {
        total[which] += number
        if (object ~ /^verbs_call/) program[which] += number
        if (object ~ /^libmlx5/) driver[which] += number
    }
    FILENAME ~ /device$/ { total[FILENAME ~ /bare/ ? "bare" : "ours"] -= $1; next }
    { add(FILENAME ~ /bare$/ ? "bare" : "ours", $1, $2) }
    function row(name, b, o) { printf "%-28s %8.0f %8.0f %8.0f\n", name, b / count, o / count, (o - b) / count }
    END {
        printf "%-28s %8s %8s %8s\n", "instructions a round trip", "bare", "ours", "more"
        row("program and library", program["bare"], program["ours"])
        row("libmlx5", driver["bare"], driver["ours"])
        row("libc and others", total["bare"] - program["bare"] - driver["bare"],
            total["ours"] - program["ours"] - driver["ours"])
        row("all", total["bare"], total["ours"])
        printf "%.0f\n", (total["ours"] - total["bare"]) / count
    }' "$files/bare" "$files/ours" "$files/bare.device" "$files/ours.device" >"$files/table"
if [[ $functions == --functions ]]; then
    for each in bare ours; do
        echo "$each, by function:"
        awk -F '\t' -v count=$count '$2 ~ /^(verbs_call|libmlx5)/ && $1 / count >= 0.5 {
            printf "%8.1f  %-20s %s\n", $1 / count, $2, $3 }' "$files/$each"
    done
fi
cat "$files/table"
