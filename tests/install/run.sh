#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the library, static and shared, moves the installed tree, and uses it as a user would: with find_package,
# with pkg-config and no build system, as a subproject. Works in build/install; `./run test install` calls it. With the
# argument `build` it only builds what needs no other build.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$root/build/install
consumer=$root/tests/install/consumer
expected="accel_transport $(sed -nE 's/^#define ACCEL_VERSION_[A-Z]+ ([0-9]+)$/\1/p' \
    "$root/include/accel_transport/config.hpp" | paste -sd.) answered"

fail() { echo "FAILED: $*" >&2; exit 1; }

answers() {
    local said
    said=$("$@") || fail "$*: exit status $?"
    [[ $said == "$expected" ]] || fail "$*: said '$said', not '$expected'"
    echo "ok: $*"
}

# install_kind KIND BUILD: leaves an installed tree in $prefix, not where it was installed to.
install_kind() {
    local kind=$1 build=$2
    rm -rf "$work/$kind-prefix" "$work/$kind-staged"
    cmake --install "$build" --prefix "$work/$kind-staged"
    mv "$work/$kind-staged" "$work/$kind-prefix"
    prefix=$work/$kind-prefix
}

check_tree() {
    local file
    for file in bin/accel_perf bin/accel_doctor bin/accel_keys include/accel_transport/accel_transport.hpp \
        include/accel_transport/gpu_service.hpp include/accel_transport/device/service.hpp \
        include/accel_transport/device/client.hpp \
        lib/cmake/accel_transport/accel_transportConfig.cmake lib/pkgconfig/accel_transport.pc \
        share/doc/accel_transport/{LICENSE,README.md,docs/uris.md,examples/hello_client.cpp}; do
        [[ -e $prefix/$file ]] || fail "$file is not installed"
    done
    if grep -rIn "$root" "$prefix/include" "$prefix/lib/cmake" "$prefix/lib/pkgconfig"; then
        fail "an installed file names the source or build folder"
    fi
}

# The launcher finds the library in the installed tree, and the stock libraries find the device.
use_softnic() {
    [[ -e $prefix/include/softnic/softnic.h ]] || fail "softnic.h is not installed"
    local said
    said=$("$prefix/bin/softnic" doctor) || fail "softnic doctor: $said"
    grep -q "preload library: $prefix/lib/libsoftnic.so" <<<"$said" || fail "softnic preloads another tree"
    echo "ok: softnic doctor"
}

use_with_cmake() {
    local build=$work/$1-consumer
    rm -rf "$build"
    cmake -S "$consumer" -B "$build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix"
    cmake --build "$build"
    answers "$build/consumer"
}

# A program with kernels, where there is an nvcc.
use_with_nvcc() {
    [[ -n $nvcc ]] || return 0
    local build=$work/$1-cuda-consumer flags
    rm -rf "$build"
    cmake -S "$consumer/../cuda_consumer" -B "$build" -G Ninja -DCMAKE_CUDA_COMPILER="$nvcc" \
        -DCMAKE_CUDA_ARCHITECTURES=90 -DCMAKE_PREFIX_PATH="$prefix" \
        -DEXAMPLE="$prefix/share/doc/accel_transport/examples/gpu_echo.cu"
    cmake --build "$build"
    answers "$build/consumer"
    read -ra flags <<<"$(pkg-config --cflags --libs accel_transport)"
    "$nvcc" -std=c++20 -x cu "$consumer/consumer.cpp" -o "$build/consumer-pkg-config" "${flags[@]}"
    LD_LIBRARY_PATH=$prefix/lib answers "$build/consumer-pkg-config"
}

# Before C++20 the first error says what to do.
refuse_old_language() {
    local said header
    for header in accel_transport device/service device/client; do
        said=$(echo "#include <accel_transport/$header.hpp>" |
            LC_ALL=C c++ -std=c++17 -fsyntax-only -x c++ -I"$prefix/include" - 2>&1 | grep -m 1 'error:' || true)
        [[ $said == *'needs C++20'* ]] || fail "$header.hpp in C++17: $said"
    done
    echo "ok: C++17 is refused with a sentence"
}

use_with_pkg_config() {
    local program=$work/$1-consumer-pkg-config flags
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    read -ra flags <<<"$(pkg-config --cflags --libs accel_transport)"
    if grep -E -- '-DSPDLOG|krb5|libxml2|-pthread' <<<"${flags[*]}"; then fail "pkg-config says what is private"; fi
    c++ -std=c++20 "$consumer/consumer.cpp" -o "$program" "${flags[@]}"
    LD_LIBRARY_PATH=$prefix/lib answers "$program"
}

# What a shared library exports, other programs come to depend on.
check_exports() {
    local library=$prefix/lib/libaccel_transport.so exports foreign headers
    exports=$(nm -D --defined-only -C "$library")
    grep -q ' T accel::channel::connect(' <<<"$exports" || fail "accel::channel::connect is not exported"
    foreign=$(grep -vE '^[0-9a-f]+ [A-Za-z] ((vtable|typeinfo|typeinfo name) for )?accel::' <<<"$exports" || true)
    [[ -z $foreign ]] || fail "exported, but not ours: $foreign"
    if grep -E ' accel::(core|cuda|gdr|gpu|local|rdma|tcp|verbs|zmq)::' <<<"$exports"; then
        fail "the internals above are exported"
    fi
    headers=$(objdump -p "$library")
    grep -qE 'SONAME +libaccel_transport\.so\.0\.1$' <<<"$headers" || fail "the soname is not libaccel_transport.so.0.1"
    echo "ok: $(wc -l <<<"$exports") symbols exported, all of accel"
}

