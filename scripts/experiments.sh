# SPDX-License-Identifier: Apache-2.0
# `./run experiments`: builds what the machine can use, has the networks exported where there is a GPU and PyTorch, and
# runs the experiments. Sourced by `run`, behind scripts/test.sh, which finds PyTorch.

# What is not compiled (AOTInductor) within so many seconds is served as TorchScript; 0: all is.
compile_seconds=${ACCEL_COMPILE_SECONDS:-240}

# run_experiments [OPTION...]
run_experiments() {
    local script=$root/examples/serving/experiments/experiments.py torch=() more=()
    if [[ " $* " =~ " "(--help|-h|--report|--programs)" " ]]; then
        exec python3 "$script" "$@"
    fi
    if nvidia-smi -L >/dev/null 2>&1; then
        build_for_gpu "$@"
    else
        build_release "${without_tests[@]}" -- serving_experiments
        say "no GPU: models are synthetic"
    fi
    exec python3 "$script" "$@" "${more[@]}"
}

# Adds what it has made to `more`.
build_for_gpu() {
    local log=$logs/experiments.log
    mkdir -p "$logs"
    find_torch
    say "building for the GPU (log: $log)"
    (cd "$root" && configure_gpu "${torch[@]}" && cmake --build $gpu_build --target serving_experiments) \
        >"$log" 2>&1 || {
        tail -n 60 "$log" >&2
        end_with "the build failed; its whole log is $log"
    }
    more=(--programs "$root/$gpu_build/bin")
    if ((${#torch[@]} == 0)); then
        say "no PyTorch: models are synthetic"
    elif [[ " $* " != *" --models"* ]]; then
        export_models
    fi
}

# Once for each kind of GPU: compiled files fit no other.
export_models() {
    local name folder
    name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr -cs '[:alnum:]\n' _)
    folder=$root/build/models/$name
    if [[ ! -e $folder/complete ]]; then
        say "exporting the networks into $folder"
        python3 "$root/examples/serving/export.py" --out "$folder" --format both --within "$compile_seconds" >&2 ||
            end_with "the networks could not be exported; --models names a folder with their files"
        touch "$folder/complete"
    fi
    more+=(--models "$folder")
}
