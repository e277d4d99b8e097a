# SPDX-License-Identifier: Apache-2.0
# The Python module: the steps `python` and `pyasan` of `./run test`, and `./run wheel`. Sourced by test.sh.
packages_of_pypi=$root/python/requirements.txt
python_environment=$root/build/python/environment
python=$python_environment/bin/python

# python_lacks: one sentence, if this machine's python3 cannot build the module. ACCEL_PYTHON names another one.
python_lacks() {
    local own=${ACCEL_PYTHON:-python3}
    command -v "$own" >/dev/null || { echo "$own is missing: apt-get install python3"; return; }
    "$own" - <<'PYTHON'
import importlib.util, os, sys, sysconfig
header = os.path.join(sysconfig.get_path("include"), "Python.h")
if sys.version_info < (3, 11):
    print(f"{sys.executable} is Python {sys.version.split()[0]}, the module needs 3.11: ACCEL_PYTHON names another")
elif importlib.util.find_spec("ensurepip") is None:
    print(f"{sys.executable} makes no virtual environments: apt-get install python3-venv")
elif not os.path.exists(header):
    print(f"{header} is missing: apt-get install python3-dev")
PYTHON
}

# make_environment FOLDER PACKAGE...: a virtual environment with these packages (as for pip) from PyPI, or from the
# folder of wheels ACCEL_WHEELS. Made once; anew when the packages or the Python change.
make_environment() {
    local folder=$1 own=${ACCEL_PYTHON:-python3} from=() wanted
    shift
    wanted=$("$own" --version && printf '%s\n' "$@" && cat "$packages_of_pypi") || return
    [[ "$wanted" != "$(cat "$folder/whole" 2>/dev/null)" ]] || return 0
    if [[ -n ${ACCEL_WHEELS:-} ]]; then from=(--no-index --find-links "$ACCEL_WHEELS"); fi
    rm -rf "$folder"
    mkdir -p "${folder%/*}"
    "$own" -m venv "$folder" || return
    timeout 400 "$folder/bin/python" -m pip --disable-pip-version-check install -q --retries 5 "${from[@]}" "$@" ||
        return
    printf '%s' "$wanted" >"$folder/whole"
}

# need_python: makes $python, with all that builds and checks the module, or prints why not.
need_python() {
    local lacks
    lacks=$(python_lacks)
    if [[ -n $lacks ]]; then echo "$lacks"; return 1; fi
    if ! make_environment "$python_environment" -r "$packages_of_pypi" >&2; then
        echo "the packages of python/requirements.txt cannot be had: PyPI is out of reach (ACCEL_WHEELS can name a" \
            "folder that has them)"
        return 1
    fi
}

# build_module PRESET TARGET [OPTION...]: leaves the package in build/PRESET/python/package, linked with the library of
# that build.
build_module() {
    local preset=$1 target=$2 folder=$root/build/$1/python
    shift 2
    build_preset "$preset" -DACCEL_BUILD_TESTS=ON "-DACCEL_MODULE_PYTHON=$python" "$@" -- "$target"
    rm -rf "$folder/package"
    mkdir -p "$folder/package/accel_transport"
    ln -s "$root"/python/src/accel_transport/* "$folder"/module/* "$folder/package/accel_transport/"
}

# run_pytest PRESET [ARGUMENT...]: in the folder python, and counts its cases.
run_pytest() {
    local report=$logs/python-$1.xml package=$root/build/$1/python/package status=0
    shift
    rm -f "$report"
    (cd python &&
        PYTHONPATH=$package timeout 900 "${launcher[@]}" "$python" -m pytest --junitxml "$report" "$@") || status=$?
    if [[ -e $report ]]; then
        counted $("$python" - "$report" <<'PYTHON'
import sys
from xml.etree import ElementTree
suite = ElementTree.parse(sys.argv[1]).getroot().find("testsuite")
tests, failed, errors, skipped = (int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped"))
print(tests - failed - errors - skipped, failed + errors, skipped)
PYTHON
)
    fi
    return "$status"
}

# python_or_skip: ends the step where Python cannot be had: as skipped, but not where all has to run.
python_or_skip() {
    local lacks
    if lacks=$(need_python); then return; fi
    echo "$lacks"
    [[ -z ${CI:-} ]] || exit 1
    echo "$lacks" >"$logs/$step.skipped"
    counted 0 0 1
    exit 0
}

step_python() {
    python_or_skip
    build_module release _core_stub
    (cd python && "$python" -m ruff check --no-cache . && "$python" -m ruff format --no-cache --check src)
    (cd python && export MYPYPATH=$root/build/release/python/package && "$python" -m mypy -p accel_transport &&
        "$python" -m mypy tests)
    run_pytest release
    if weekly; then
        make_wheel
        check_wheel
    fi
}

# Python is built without AddressSanitizer: its runtime is preloaded, and malloc takes the place of Python's allocator.
step_pyasan() {
    local runtime launcher
    python_or_skip
    build_module asan _core "-DACCEL_TEST_NIC=$root/$release_softnic"
    runtime="$(clang++ -print-file-name="libclang_rt.asan-$(uname -m).so") $(clang++ -print-file-name=libstdc++.so.6)"
    launcher=(env "LD_PRELOAD=$runtime" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc)
    run_pytest asan -p no:cacheprovider --ignore tests/test_processes.py
}

# make_wheel: the wheel, and the source distribution from which it is built, in build/wheel.
make_wheel() {
    local folder=$root/build/wheel
    rm -rf "$folder"
    mkdir -p "$folder/source"
    "$python" -m build --no-isolation --sdist --outdir "$folder" "$root"
    # The same folders each time: ccache knows what is built there.
    tar -x --strip-components 1 -C "$folder/source" -f "$folder"/*.tar.gz
    "${compiling[@]}" "$python" -m build --no-isolation --wheel --outdir "$folder/raw" -C build-dir="$folder/build" \
        "$folder/source"
    # libzmq, OpenSSL, fmt, spdlog and what they need go into the wheel.
    PATH=$python_environment/bin:$PATH "$python" -m auditwheel repair --wheel-dir "$folder" "$folder"/raw/*.whl
}

# check_wheel: all tests with the installed wheel, in a virtual environment that has nothing else of ours, beside numpy
# and pyzmq; a call over `rdma` on softnic.
check_wheel() {
    local environment=$root/build/wheel/environment launcher=()
    make_environment "$environment" -c "$packages_of_pypi" "$root"/build/wheel/*.whl hypothesis numpy pytest pyzmq
    local python=$environment/bin/python
    run_pytest wheel
    build_release_softnic
    launcher=("$root/$release_softnic" run --)
    run_pytest wheel-softnic tests/test_wheel.py
}

# run_wheel [--check]: `./run wheel`.
run_wheel() {
    cd "$root" || return
    local log=$logs/wheel.log step=wheel lacks
    mkdir -p "$logs"
    lacks=$(need_python 2>"$log") || end_with "$lacks"
    say "building (log: $log)"
    in_step make_wheel >>"$log" || { tail -n 40 "$log" >&2; end_with "there is no wheel; the whole log is $log"; }
    if [[ ${1:-} == --check ]]; then in_step check_wheel || end_with "the wheel's tests failed"; fi
    ls "$root"/build/wheel/*.{whl,tar.gz}
}
