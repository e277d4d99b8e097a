# SPDX-License-Identifier: Apache-2.0
# `./run test`: the checks of the project, one step after another. Sourced by `run`.

# How much the steps do; steps are processes of their own, which find it in their environment.
#   newcomer  the optimised build and its tests      all     what guards a change
#   step      one step alone, all that it has        weekly  everything, also what `all` leaves out (CONTRIBUTING.md)
export ACCEL_TEST_SCOPE=${ACCEL_TEST_SCOPE:-step}
weekly() { [[ $ACCEL_TEST_SCOPE == weekly ]]; }

fuzz_seconds=${ACCEL_FUZZ_SECONDS:-5}
logs=$root/build/logs
. "$root/scripts/progress.sh"
. "$root/scripts/houses.sh"
. "$root/scripts/python.sh"

# In order of execution; the first ones find the most in the least time.
all_steps=(format sources release python programs nic demo rxe asan pyasan interop tsan fuzz install tidy manual)
declare -A step_about=(
    [format]="scripts/format.py finds nothing to change: layout, braces"
    [sources]="include rules, leftovers, paths of one machine, mutants that fit the tree"
    [release]="gcc, optimised, warnings are errors; tests (--all: those of single parts are left to asan)"
    [python]="the Python module: pytest, mypy, ruff (--weekly: its wheel)"
    [programs]="stock programs on softnic: perftest, UCX, gloo, NIXL (--weekly: MPI, libfabric, Mooncake…; with loss)"
    [nic]="./run nic-test, a short selection on softnic; its report says that the device is emulated"
    [rxe]="on Soft-RoCE in a virtual machine: stock programs, rdma's tests (--weekly: services, the gateway…)"
    [demo]="every image served over every transport, at least 97 % right; the doctor"
    [tidy]="clang-tidy finds nothing in files that have changed since all were clean (--weekly: in all)"
    [asan]="clang, warnings are errors; tests under AddressSanitizer and UndefinedBehaviorSanitizer"
    [pyasan]="pytest of the Python module under AddressSanitizer"
    [interop]="clients and servers of different compilers and build types talk to each other"
    [tsan]="tests of the library, the gateway and the model server under ThreadSanitizer (--weekly: all)"
    [fuzz]="each fuzz target for ACCEL_FUZZ_SECONDS ($fuzz_seconds)"
    [install]="installed, static and shared; used by CMake and by pkg-config; exported symbols; without kernels"
    [manual]="doxygen has nothing to complain of"
    [gpu]="on a GPU: conformance with handlers' memory there over every transport, kernels, softnic's copies"
    [gpucheck]="on a GPU: compute-sanitizer (memcheck, racecheck, initcheck) finds nothing"
    [gpudemo]="on a GPU: every image served over every transport, gdr and rdma on softnic, the emulated mlx5 device")

# Only where there is a GPU: ./run gpu-test.
gpu_steps=(gpu gpucheck gpudemo)

# A step is a function step_NAME. It runs in a shell of its own that ends at the first failure, with its output in a
# log. One that runs several tests says how many with `counted`; else the step itself is the one test.
counted() { echo "$1 $2 $3" >>"$logs/$step.counts"; }

# Compilers can wait. Tests, which may run beside them, have deadlines.
compiling=(nice -n 10)

