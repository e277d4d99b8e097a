#!/usr/bin/env bash
# callgrind_rdma.sh VERBS_CALL SOFTNIC [--functions]: how many instructions a round trip over `rdma` takes, both ends
# together, beside a ping-pong that uses libibverbs itself; by object. The emulated device's own work (softnic does it inside
# the program's calls, in `runner::help`) is not counted. The last line is what the library adds.
set -euo pipefail
program=${1:?usage: callgrind_rdma.sh path/to/verbs_call path/to/softnic}
softnic=${2:?usage: callgrind_rdma.sh path/to/verbs_call path/to/softnic}
functions=${3:-}
count=2048
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

# One line for each function in which instructions were counted: number, object, function.
profile() {
    local out=$files/$1.out
    LD_BIND_NOW=1 "$softnic" run --mode deterministic --fabric "callgrind-$$" -- \
        valgrind --tool=callgrind --toggle-collect="*measured_$1*" --toggle-collect="*runner::help*" \
        --callgrind-out-file="$out" "$program" "$1" $count \
        >"$files/log" 2>&1 || { cat "$files/log" >&2; return 1; }
    callgrind_annotate --threshold=100 --show=Ir --auto=no "$out" | awk '
        match($0, /^ *[0-9,]+ \([^)]*\) /) && / \[[^]]*\]$/ {
            number = $1; gsub(",", "", number)
            object = $NF; gsub(/[][]/, "", object); sub(/.*\//, "", object)
            name = substr($0, RLENGTH + 1); sub(/ \[[^]]*\]$/, "", name); sub(/^[^:]*:/, "", name); sub(/^ +/, "", name)
            printf "%d\t%s\t%s\n", number, object, name
        }' >"$files/$1"
}

profile bare
profile ours
awk -F '\t' -v count=$count '
    function role(object) { return object ~ /softnic/ ? "device" : object ~ /^verbs_call/ ? "program" : object }
    FNR == NR { bare[role($2)] += $1; seen[role($2)]; next }
    { ours[role($2)] += $1; seen[role($2)] }
    END {
        printf "%-34s %8s %8s %8s\n", "instructions a round trip", "bare", "ours", "more"
        for (object in seen) {
            if (object == "device") continue  # what is left of it: the way to `runner::help`
            b = bare[object] / count; o = ours[object] / count; tb += b; to += o
            if (b >= 0.5 || o >= 0.5)
                printf "%-34s %8.0f %8.0f %8.0f\n", object == "program" ? "program and library" : object, b, o, o - b | "sort"
        }
        close("sort")
        printf "%-34s %8.0f %8.0f %8.0f\n", "all", tb, to, to - tb
        printf "%.0f\n", to - tb
    }' "$files/bare" "$files/ours"
if [[ $functions == --functions ]]; then
    for each in bare ours; do
        echo "$each, by function:"
        awk -F '\t' -v count=$count '$2 !~ /softnic/ && $1 / count >= 0.5 { printf "%8.1f  %-20s %s\n", $1 / count, $2, $3 }' "$files/$each"
    done
fi
