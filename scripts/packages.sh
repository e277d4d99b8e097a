# SPDX-License-Identifier: Apache-2.0
# Installs Debian or Ubuntu packages that are missing, and says why. Sourced by `run`.

# What each package is for, in the words shown to whoever is asked to install it.
declare -A package_use=(
    [g++]="the compiler" [cmake]="the build" [ninja-build]="the build" [pkg-config]="finds ZeroMQ"
    [libzmq3-dev]="ZeroMQ" [libssl-dev]="TLS of the control plane" [libspdlog-dev]="logging" [libfmt-dev]="formatting"
    [libcli11-dev]="command lines" [nlohmann-json3-dev]="JSON reports"
    [ccache]="compiles nothing twice" [libgtest-dev]="the tests" [libgmock-dev]="the tests"
    [libibverbs-dev]="RDMA verbs" [ibverbs-providers]="drivers of RDMA adapters"
    [ibverbs-utils]="stock programs: ibv_rc_pingpong" [perftest]="run on softnic" [ucx-utils]="run on softnic"
    [qperf]="run on softnic" [libfabric-bin]="run on softnic" [openmpi-bin]="run on softnic"
    [libgloo-dev]="run on softnic"
    [libasio-dev]="an example and tests with Asio" [libboost-dev]="the HTTP door" [libgrpc++-dev]="the gRPC door"
    [zlib1g-dev]="compressed bodies at the doors"
    [curl]="tests of the doors" [openssl]="their certificates" [apache2-utils]="run at the doors: ab"
    [wrk]="run at the doors" [nginx-light]="a peer in benchmarks of doors and gateway"
    [libucx-dev]="softnic: a test through UCX" [python3-venv]="wheels of PyPI"
    [python3-dev]="the Python module"
    [qemu-system-x86]="a virtual machine with kernel RDMA" [kmod]="modules of its kernel" [iproute2]="its network"
    [zstd]="unpacks its kernel"
    [clang]="the second compiler, the fuzzers"
    [lld]="links sanitized programs" [libclang-rt-dev]="the fuzzers" [binutils]="lists exported symbols"
    [clang-tidy]="checks the source" [clang-format-14]="checks the format" [python3]="checks the source"
    [doxygen]="the reference manual" [valgrind]="counts instructions"
    [libnginx-mod-stream]="nginx's module for TCP")

packages_to_run=(g++ cmake ninja-build pkg-config libzmq3-dev libssl-dev libibverbs-dev ibverbs-providers
    libspdlog-dev libfmt-dev libcli11-dev nlohmann-json3-dev zlib1g-dev)
packages_to_bench=("${packages_to_run[@]}" valgrind libboost-dev libgrpc++-dev nginx-light libnginx-mod-stream)
packages_for_gateway=("${packages_to_run[@]}" libboost-dev libgrpc++-dev)
packages_for_tests=("${packages_to_run[@]}" ccache libgtest-dev libgmock-dev python3 valgrind)

packages_to_check=("${packages_for_tests[@]}" clang lld libclang-rt-dev clang-tidy clang-format-14 doxygen
    binutils ibverbs-utils perftest ucx-utils libucx-dev qperf libfabric-bin openmpi-bin libgloo-dev
    python3-dev python3-venv libasio-dev libboost-dev libgrpc++-dev curl openssl apache2-utils wrk)
packages_for_python=("${packages_to_run[@]}" python3-dev python3-venv)
# What a person with an RDMA adapter runs first.
packages_for_nic=("${packages_for_tests[@]}" ibverbs-utils)
# The kernel itself is downloaded, but not installed (tools/rxe-vm).
packages_for_rxe=(python3 qemu-system-x86 kmod iproute2 zstd ibverbs-utils perftest)

