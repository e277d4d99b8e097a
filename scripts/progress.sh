# SPDX-License-Identifier: Apache-2.0
# What a person sees while a step of `./run test` goes on: one line that moves, on a terminal only. Sourced by test.sh.

green='' red='' plain=''
if [[ -t 1 ]]; then green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'; fi

# progress_of LOG: the last count that ninja or ctest wrote there: "built 12 459", "tested 31 1276", or nothing.
progress_of() {
    tail -c 16384 "$1" | awk '
        match($0, /^\[[0-9]+\/[0-9]+\]/) { split(substr($0, 2, RLENGTH - 2), n, "/"); last = "built " n[1] " " n[2] }
        match($0, /^ *[0-9]+\/[0-9]+ Test +#/) { split($1, n, "/"); last = "tested " n[1] " " n[2] }
        END { print last }'
}

# failures_in LOG: how many tests of ctest have failed so far.
failures_in() { grep -cE '\*\*\*(Failed|Timeout|Exception)' "$1" || true; }

# follow_step: until it is killed. The time left is that of what is counted: of the build, then of the tests.
follow_step() {
    local phase ready all before= since=$EPOCHSECONDS first=0 left
    while sleep 0.5; do
        read -r phase ready all < <(progress_of "$logs/$step.log") || continue
        [[ -n $all ]] || continue
        if [[ $phase != "$before" ]]; then before=$phase since=$EPOCHSECONDS first=$ready; fi
        left=''
        if ((ready > first)); then
            left=", about $(time_text $(((EPOCHSECONDS - since) * (all - ready) / (ready - first)))) left"
        fi
        printf '\r\e[K      %s: %s %d of %d, %s failed%s' "$step" "$phase" "$ready" "$all" \
            "$(failures_in "$logs/$step.log")" "$left"
    done
}

time_text() { if (($1 < 90)); then echo "$1 s"; else echo "$((($1 + 59) / 60)) min"; fi; }

# while_followed COMMAND...: runs it, with its output in the step's log. On a terminal a line that moves says how far it
# is.
while_followed() {
    local follower='' status=0
    if [[ -t 1 ]]; then
        follow_step &
        follower=$!
    fi
    "$@" >>"$logs/$step.log" || status=$?
    if [[ -n $follower ]]; then
        kill "$follower"
        wait "$follower" 2>/dev/null || true
        printf '\r\e[K'
    fi
    return "$status"
}