# build_preset NAME [OPTION...] [-- TARGET...]: one at a time; the second finds its work done.
build_preset() {
    local name=$1 options=() lock
    shift
    while (($#)) && [[ $1 != -- ]]; do options+=("$1"); shift; done
    if (($#)); then set -- --target "${@:2}"; fi
    mkdir -p build
    exec {lock}>"build/$name.lock"
    flock --timeout 3600 "$lock" || { echo "another build in build/$name goes on for an hour: end it"; return 1; }
    cmake --preset "$name" "${options[@]}"
    "${compiling[@]}" cmake --build "build/$name" "$@"
    exec {lock}>&-
}

# left_out [LABEL...]: what ctest takes to leave out tests with these labels, and with "weekly" unless it is --weekly.
left_out() {
    local labels=("$@")
    weekly || labels+=(weekly)
    ((${#labels[@]} == 0)) || printf '%s\n' --label-exclude "^($(IFS='|' && echo "${labels[*]}"))$"
}

launcher=()
# Two thirds of a test's time is waiting. Those that compute more than that count as two or three (PROCESSORS). With
# three a core they would end sooner, but more of their deadlines would pass for want of a processor. Under
# AddressSanitizer they have four times the time, and wait for most of it.
tests_at_once=$((2 * CMAKE_BUILD_PARALLEL_LEVEL))
asan_tests_at_once=$((3 * CMAKE_BUILD_PARALLEL_LEVEL))

# test_preset NAME [OPTION...]: runs ctest, for the wanted houses, and counts its cases. None has a second try. Their
# output is kept whole until the cases are read from it.
test_preset() {
    local preset=$1 report=$logs/$step.$1.xml ok=0
    rm -f "$report"
    "${launcher[@]}" ctest --preset "$preset" -j "$tests_at_once" --no-tests=error --timeout 600 \
        "${whole_output[@]}" --output-junit "$report" $(house_labels) "${@:2}" || ok=$?
    count_report "$report"
    return "$ok"
}
whole_output=(--test-output-size-passed 10000000 --test-output-size-failed 10000000)

count_report() { counted $(python3 scripts/test_cases.py "$1"); }

# show_failures LOG: what was expected and what a sanitizer found, then the end of the log.
show_failures() {
    grep -E -A 5 ': Failure$|ERROR: [A-Za-z]+Sanitizer|WARNING: ThreadSanitizer|runtime error:' "$1" | cut -c1-240 |
        head -n 60 || true
    tail -n 60 "$1" | grep -vE '\((Skipped|Disabled)\)$' | tail -n 30
}

# essence_of LOG: which tests failed, what they expected, and what a fuzz target or a sanitizer found, in a few lines.
essence_of() {
    grep -E '^\s+[0-9]+ - .* \([A-Z]|^fuzz_.* failed|^broken promise|^not so: |^SUMMARY: |^Base64: |error:' "$1" |
        grep -vE '\((Skipped|Disabled)\)$' | cut -c1-400 | head -n 15 || true
    grep -E -A 4 ': Failure$' "$1" | cut -c1-200 | head -n 25 || true
}

step_format() {
    python3 scripts/format_test.py
    python3 scripts/format.py --check
}

step_sources() {
    python3 scripts/check_sources_test.py
    python3 scripts/check_sources.py
    python3 scripts/mutate_test.py
    python3 scripts/random_mutants_test.py
    python3 scripts/houses_test.py
    python3 scripts/find_tests_test.py
    python3 scripts/test_cases_test.py
    python3 scripts/test_summary_test.py
    python3 scripts/progress_test.py
    python3 scripts/packages_test.py
    python3 scripts/clean_files_test.py
    python3 scripts/mutate.py --check
    python3 scripts/nic_test_test.py
    python3 bench/kernels/stage_plot_test.py
    python3 bench/kernels/post_plot_test.py
    python3 bench/svg_shapes_test.py
    python3 bench/walked_files_test.py
    python3 examples/serving/experiments/experiments_test.py
}

# Fuzz targets run over their corpus in the step asan. Continuous integration has no GPU: one architecture is enough.
# With --all, tests of single parts and of the doors with stock clients are left to the step asan. A newcomer builds no
# benchmarks, and waits for no stock clients, but for serving alone.
step_release() {
    local bench=ON parts=ON gpu_bench=ON doors=() targets
    case $ACCEL_TEST_SCOPE in
        newcomer) bench=OFF ;;
        all) parts=OFF gpu_bench=OFF ;;
    esac
    if [[ $bench == OFF || $parts == OFF ]]; then doors=(--exclude-regex '^example_door_'); fi
    if [[ -n ${ACCEL_TEST_HOUSES:-} && $parts == ON ]]; then doors=(); fi
    if [[ $bench == ON ]]; then
        targets=$(house_build house_targets house_benchmarks)
    else
        targets=$(house_build house_targets)
    fi
    targets+=${targets:+ softnic_cli}  # tests on an RDMA device run on it
    build_preset release -DACCEL_BUILD_TESTS=ON -DACCEL_BUILD_BENCH=$bench -DACCEL_TEST_CORPUS=OFF \
        -DACCEL_TESTS_OF_PARTS=$parts -DACCEL_BUILD_GPU_BENCH=$gpu_bench ${CI:+-DCMAKE_CUDA_ARCHITECTURES=90} $targets
    test_preset release $(left_out softnic-programs) "${doors[@]}"
}

# One after another: each of these tests is two processes that spin.
step_programs() {
    build_preset release -DACCEL_BUILD_TESTS=ON $(house_build house_targets)
    tests_at_once=1 test_preset release --label-regex softnic-programs $(left_out)
}

# Tests by name: ACCEL_TEST_NAMES has one a line. Builds only what they need. A whole name is that test alone.
step_named() {
    export ACCEL_TESTS_BY=case
    local names options=(-DACCEL_BUILD_TESTS=ON -DACCEL_TESTS_OF_PARTS=ON) programs name expression wanted=()
    mapfile -t names <<<"$ACCEL_TEST_NAMES"
    cmake --preset release "${options[@]}" >/dev/null
    programs=$(python3 scripts/find_tests.py build/release "${names[@]}") ||
        { echo "no test has '${names[*]}' in its name, and no step is called so: see ./run test --list"; return 1; }
    if [[ -n $programs ]]; then
        mapfile -t programs <<<"$programs"
        build_preset release "${options[@]}" -- "${programs[@]}"
    fi
    for name in "${names[@]}"; do
        expression=$(python3 scripts/find_tests.py --expression "$name")
        if ! ctest --preset release -N -R "^$expression\$" | grep -q '^Total Tests: 0$'; then
            expression="^$expression\$"
        fi
        wanted+=("$expression")
    done
    test_preset release --tests-regex "$(IFS='|' && echo "${wanted[*]}")"
}

nic_programs=(accel_doctor conformance_tests conformance_peer service_tests kernel_client_tests)

step_nic() {
    build_release_softnic "${nic_programs[@]}"
    local ok=0
    timeout 300 python3 scripts/nic_test.py --emulated --quick || ok=$?
    counted $(<build/nic-test/counts)
    return "$ok"
}

# Reads compile commands of clang, and builds nothing; what is generated is not checked. All files take longer than the
# rest of the checks allow. .ci/tidy-base names a commit at which all were clean: each run checks what differs from it.
# --weekly checks all, because a header can break any source that includes it, and notes the commit.
step_tidy() {
    local which=due
    if weekly; then which=all; fi
    cmake --preset clang >/dev/null
    python3 scripts/clean_files.py "$which" >"$logs/tidy.files"
    echo "clang-tidy: $(wc -l <"$logs/tidy.files") files"
    xargs -r -a "$logs/tidy.files" -P "$CMAKE_BUILD_PARALLEL_LEVEL" -n 2 clang-tidy -p build/clang --quiet \
        --warnings-as-errors='*'
    if [[ $which == all ]]; then python3 scripts/clean_files.py note; fi
}

# A sanitized softnic cannot be preloaded: sanitized programs run on the release build's.
release_softnic=build/release/bin/softnic
build_release_softnic() {
    cmake --preset release -DACCEL_BUILD_TESTS=ON -DACCEL_BUILD_BENCH=ON
    "${compiling[@]}" cmake --build build/release --target softnic_cli "$@"
}

# The tests under AddressSanitizer, and the fuzz targets, which share the library.
build_asan() { build_preset asan "-DACCEL_TEST_NIC=$root/$release_softnic" "$@"; }
build_tsan() {
    local targets
    if weekly; then targets=$(house_build house_targets); else targets="-- $(of_houses house_tsan_programs)"; fi
    build_preset tsan "-DACCEL_TEST_NIC=$root/$release_softnic" $targets
}
prepare_asan() { build_asan $(house_build house_targets house_fuzz_targets); }
prepare_tsan() { build_tsan; }
prepare_fuzz() { build_asan -- $(fuzz_builds); }
prepare_install() { bash tests/install/run.sh build; }

step_asan() {
    build_release_softnic
    prepare_asan
    UBSAN_OPTIONS=print_stacktrace=1 tests_at_once=$asan_tests_at_once \
        test_preset asan $(left_out softnic-programs)
}

# One end of gcc's optimised build, the other of clang's with assertions, and the reverse.
step_interop() {
    build_release_softnic conformance_tests conformance_peer
    build_asan -- conformance_tests conformance_peer
    local suites='conformance\.(rdma|tcp|zmq)\.(death|reconnect)$'
    ACCEL_TEST_PEER=$root/build/asan/bin/conformance_peer test_preset release --tests-regex "$suites"
    ACCEL_TEST_PEER=$root/build/release/bin/conformance_peer test_preset asan --tests-regex "$suites"
}

step_tsan() {
    build_release_softnic
    build_tsan
    # Older ThreadSanitizers do not start where more than 28 bits of an address are random.
    if (($(</proc/sys/vm/mmap_rnd_bits) > 28)); then launcher=(setarch -R); fi
    local wanted=()
    if ! weekly; then
        wanted=(--tests-regex "^(conformance|unit|gateway|$(echo $(of_houses house_tsan_programs) | tr ' ' '|'))(\.|$)")
    fi
    test_preset tsan "${wanted[@]}" $(left_out softnic-programs)
}

fuzz_builds() { if [[ -n ${ACCEL_TEST_HOUSES:-} ]]; then of_houses house_fuzz_targets; else echo fuzz_programs; fi; }

step_fuzz() {
    prepare_fuzz
    mkdir -p build/fuzz/found
    rm -f build/fuzz/found/*.{passed,failed}
    local corpus targets=() ok=0
    for corpus in $(find $(of_houses house_corpora) -mindepth 1 -maxdepth 1 | sort); do
        if [[ -x build/asan/bin/fuzz_${corpus##*/} ]]; then targets+=("$corpus"); fi
    done
    ((${#targets[@]})) || { echo "no fuzz targets"; return 1; }
    export -f fuzz_one
    export fuzz_seconds
    printf '%s\n' "${targets[@]}" | xargs -P "$CMAKE_BUILD_PARALLEL_LEVEL" -I{} bash -c 'fuzz_one {}' || ok=$?
    counted "$(find build/fuzz/found -name '*.passed' | wc -l)" "$(find build/fuzz/found -name '*.failed' | wc -l)" 0
    return "$ok"
}

# fuzz_one CORPUS: the target fuzz_SUBJECT from its committed CORPUS, whose folder is named SUBJECT; new inputs and
# crashes stay in build/fuzz/found.
fuzz_one() {
    local target=fuzz_${1##*/}
    local found=build/fuzz/found/$target
    rm -rf "$found"
    mkdir -p "$found"
    if timeout "$((fuzz_seconds + 120))" "build/asan/bin/$target" -max_total_time="$fuzz_seconds" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$found." "$found" "$1" >"$found.log" 2>&1; then
        grep -E 'stat::number_of_executed_units|cov:' "$found.log" | tail -n 2 | sed "s/^/$target: /"
        touch "$found.passed"
    else
        echo "$target failed:"
        tail -n 60 "$found.log"
        touch "$found.failed"
        return 1
    fi
}

step_install() {
    bash tests/install/run.sh
    counted "$(grep -c '^ok: ' "$logs/install.log")" 0 0
}

step_manual() {
    mkdir -p build/manual
    doxygen docs/Doxyfile
}

step_demo() {
    build_release_softnic digits_demo accel_doctor
    timeout 300 build/release/bin/digits_demo --json "$logs/demo.json"
    timeout 60 build/release/bin/accel_doctor --json | python3 -m json.tool
    python3 scripts/check_demo.py "$logs/demo.json"
    timeout 120 $release_softnic run -- build/release/bin/digits_demo --only rdma,local,shm,tcp,zmq \
        --json "$logs/demo-softnic.json"
    python3 scripts/check_demo.py "$logs/demo-softnic.json" --softnic
}

gpu_build=build/gpu
configure_gpu() {
    cmake -S . -B $gpu_build -G Ninja -DCMAKE_BUILD_TYPE=Release -DACCEL_CUDA=ON -DACCEL_TEST_GPU=cuda:0 \
        -DCMAKE_CUDA_ARCHITECTURES=native "$@"
}

# What needs a GPU: the programs, and the tests among those that they belong to.
gpu_programs=(conformance_tests conformance_peer cuda_regions_tests digits_client digits_demo digits_gpu_tests
    door_gpu_programs gpu_client gpu_digits gpu_echo gpu_fault_tests gpu_paths_tests gpu_resident_tests gpu_tokens
    hello_client kernel_client_gpu_tests library_gpu_tests load_tests proxy_gpu_tests recorded_tests
    send_scopes_gpu_tests serving_models_tests shared_slots_gpu_tests softnic_cli softnic_gpu_devx softnic_gpu_pair
    softnic_gpu_test)
gpu_tests=(library_gpu_tests gpu_paths_tests 'conformance\.[a-z]+\.on_gpu' 'conformance\.gdr\.' digits_gpu_tests
    'softnic\.gpu_' kernel_client_gpu_tests gpu_resident_tests recorded_tests send_scopes_gpu_tests proxy_gpu_tests
    gpu_fault_tests serving_models_tests cuda_regions_tests shared_slots_gpu_tests load_tests.load_program example_gpu_
    'example_door_(regions_cuda|resnet50)')

# Tests that share a GPU share its time: few at once, or their bounds break. Those whose kernels stay there run alone
# (RUN_SERIAL).
step_gpu() {
    local torch=()
    find_torch
    configure_gpu "${torch[@]}"
    local report=$logs/$step.gpu.xml status=0 wanted exporting=
    if ((${#torch[@]})); then
        export ACCEL_MODELS=$root/build/models/test
        python3 examples/serving/export.py --out "$ACCEL_MODELS" --only mobilenet_v3 super_resolution & exporting=$!
    fi
    cmake --build $gpu_build --target "${gpu_programs[@]}"
    [[ -z $exporting ]] || wait "$exporting"
    wanted="^($(IFS='|' && echo "${gpu_tests[*]}"))"
    ctest --test-dir $gpu_build -j 3 --no-tests=error --timeout 600 "${whole_output[@]}" \
        --output-junit "$report" --tests-regex "$wanted" --label-exclude leak || status=$?
    count_report "$report"
    return "$status"
}

# check_on_gpu TOOL PROGRAM FILTER: at most so long that the whole of gpu-test stays within its eight minutes.
check_on_gpu() {
    ACCEL_TEST_MEMORY=cuda:0 timeout 120 compute-sanitizer --error-exitcode 9 --tool "$1" "$gpu_build/bin/$2" \
        --gtest_filter="$3" >"$logs/gpucheck.$1.$2.log" 2>&1
}

# Beside each other: the tools need a core each, and their kernels end soon.
step_gpucheck() {
    local tool job jobs=() failed=0
    for tool in memcheck racecheck initcheck; do
        check_on_gpu $tool digits_gpu_tests '*alignment*:*refuses*:*survives*:*scratch*' & jobs+=($!)
        check_on_gpu $tool send_scopes_gpu_tests '*' & jobs+=($!)
    done
    check_on_gpu memcheck conformance_tests \
        'backends/sizes.*/tcp:backends/random_calls.*/local:backends/deadlines.*/tcp' & jobs+=($!)
    for job in "${jobs[@]}"; do wait "$job" || failed=$((failed + 1)); done
    tail -n 20 "$logs"/gpucheck.*.log
    counted $((${#jobs[@]} - failed)) "$failed" 0
    ((failed == 0))
}

step_gpudemo() {
    timeout 200 $gpu_build/bin/softnic run --mode spin -- $gpu_build/bin/digits_demo --memory cuda:0 \
        --json "$logs/gpudemo.json"
    python3 scripts/check_demo.py "$logs/gpudemo.json" --softnic
}

# find_torch: options of a build with LibTorch, where there is one, in the array `torch`.
find_torch() {
    local folder=${ACCEL_TORCH:-} python=${ACCEL_PYTHON:-python3}
    if [[ -z $folder ]]; then
        folder=$("$python" -c "import importlib.util as i; print(i.find_spec('torch').submodule_search_locations[0])" \
            2>/dev/null) || folder=
    fi
    if [[ -n $folder ]]; then
        torch=(-DACCEL_EXAMPLES_TORCH=ON "-DACCEL_TORCH=$folder")
    else
        say "no PyTorch in $(command -v "$python" || echo "$python"): without LibTorch (ACCEL_PYTHON names another" \
            "python, ACCEL_TORCH the folder of LibTorch)"
    fi
}

# run_nic_test [OPTION...]: builds what it runs; where there is a GPU, the part for it as well.
run_nic_test() {
    cd "$root" || return
    local log=$logs/nic-test.log
    mkdir -p "$logs"
    say "building (log: $log)"
    build_release_softnic "${nic_programs[@]}" >"$log" 2>&1 || {
        tail -n 40 "$log" >&2
        end_with "the build failed; its whole log is $log"
    }
    if nvidia-smi -L >/dev/null 2>&1; then
        { configure_gpu && cmake --build $gpu_build --target "${nic_gpu_programs[@]}"; } >>"$log" 2>&1 ||
            say "the part for GPUs was not built (log: $log)"
    fi
    python3 scripts/nic_test.py "$@"
}
nic_gpu_programs=(gpu_resident_tests kernel_client_gpu_tests recorded_tests send_scopes_gpu_tests)

# The RDMA device is emulated: what is measured is what the library and the GPU do around it. With `girondi` first: only
# what posting costs, from the GPU and from the CPU; with `turns`: only how long a service takes from a request to the
# doorbell of its answer; with `inference`: only where the time of an inference goes; with `replay`: only what the
# library adds to a recorded model. The last two with networks of LibTorch where python3 has PyTorch, or ACCEL_TORCH
# names its folder.
run_gpu_bench() {
    cd "$root" || return
    local program=gpu_bench plot=bench/kernels/stage_plot.py torch=()
    if [[ ${1:-} == girondi ]]; then
        shift
        program=gpu_post_bench plot=bench/kernels/post_plot.py
    elif [[ ${1:-} == turns ]]; then
        shift
        program=gpu_turn_bench plot=
    elif [[ ${1:-} == inference ]]; then
        shift
        program=inference_bench
        find_torch
    elif [[ ${1:-} == replay ]]; then
        shift
        program=replay_bench plot=
        find_torch
    fi
    local json=build/gpu-bench/${program//_/-}.json status=0
    mkdir -p build/gpu-bench "$logs"
    say "building (log: $logs/gpu-bench.log)"
    { configure_gpu "${torch[@]}" && cmake --build $gpu_build --target $program softnic_cli; } \
        >"$logs/gpu-bench.log" 2>&1 || {
        tail -n 40 "$logs/gpu-bench.log" >&2
        end_with "the build failed; its whole log is $logs/gpu-bench.log"
    }
    rm -f "$json"
    $gpu_build/bin/softnic run --mode spin -- "$gpu_build/bin/$program" --json "$json" "$@" || status=$?
    # What could be measured is drawn, whatever else went wrong.
    if [[ -e $json && -n $plot ]]; then python3 "$plot" "$json" build/gpu-bench; fi
    return "$status"
}

# Without a virtual machine it is skipped, but not where all has to run.
begin_rxe() {
    local status=0
    tools/rxe-vm/rxe-vm prepare 2>&1 | tee "$logs/rxe.prepare" || status=$?
    if ((status == 77)) && [[ -z ${CI:-}${ACCEL_REQUIRE_RXE:-} ]]; then
        sed 's/^rxe-vm: //' "$logs/rxe.prepare" >"$logs/rxe.skipped"
        counted 0 0 1
        return
    fi
    ((status == 0)) || return "$status"
    local programs=(rdma_tests kernels_rdma_tests conformance_tests conformance_peer accel_doctor)
    if weekly; then
        programs+=(unit_tests accel_keys gateway gateway_tests model_server load service_tests accel_bench)
    fi
    build_preset release -DACCEL_BUILD_TESTS=ON -DACCEL_BUILD_BENCH=ON -- "${programs[@]}"
}

step_rxe() {
    if [[ -e $logs/rxe.skipped ]]; then return; fi
    local vm=tools/rxe-vm/rxe-vm results=$root/build/rxe status=0
    # Of the virtual machine itself. It boots six times.
    if weekly; then
        python3 tools/rxe-vm/selftest.py -v
        counted "$(grep -c ' \.\.\. ok$' "$logs/rxe.log")" 0 0
    fi

    rm -rf "$results"
    $vm run --memory 4096 --timeout 1800 --results "$results" -- bash tests/transport/rxe/job.sh \
        "$root/build/release/bin" "$results" || status=$?
    cat "$results/counts" >>"$logs/rxe.counts" || status=1
    return "$status"
}

# Steps that wait for most of their time run beside those behind them. What they build is built before, by begin_NAME.
declare -A steps_aside=([rxe]=1)
declare -A aside=()  # process of each that runs

# in_step FUNCTION: a process of its own, because a function that is called in a condition would not stop at its first
# failure.
in_step() {
    root=$root step=$step bash -euo pipefail -c '. "$root/scripts/test.sh"; "$1"' step "$1" </dev/null 2>&1
}

# cache_counts: hits and misses of ccache so far, one number each; zeros without it.
cache_counts() {
    ccache --print-stats 2>/dev/null | awk '
        $1 == "direct_cache_hit" || $1 == "preprocessed_cache_hit" { hits += $2 }
        $1 == "cache_miss" { misses += $2 }
        END { print hits + 0, misses + 0 }'
}

# note_cache HITS MISSES: writes into the step's log how many there were since cache_counts said HITS MISSES, those of
# builds ahead included.
note_cache() {
    local hits misses
    command -v ccache >/dev/null || return 0
    read -r hits misses < <(cache_counts)
    echo "ccache: $((hits - $1)) hits, $((misses - $2)) misses" >>"$logs/$step.log"
}

# summarise REPORT...: those that exist. Without python3 nothing is said.
summarise() {
    local report there=()
    for report in "$@"; do if [[ -e $report ]]; then there+=("$report"); fi; done
    if ((${#there[@]})); then python3 scripts/test_summary.py "${there[@]}" || true; fi
}

# begin_step: what comes before $step; with its status in $status.
begin_step() {
    rm -f "$logs/$step".{counts,skipped,ended} "$logs/$step".*.xml
    status=0
    : >"$logs/$step.log"
    if declare -F "begin_$step" >/dev/null; then in_step "begin_$step" >>"$logs/$step.log" || status=$?; fi
}

# run_step: runs $step, after which `end_step` knows how it went.
run_step() {
    local status begun=$EPOCHSECONDS hits misses
    read -r hits misses < <(cache_counts)
    begin_step
    if ((status == 0)); then while_followed in_step "step_$step" || status=$?; fi
    note_cache "$hits" "$misses"
    echo "$status $((EPOCHSECONDS - begun))" >"$logs/$step.ended"
}

# step_aside: the same in the background, in a process group that ends with this shell.
step_aside() {
    local status begun=$EPOCHSECONDS
    begin_step
    set -m
    {
        if ((status == 0)); then in_step "step_$step" >>"$logs/$step.log" || status=$?; fi
        echo "$status $((EPOCHSECONDS - begun))" >"$logs/$step.ended"
    } &
    set +m
    aside[$step]=$!
    background+=($!)
}

# prepare_steps STEP...: what they build is built ahead of their turns, by processors that have nothing else to do: most
# tests wait for most of their time. A build that fails is tried again by its step, which tells of it.
prepare_steps() {
    local step idle=(chrt --idle 0)
    "${idle[@]}" true 2>/dev/null || return 0
    set -m
    for step in "$@"; do
        if declare -F "prepare_$step" >/dev/null; then
            root=$root "${idle[@]}" bash -euo pipefail -c '. "$root/scripts/test.sh"; "$1"' prepare "prepare_$step" \
                </dev/null >"$logs/prepare.$step.log" 2>&1 || true
        fi
    done &
    set +m
    background+=($!)
}

background=()  # groups of processes that end with this shell
end_background() {
    local group
    for group in "${background[@]}"; do kill -- "-$group" || true; done 2>/dev/null
}

# end_step: sets passed, failed, skipped and seconds of $step, and shows them.
end_step() {
    local status p f s
    passed=0 failed=0 skipped=0
    read -r status seconds <"$logs/$step.ended"
    if [[ -e $logs/$step.counts ]]; then
        while read -r p f s; do
            passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        done <"$logs/$step.counts"
    elif ((status == 0)); then
        passed=1
    fi
    # A step may fail beside its tests, in its build for one.
    if ((status != 0 && failed == 0)); then failed=1; fi

    table+=("$(printf '%-9s %6d passed %4d failed %4d skipped %6d s' \
        "$step" "$passed" "$failed" "$skipped" "$seconds")")
    if ((failed)); then
        show_failures "$logs/$step.log"
        remarks+=("$step failed: $(essence_of "$logs/$step.log")")
        echo "      $step ${red}FAILED$plain after $seconds s; the whole log is $logs/$step.log"
    else
        echo "      $step ${green}ok$plain after $seconds s"
    fi
    if [[ -s $logs/$step.skipped ]]; then echo "      skipped: $(<"$logs/$step.skipped")"; fi
    all_passed=$((all_passed + passed)) all_failed=$((all_failed + failed)) all_skipped=$((all_skipped + skipped))
}

# builds_serving STEP...: whether one of them builds the programs that serve.
builds_serving() {
    [[ " $* " =~ \ (release|asan|tsan)\  && (-z ${ACCEL_TEST_HOUSES:-} || $ACCEL_TEST_HOUSES == *serving*) ]]
}

run_tests() {
    local steps=() wanted=() names=() table=() remarks=() step number=0 all_passed=0 all_failed=0 all_skipped=0
    local passed failed skipped seconds scope=
    while (($#)); do
        case $1 in
            --all) scope=all ;;
            --weekly) scope=weekly ;;
            --list)
                for step in "${all_steps[@]}"; do printf '%-10s %s\n' "$step" "${step_about[$step]}"; done
                return ;;
            -*) end_with "test knows --all, --weekly, --list and the names of houses and steps; not '$1'" ;;
            *)
                if [[ -v step_about[$1] ]]; then
                    steps+=("$1")
                elif [[ -v house_steps[$1] ]]; then
                    wanted+=("$1")
                else
                    names+=("$1")
                fi ;;
        esac
        shift
    done
    if [[ -n $scope && ${#names[@]} == 1 && -z ${steps[*]}${wanted[*]} ]]; then
        # A commit: what has changed since decides.
        mapfile -t wanted < <(python3 "$root/scripts/houses.py" "${names[0]}" || echo unknown)
        [[ ${wanted[*]} != *unknown ]] || end_with "'${names[0]}' is neither a house, a step nor a commit"
        say "houses that the change since ${names[0]} can reach: ${wanted[*]:-none}"
        if ((${#wanted[@]} == 0)); then steps=($steps_of_all); fi
        names=()
    fi
    if ((${#names[@]})); then
        [[ -z ${steps[*]}${wanted[*]}$scope ]] ||
            end_with "name houses and steps, or tests, not both: '${names[0]}' is neither a house nor a step"
        printf -v ACCEL_TEST_NAMES '%s\n' "${names[@]}"
        export ACCEL_TEST_NAMES=${ACCEL_TEST_NAMES%$'\n'}
        steps=(named)
    fi
    # All houses are what there is without names.
    if ((${#wanted[@]} == ${#houses[@]})); then wanted=(); fi
    export ACCEL_TEST_HOUSES=${wanted[*]}
    if ((${#steps[@]} == 0)); then
        case ${scope:=newcomer} in
            newcomer) steps=(release); [[ -n ${wanted[*]} ]] || steps+=(python) ;;
            *) mapfile -t steps < <(steps_of_houses) ;;
        esac
    fi
    export ACCEL_TEST_SCOPE=${scope:-step}

    case ${steps[*]} in
        gpu*) ;;  # such a machine may have no network: what is missing is said by the build
        python) need_packages "${packages_for_python[@]}" ;;
        release | "release python" | named | rxe)
            need_packages "${packages_for_tests[@]}"
            # In a shell of its own, which may end: then the step says what is missing.
            if [[ ${steps[*]} == *python ]]; then (need_packages "${packages_for_python[@]}") || true; fi
            if [[ ${wanted[*]} == *serving* ]]; then need_packages "${packages_for_gateway[@]}" curl openssl; fi ;;
        *) need_packages "${packages_to_check[@]}" ;;
    esac
    if [[ " ${steps[*]} " == *" rxe "* ]]; then
        # In a shell of its own, which may end: then the step says what is missing.
        (need_packages "${packages_for_rxe[@]}") || say "going on without a virtual machine"
    fi
    cd "$root" || return
    mkdir -p "$logs"

    trap end_background EXIT
    # LoadGen's sources, for the builds. Without them its tests are skipped and say so.
    if builds_serving "${steps[@]}"; then scripts/loadgen.sh >"$logs/loadgen.log" 2>&1 || true; fi
    prepare_steps "${steps[@]}"
    for step in "${steps[@]}"; do
        number=$((number + 1))
        printf '[%d/%d] %-9s %s\n' "$number" "${#steps[@]}" "$step" \
            "${step_about[$step]:-tests with '${names[*]}' in their names}"
        if [[ -n ${steps_aside[$step]:-} ]] && ((number < ${#steps[@]})); then
            step_aside
            echo "      goes on beside the steps below"
        else
            run_step
            end_step
        fi
    done
    for step in "${!aside[@]}"; do
        wait "${aside[$step]}"
        unset "aside[$step]"
        end_step
    done

    printf '\n'
    printf '%s\n' "${table[@]}"
    # The step has shown what was expected; a log is read from its end, so it is repeated there.
    if ((${#remarks[@]})) && [[ ! -t 1 ]]; then printf '\n' && printf '%s\n' "${remarks[@]}"; fi
    local reports=()
    for step in "${steps[@]}"; do reports+=("$logs/$step".*.xml); done
    summarise "${reports[@]}"
    printf '\n%d passed, %d failed, %d skipped\n' "$all_passed" "$all_failed" "$all_skipped"
    ((all_failed == 0))
}