# What each package brings: a command, or a header where there is a dot. A machine may have it from elsewhere.
declare -A package_brings=(
    [g++]="${CXX:-g++}" [cmake]=cmake [ninja-build]=ninja [pkg-config]=pkg-config [libzmq3-dev]=zmq.h
    [libssl-dev]=openssl/ssl.h [libspdlog-dev]=spdlog/spdlog.h [libfmt-dev]=fmt/format.h [libcli11-dev]=CLI/CLI.hpp
    [nlohmann-json3-dev]=nlohmann/json.hpp [ccache]=ccache [libgtest-dev]=gtest/gtest.h [libgmock-dev]=gmock/gmock.h
    [libibverbs-dev]=infiniband/verbs.h [ibverbs-providers]=infiniband/mlx5dv.h [ibverbs-utils]=ibv_rc_pingpong
    [perftest]=ib_write_bw [ucx-utils]=ucx_perftest [qperf]=qperf [libfabric-bin]=fi_info [openmpi-bin]=mpirun
    [libgloo-dev]=gloo/context.h [libasio-dev]=asio.hpp [libboost-dev]=boost/beast.hpp [libgrpc++-dev]=grpcpp/grpcpp.h
    [zlib1g-dev]=zlib.h [curl]=curl [openssl]=openssl [apache2-utils]=ab [wrk]=wrk [nginx-light]=nginx
    [libucx-dev]=ucp/api/ucp.h [qemu-system-x86]=qemu-system-x86_64 [kmod]=modprobe [iproute2]=ip [zstd]=zstd
    [clang]=clang [lld]=lld [binutils]=nm [clang-tidy]=clang-tidy [clang-format-14]=clang-format-14
    [python3]=python3 [python3-dev]=python3-config [doxygen]=doxygen [valgrind]=valgrind)

is_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# is_there PACKAGE: what it brings is found, whoever installed it.
is_there() {
    local what=${package_brings[$1]:-} folder
    [[ $what == *.* ]] || { [[ -n $what ]] && command -v "$what" >/dev/null; return; }
    for folder in ${CMAKE_PREFIX_PATH//[:;]/ }; do
        [[ ! -e $folder/include/$what ]] || return 0
    done
    "${CXX:-g++}" -E -x c++ -include "$what" /dev/null >/dev/null 2>&1
}

# need_packages PACKAGE...: returns once all are installed, or what they bring is there; else ends with the command to
# run.
need_packages() {
    local package missing=() elsewhere=()
    if ! command -v apt-get dpkg-query >/dev/null; then
        say "this is neither Debian nor Ubuntu; it needs what these packages hold there: $*"
        return 0
    fi
    for package in "$@"; do
        if is_installed "$package"; then continue; fi
        if is_there "$package"; then elsewhere+=("$package"); else missing+=("$package"); fi
    done
    ((${#elsewhere[@]} == 0)) || say "not of Debian's packages, but there: ${elsewhere[*]}"
    ((${#missing[@]})) || return 0

    say "installing what is missing:"
    for package in "${missing[@]}"; do
        printf '  %-20s %s\n' "$package" "${package_use[$package]:-}"
    done
    install_packages "${missing[@]}"
}

install_packages() {
    local as_root=() log="$root/build/logs/packages.log"
    if ((EUID != 0)); then
        if ! command -v sudo >/dev/null; then
            end_with "this needs root, and there is no sudo. Run: apt-get update && apt-get install -y $*"
        fi
        as_root=(sudo)
        if [[ ! -t 0 ]]; then as_root+=(-n); fi
        if ! "${as_root[@]}" true; then
            end_with "this needs root, and sudo refused. Run: sudo apt-get update && sudo apt-get install -y $*"
        fi
    fi
    mkdir -p "${log%/*}"
    local quiet=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
    # A package source that has nothing to do with us may be out of reach: what counts is the install.
    "${as_root[@]}" "${quiet[@]}" update >"$log" 2>&1 </dev/null || say "apt-get update complained (see $log); going on"
    if ! "${as_root[@]}" "${quiet[@]}" install -y --no-install-recommends "$@" >>"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        end_with "the packages could not be installed (whole log: $log). By hand: apt-get install -y $*"
    fi
}