# Nothing is measured here. Most of the compilers' time is for headers, which large batches read once.
quick=(-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O0 -g0" -DCMAKE_UNITY_BUILD_BATCH_SIZE=60)

# For all architectures of GPUs: continuous integration compiles the other builds for one.
build_shared() {
    cmake -S "$root" -B "$work/shared" -G Ninja "${quick[@]}" \
        -DBUILD_SHARED_LIBS=ON -DACCEL_WARNINGS_AS_ERRORS=ON \
        -DACCEL_BUILD_EXAMPLES=OFF -DACCEL_BUILD_TESTS=OFF -DACCEL_BUILD_BENCH=OFF -DACCEL_BUILD_SOFTNIC=OFF
    cmake --build "$work/shared" "$@"
}

# build_transport NAME [OPTION...] -- TARGET...: the transport alone, without kernels.
build_transport() {
    local name=$1 options=()
    shift
    while [[ $1 != -- ]]; do options+=("$1"); shift; done
    cmake -S "$root" -B "$work/$name" -G Ninja "${quick[@]}" "${options[@]}" \
        -DACCEL_CUDA=OFF -DACCEL_KERNELS=OFF -DACCEL_WARNINGS_AS_ERRORS=ON -DACCEL_BUILD_EXAMPLES=OFF
    cmake --build "$work/$name" --target "${@:2}"
}
build_small() {
    build_transport small -DACCEL_ZMQ=OFF -DACCEL_VERBS=OFF \
        -- accel_doctor accel_perf accel_keys conformance_tests conformance_peer
}
build_verbs() {
    build_transport verbs -DACCEL_BUILD_SOFTNIC=OFF "-DACCEL_TEST_NIC=$root/build/release/bin/softnic" -- rdma_tests
}

# test_transport NAME TESTS: those of a build.
test_transport() {
    ctest --test-dir "$work/$1" -j "$((3 * $(nproc)))" --no-tests=error --timeout 300 --output-on-failure \
        --tests-regex "$2" --label-exclude slow
}

# check_no_kernels NAME: what a build of the transport installs.
check_no_kernels() {
    install_kind "$1" "$work/$1"
    if nm -C "$prefix/lib/libaccel_transport.a" | grep -E ' accel::(gpu|gpu_[a-z]+|proxy)::' ||
        find "$prefix/include" -name 'gpu_*' -o -name device | grep .; then
        fail "the library without kernels has what is named above"
    fi
    echo "ok: without a line of kernels"
}

mkdir -p "$work"
exec {lock}>"$work/lock" # one at a time
flock --timeout 3600 "$lock" || fail "another run of this script goes on for an hour: end it"
if [[ ${1:-} == build ]]; then
    build_shared --target accel_transport
    build_small
    build_verbs
    exit
fi

(cd "$root" && cmake --preset release)
cmake --build "$root/build/release" --target accel_transport accel_perf accel_doctor accel_keys softnic softnic_cli
install_kind static "$root/build/release"
check_tree
use_softnic
use_with_cmake static
use_with_pkg_config static
nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$root/build/release/CMakeCache.txt" | grep -v NOTFOUND || true)
use_with_nvcc static
refuse_old_language

# As after `./run demo`, which does not build everything.
rm -rf "$work/shared/bin"
build_shared --target accel_transport
install_kind partial "$work/shared"
[[ -e $prefix/lib/libaccel_transport.so ]] || fail "the library alone cannot be installed"
echo "ok: a partial build is installed"
build_shared
install_kind shared "$work/shared"
check_tree
check_exports
use_with_cmake shared
use_with_pkg_config shared
use_with_nvcc shared

rm -rf "$work/subproject"
cmake -S "$consumer" -B "$work/subproject" -G Ninja -DACCEL_SOURCE="$root"
echo "ok: configured as a subproject"

# As a part of a project with kernels. Verbs are left out only to save time.
if [[ -n $nvcc ]]; then
    rm -rf "$work/cuda-subproject"
    cmake -S "$consumer/../cuda_consumer" -B "$work/cuda-subproject" -G Ninja -DCMAKE_CUDA_COMPILER="$nvcc" \
        "${quick[@]}" -DCMAKE_CUDA_ARCHITECTURES=90 -DCMAKE_UNITY_BUILD=ON -DACCEL_ZMQ=OFF -DACCEL_VERBS=OFF \
        -DACCEL_SOURCE="$root"
    cmake --build "$work/cuda-subproject" --target consumer
    answers "$work/cuda-subproject/consumer"
fi

build_small
"$work/small/bin/accel_doctor" | grep -E '^ *zmq +no +left out of this build; configure it with -DACCEL_ZMQ=ON' ||
    fail "the doctor does not say that zmq was left out"
for end in 'client zmq://127.0.0.1:1 --count 1' 'serve zmq://127.0.0.1:0'; do  # without keys, which it does not ask for
    ("$work/small/bin/accel_perf" $end 2>&1 || true) |
        grep -F 'zmq: left out of this build; configure it with -DACCEL_ZMQ=ON' ||
        fail "a URI of zmq is not answered with how to build it: $end"
done
test_transport small '^(conformance\.(local|tcp)\.|tool_)'
echo "ok: built and tested without ZeroMQ, verbs and kernels"
check_no_kernels small
use_with_cmake small

build_verbs
test_transport verbs '^rdma_tests\.'
echo "ok: built and tested with verbs and without kernels"
check_no_kernels verbs
