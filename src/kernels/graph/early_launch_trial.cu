// SPDX-License-Identifier: Apache-2.0
#include "kernels/graph/early_launch.hpp"

#include <array>
#include <chrono>
#include <mutex>
#include <thread>

#include <cuda_runtime.h>

/// A graph of two kernels, whose second is launched early and launches the graph anew: whether that works shows only
/// when it runs.
namespace accel::gpu {
namespace {

constexpr unsigned trial_iterations = 4;

struct trial_state {
    unsigned begun = 0;
    unsigned ended = 0;
};
__device__ trial_state trial;

/// Long enough for the other kernel to be there before it ends.
__global__ void begin_trial() {
    constexpr unsigned long long long_enough = 20'000;
    const unsigned long long start = clock64();
    while (clock64() - start < long_enough) continue;
    ++trial.begun;
}

__global__ void end_trial() {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    if (trial.begun != trial.ended + 1) return;
    if (++trial.ended < trial_iterations) (void)cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
#endif  // else the library's nodes do not wait either, and the trial must fail
}

/// What a trial uses. It stays if a trial hangs: nothing of it can go then.
struct trial_run {
    CUstream_st* stream = nullptr;
    CUgraph_st* graph = nullptr;
    CUgraphExec_st* ready = nullptr;

    void release() const {
        if (ready != nullptr) (void)cudaGraphExecDestroy(ready);
        if (graph != nullptr) (void)cudaGraphDestroy(graph);
        if (stream != nullptr) (void)cudaStreamDestroy(stream);
    }
};

bool make(trial_run& run) {
    if (cudaStreamCreateWithFlags(&run.stream, cudaStreamNonBlocking) != cudaSuccess) return false;
    if (cudaStreamBeginCapture(run.stream, cudaStreamCaptureModeRelaxed) != cudaSuccess) return false;
    begin_trial<<<1, 1, 0, run.stream>>>();
    end_trial<<<1, 1, 0, run.stream>>>();
    if (cudaStreamEndCapture(run.stream, &run.graph) != cudaSuccess) return false;
    if (!launch_early(run.graph, reinterpret_cast<const void*>(end_trial))) return false;
    return cudaGraphInstantiate(&run.ready, run.graph, cudaGraphInstantiateFlagDeviceLaunch) == cudaSuccess &&
           cudaGraphUpload(run.ready, run.stream) == cudaSuccess;
}

/// False: it has not ended in time.
bool ends(CUstream_st* stream) {
    using namespace std::chrono_literals;
    const auto patience = std::chrono::steady_clock::now() + 2s;
    while (cudaStreamQuery(stream) == cudaErrorNotReady) {
        if (std::chrono::steady_clock::now() > patience) return false;
        std::this_thread::sleep_for(100us);
    }
    return true;
}

bool try_on_current_device() {
    trial_run run;
    trial_state seen;
    bool made = make(run) && cudaMemcpyToSymbolAsync(trial, &seen, sizeof seen, 0, cudaMemcpyHostToDevice,
                                                     run.stream) == cudaSuccess;
    made = made && cudaGraphLaunch(run.ready, run.stream) == cudaSuccess;
    if (made && !ends(run.stream)) return false;
    const bool read = made && cudaMemcpyFromSymbolAsync(&seen, trial, sizeof seen, 0, cudaMemcpyDeviceToHost,
                                                        run.stream) == cudaSuccess;
    const bool ended = run.stream != nullptr && ends(run.stream);
    run.release();
    (void)cudaGetLastError();
    return read && ended && seen.ended == trial_iterations;
}

}  // namespace

bool early_launch_works() {
    constexpr std::size_t max_devices = 64;
    enum class known : std::uint8_t { nothing, no, yes };
    static std::mutex mutex;
    static std::array<known, max_devices> devices{};
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || static_cast<std::size_t>(device) >= max_devices) return false;
    const std::lock_guard lock(mutex);
    known& is = devices[static_cast<std::size_t>(device)];
    if (is == known::nothing) is = try_on_current_device() ? known::yes : known::no;
    return is == known::yes;
}

}  // namespace accel::gpu
