#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every example, the demo as `./run demo` does, and accel_perf and accel_doctor, and checks what they print and
# write.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake --preset release -DACCEL_BUILD_TESTS=ON
cmake --build build/release
ctest --test-dir build/release -L examples --no-tests=error --output-on-failure
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bin=build/release/bin
"$bin/digits_demo" --json "$folder/demo.json" --plot "$folder/demo.svg"
"$bin/accel_perf" loop local tcp zmq --size 64,4K --count 500 --json "$folder/perf.json"
"$bin/accel_doctor" --json >"$folder/doctor.json"
python3 examples/check_json.py "$folder"
