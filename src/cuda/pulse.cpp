// SPDX-License-Identifier: Apache-2.0
#include "cuda/pulse.hpp"

#include "core/log.hpp"
#include "cuda/driver.hpp"
#include "cuda/failure.hpp"

#include <utility>

#include <cuda_runtime_api.h>

namespace accel::cuda {
namespace {

/// While it lives, calls of this thread do not spoil what other threads record (cudaStreamCaptureModeGlobal).
class beside_captures {
  public:
    beside_captures() noexcept { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~beside_captures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
    beside_captures(const beside_captures&) = delete;
    beside_captures& operator=(const beside_captures&) = delete;

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

result<std::unique_ptr<pulse>> pulse::create(int ordinal, std::string name) {
    std::unique_ptr<pulse> made(new pulse(ordinal, std::move(name)));
    const current_device current(ordinal);
    if (current.code() != cudaSuccess) return call_failed("no such GPU", current.code());
    if (const auto code = cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking); code != cudaSuccess)
        return call_failed("cannot make a CUDA stream", code);
    if (const auto code = cudaEventCreateWithFlags(&made->event_, cudaEventDisableTiming); code != cudaSuccess)
        return call_failed("cannot make a CUDA event", code);
    return made;
}

pulse::~pulse() {
    const current_device current(ordinal_);
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

core::gpu_sight pulse::look() {
    const int code = beat();
    if (code == cudaSuccess) return core::gpu_sight::good;
    const error why = call_failed(name_, code);
    if (why.code != status::device_lost) {
        core::limited_log(name_).warn("{}; it will be checked again", why.message);
        return core::gpu_sight::refused;
    }
    core::log().error("{}; no kernel of this process runs there any more, and its sessions end with device_lost",
                      why.message);
    return core::gpu_sight::lost;
}

/// Asks for the last event, and gives the GPU the next.
int pulse::beat() noexcept {
    const current_device current(ordinal_);
    if (current.code() != cudaSuccess) return current.code();
    const beside_captures quiet;
    const cudaError_t code = cudaEventQuery(event_);
    if (code == cudaErrorNotReady) return cudaSuccess;
    return code == cudaSuccess ? cudaEventRecord(event_, stream_) : code;
}

}  // namespace accel::cuda
