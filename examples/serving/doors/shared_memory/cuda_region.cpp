// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/shared_memory/cuda_region.hpp"

#include "serving/doors/oip/refusal.hpp"

#include <cstring>
#include <string>
#include <utility>

#include <cuda_runtime.h>

namespace accel::examples::serving::shared_memory {
namespace {

error cuda_error(status reason, const std::string& what, cudaError_t why) {
    static_cast<void>(cudaGetLastError());
    return oip::refusal(reason, what + ": " + cudaGetErrorString(why));
}

/// Memory of another process, open in this one. The driver keeps the memory while it is open, whatever its owner does.
class opened_memory {
  public:
    explicit opened_memory(std::byte* at) noexcept : at_(at) {}
    opened_memory(opened_memory&& from) noexcept : at_(std::exchange(from.at_, nullptr)) {}
    opened_memory& operator=(opened_memory&&) = delete;
    ~opened_memory() {
        if (at_ != nullptr) static_cast<void>(cudaIpcCloseMemHandle(at_));
    }
    [[nodiscard]] std::byte* at() const noexcept { return at_; }

  private:
    std::byte* at_;
};

/// A stream that waits for no other one.
class copy_stream {
  public:
    explicit copy_stream(cudaStream_t native) noexcept : native_(native) {}
    copy_stream(copy_stream&& from) noexcept : native_(std::exchange(from.native_, nullptr)) {}
    copy_stream& operator=(copy_stream&&) = delete;
    ~copy_stream() {
        if (native_ != nullptr) static_cast<void>(cudaStreamDestroy(native_));
    }
    /// Until the bytes are there.
    [[nodiscard]] cudaError_t copy(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept {
        const cudaError_t given = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native_);
        return given == cudaSuccess ? cudaStreamSynchronize(native_) : given;
    }

  private:
    cudaStream_t native_;
};

class cuda_region final : public region {
  public:
    cuda_region(int device, opened_memory memory, copy_stream stream, accel::region registered,
                std::unique_ptr<claim> share)
        : device_(device),
          memory_(std::move(memory)),
          stream_(std::move(stream)),
          registered_(std::move(registered)),
          share_(std::move(share)) {}
    ~cuda_region() override {
        registered_ = {};
        static_cast<void>(cudaSetDevice(device_));
    }

    result<void> read(std::uint64_t offset, std::span<std::byte> to) override {
        return copy(to.data(), memory_.at() + offset, to.size());
    }
    result<void> write(std::uint64_t offset, std::span<const std::byte> from) override {
        return copy(memory_.at() + offset, from.data(), from.size());
    }
    slice lend(std::uint64_t offset, std::uint64_t bytes) override {
        const auto part = registered_.part(offset, bytes);
        return part ? part.value() : slice{};
    }
    [[nodiscard]] bool lost() const noexcept override { return false; }
    [[nodiscard]] bool on_gpu() const noexcept override { return true; }

  private:
    [[nodiscard]] result<void> copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
        const cudaError_t chosen = cudaSetDevice(device_);
        const cudaError_t done = chosen == cudaSuccess ? stream_.copy(to, from, bytes) : chosen;
        if (done == cudaSuccess) return {};
        return cuda_error(status::device_lost, "the GPU cannot copy", done);
    }

    int device_;
    opened_memory memory_;
    copy_stream stream_;
    accel::region registered_;
    std::unique_ptr<claim> share_;
};

result<int> choose_device(std::int64_t device) {
    int count = 0;
    const cudaError_t counted = cudaGetDeviceCount(&count);
    if (counted != cudaSuccess) return cuda_error(status::unsupported, "there is no usable GPU", counted);
    if (device < 0 || device >= count)
        return oip::refusal(status::invalid_argument, "there is no device_id " + std::to_string(device) +
                                                          ": this host has " + std::to_string(count) + " GPUs");
    const int chosen = static_cast<int>(device);
    const cudaError_t used = cudaSetDevice(chosen);
    if (used != cudaSuccess) return cuda_error(status::unsupported, "the GPU cannot be used", used);
    return chosen;
}

result<opened_memory> open_memory(std::string_view handle) {
    cudaIpcMemHandle_t native;
    if (handle.size() != sizeof native)
        return oip::refusal(status::invalid_argument, "raw_handle has " + std::to_string(handle.size()) +
                                                          " bytes, but a cudaIpcMemHandle_t has "
                                                          "64");
    std::memcpy(&native, handle.data(), sizeof native);
    void* at = nullptr;
    const cudaError_t opened = cudaIpcOpenMemHandle(&at, native, cudaIpcMemLazyEnablePeerAccess);
    if (opened != cudaSuccess) return cuda_error(status::invalid_argument, "raw_handle cannot be opened", opened);
    return opened_memory{static_cast<std::byte*>(at)};
}

result<copy_stream> open_copy_stream() {
    cudaStream_t native = nullptr;
    const cudaError_t made = cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking);
    if (made != cudaSuccess) return cuda_error(status::out_of_memory, "the GPU has no stream left", made);
    return copy_stream{native};
}

}  // namespace

result<void> check_cuda() {
    const auto first = choose_device(0);
    return first ? result<void>{} : result<void>{first.error()};
}

result<std::shared_ptr<region>> open_cuda_region(std::string_view handle, std::int64_t device, std::uint64_t bytes,
                                                 std::unique_ptr<claim> share, context& lent_by) {
    const auto chosen = choose_device(device);
    if (!chosen) return chosen.error();
    auto memory = open_memory(handle);
    if (!memory) return memory.error();
    // It looks up how long the memory is.
    auto registered =
        lent_by.register_memory(memory->at(), bytes, memory_kind::cuda(static_cast<std::int16_t>(chosen.value())));
    if (!registered) return registered.error();
    auto stream = open_copy_stream();
    if (!stream) return stream.error();
    return std::shared_ptr<region>{std::make_shared<cuda_region>(chosen.value(), std::move(memory).value(),
                                                                 std::move(stream).value(),
                                                                 std::move(registered).value(), std::move(share))};
}

}  // namespace accel::examples::serving::shared_memory
