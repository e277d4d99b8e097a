#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Everything CI does for softnic: packages, build, tests, sanitizers, fuzz smoke. Prints a plain summary.
#   tools/softnic/test.sh [BUILD_DIRECTORY]
# SOFTNIC_TEST_JOBS: compile jobs (default: cores). SOFTNIC_FUZZ_SECONDS: for each target (default 20).
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$here/../../build/softnic-ci}
jobs=${SOFTNIC_TEST_JOBS:-$(nproc)}
fuzz_seconds=${SOFTNIC_FUZZ_SECONDS:-20}
mkdir -p "$build/logs"
summary=()
failed=0

# A step: its name, then the command. Output goes to a log, the end of it to the screen when it fails.
step() {
    local name=$1 start=$SECONDS
    shift
    local log="$build/logs/${name// /-}.log"
    if "$@" > "$log" 2>&1; then
        summary+=("ok    $name ($((SECONDS - start)) s)")
    else
        summary+=("FAIL  $name ($((SECONDS - start)) s): $log")
        failed=1
        grep -E "FAILED|Failed|error:|ERROR|WARNING: ThreadSanitizer" "$log" | head -n 30
        tail -n 25 "$log"
    fi
}

skip() { summary+=("skip  $1"); }

packages=(cmake ninja-build g++ clang libibverbs-dev ibverbs-providers ibverbs-utils perftest ucx-utils libfmt-dev
    libcli11-dev libgtest-dev)
missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q "ok installed" || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ]; then
        echo "installing: ${missing[*]}"
        step "packages" sh -c "apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq ${missing[*]}"
    else
        echo "not root, and missing: ${missing[*]}"
        skip "packages: ${missing[*]} missing, their tests will be skipped"
    fi
fi

launcher=()
command -v ccache > /dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

configure() { # directory, then options
    local directory=$1
    shift
    cmake -G Ninja -S "$here" -B "$build/$directory" "${launcher[@]}" "$@"
}

# The plain build, with gcc: unit tests, stock libraries, stock programs.
step "configure gcc" configure gcc -DCMAKE_CXX_COMPILER=g++
step "build gcc" cmake --build "$build/gcc" -j "$jobs"
step "unit tests" ctest --test-dir "$build/gcc" -L unit -j "$jobs" --output-on-failure --timeout 120
step "stock libraries" ctest --test-dir "$build/gcc" -L verbs --output-on-failure
step "stock programs" ctest --test-dir "$build/gcc" -L programs --output-on-failure
grep -E "Skipped" "$build/logs/stock-programs.log"

# clang with the address and undefined-behaviour sanitizers: unit tests again, and the fuzz targets.
if command -v clang++ > /dev/null; then
    step "configure clang, sanitized" configure asan -DCMAKE_CXX_COMPILER=clang++ -DSOFTNIC_FUZZ=ON \
        -DSOFTNIC_SANITIZE=address,undefined
    step "build clang, sanitized" cmake --build "$build/asan" -j "$jobs" \
        --target softnic_unit_tests softnic_property_test softnic_fuzz_wqe softnic_fuzz_ioctl
    export ASAN_OPTIONS=allow_user_segv_handler=1:detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
    step "unit tests, address and undefined" ctest --test-dir "$build/asan" -L unit -j "$jobs" --output-on-failure \
        --timeout 240
    for target in wqe ioctl; do
        mkdir -p "$build/corpus-$target"
        step "fuzz $target, $fuzz_seconds s" "$build/asan/fuzz/softnic_fuzz_$target" -max_total_time="$fuzz_seconds" \
            -timeout=10 -rss_limit_mb=4096 "$build/corpus-$target" "$here/fuzz/corpus/$target"
    done
    step "configure thread" configure tsan -DCMAKE_CXX_COMPILER=clang++ -DSOFTNIC_SANITIZE=thread
    step "build thread" cmake --build "$build/tsan" -j "$jobs" --target softnic_unit_tests
    step "unit tests, thread" "$build/tsan/tests/softnic_unit_tests" \
        --gtest_filter="threads.*:fabric.*:lossy*:pair.*" --gtest_brief=1
else
    skip "sanitizers and fuzzing: no clang++"
fi

echo
echo "softnic: summary after $SECONDS s"
printf '  %s\n' "${summary[@]}"
exit $failed
