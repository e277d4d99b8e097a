# SPDX-License-Identifier: Apache-2.0
# The houses and what belongs to each. Sourced by test.sh. A house's tests have its name as their label.
# ACCEL_TEST_HOUSES names those whose tests are wanted, separated by spaces; without it, the tests of all are.
houses=(transport kernels softnic serving python)

# What ninja builds for the tests; DIR/all is everything in DIR and below.
declare -A house_targets=(
    [transport]="src/all tools/all small_examples tests/transport/all tests/tools/all"
    [kernels]="src/all gpu_examples tests/kernels/all conformance_tests conformance_peer rdma_tests"
    [softnic]="tools/softnic/all"
    [serving]="examples/digits/all examples/serving/all tests/digits/all tests/serving/all"
    [python]="")
declare -A house_benchmarks=(
    [transport]=bench/transport/all [kernels]=bench/kernels/all [softnic]="" [serving]=bench/serving/all
    [python]="")
declare -A house_fuzz_targets=(
    [transport]=tests/fuzz/transport/all [kernels]=tests/fuzz/kernels/all [softnic]=tools/softnic/fuzz/all
    [serving]=tests/fuzz/serving/all [python]="")
declare -A house_corpora=(
    [transport]=tests/transport/fuzz/corpus [kernels]=tests/kernels/fuzz/corpus [softnic]=tools/softnic/fuzz/corpus
    [serving]=tests/serving/fuzz/corpus [python]="")
# The library, and the programs that have threads of their own. softnic's tests run one by one.
declare -A house_tsan_programs=(
    [transport]="clients_tests conformance_peer conformance_tests hostile_tests rdma_tests unit_tests"
    [kernels]="kernel_client_tests kernels_rdma_tests kernels_unit_tests rdma_tests service_tests"
    [softnic]=""
    [serving]="gateway_tests model_server_tests"
    [python]="")
# The steps of `./run test --all HOUSE`, beside steps_of_all.
declare -A house_steps=(
    [transport]="release nic rxe asan interop tsan fuzz install tidy"
    [kernels]="release nic rxe asan tsan fuzz install tidy"
    [softnic]="release programs nic asan fuzz tidy"
    [serving]="release demo asan tsan fuzz tidy"
    [python]="python pyasan")
steps_of_all="format sources manual"

# of_houses TABLE: the entries of the wanted houses, or of all.
of_houses() {
    local -n table=$1
    local house
    for house in ${ACCEL_TEST_HOUSES:-${houses[*]}}; do echo "${table[$house]}"; done
}

# house_build TABLE...: `-- TARGET...` for the wanted houses; nothing, which builds everything, for all.
house_build() {
    [[ -n ${ACCEL_TEST_HOUSES:-} ]] || return 0
    local table
    echo --
    for table in "$@"; do of_houses "$table"; done
}

# house_labels: what ctest takes to run the tests of the wanted houses.
house_labels() {
    [[ -z ${ACCEL_TEST_HOUSES:-} ]] || echo "--label-regex ^(${ACCEL_TEST_HOUSES// /|})\$"
}

# steps_of_houses: those of the wanted houses, in the order of all_steps.
steps_of_houses() {
    local step wanted
    wanted=" $(of_houses house_steps | tr '\n' ' ')$steps_of_all "
    for step in "${all_steps[@]}"; do
        if [[ $wanted == *" $step "* ]]; then echo "$step"; fi
    done
}
