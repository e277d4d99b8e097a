// SPDX-License-Identifier: Apache-2.0
#include "staging/accelerator.hpp"

#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/failure.hpp"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace accel::cuda {
namespace {

/// The kind of memory behind an application's pointer.
result<memory_kind> kind_of(const void* memory) {
    if (!driver_loaded()) return memory_kind::host();
    cudaPointerAttributes found{};
    if (cudaPointerGetAttributes(&found, memory) != cudaSuccess) {
        (void)cudaGetLastError();
        return memory_kind::host();
    }
    if (found.type == cudaMemoryTypeManaged) {
        return error{status::unsupported, 0,
                     "managed memory moves between host and GPU; register memory from cudaMalloc, or host memory"};
    }
    if (found.type == cudaMemoryTypeDevice) return memory_kind::cuda(static_cast<std::int16_t>(found.device));
    return memory_kind::host();
}

std::string name_of(memory_kind kind) {
    return kind == memory_kind::host() ? "the host's" : fmt::format("cuda:{}'s", kind.ordinal);
}

class cuda_accelerator final : public core::accelerator {
  public:
    result<std::string> probe() override;
    result<core::accelerator_device*> open(memory_kind kind) override;
    std::vector<core::accelerator_device*> opened() override;
    result<void> check(const void* memory, std::size_t bytes, memory_kind said) override;
    result<bool> pin(void* memory, std::size_t bytes) override;
    void unpin(void* memory) noexcept override;
    result<bool> pin_registers(void* page, std::size_t bytes) override;

  private:
    std::mutex mutex_;
    std::map<int, std::unique_ptr<device>> devices_;
};

result<std::string> cuda_accelerator::probe() {
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    if (driver == 0) return error{status::unsupported, 0, "GPU memory: there is no NVIDIA driver here"};
    int count = 0;
    if (const auto code = cudaGetDeviceCount(&count); code != cudaSuccess)
        return call_failed("GPU memory: no GPU can be used", code);
    if (count == 0) return error{status::unsupported, 0, "GPU memory: the NVIDIA driver finds no GPU"};
    return fmt::format("{} GPU{}, driver for CUDA {}.{}", count, count == 1 ? "" : "s", driver / 1000,
                       driver % 1000 / 10);
}

result<core::accelerator_device*> cuda_accelerator::open(memory_kind kind) {
    if (auto usable = probe(); !usable) return usable.error();
    const std::lock_guard lock(mutex_);
    auto& place = devices_[kind.ordinal];
    if (place == nullptr) {
        auto made = device::open(kind.ordinal);
        if (!made) return made.error();
        place = std::move(*made);
    }
    return place.get();
}

std::vector<core::accelerator_device*> cuda_accelerator::opened() {
    std::vector<core::accelerator_device*> all;
    const std::lock_guard lock(mutex_);
    for (const auto& [ordinal, each] : devices_)
        if (each != nullptr) all.push_back(each.get());
    return all;
}

result<void> cuda_accelerator::check(const void* memory, std::size_t bytes, memory_kind said) {
    const auto found = kind_of(memory);
    if (!found) return found.error();
    if (found.value() != said) {
        return error{status::invalid_argument, 0,
                     fmt::format("this memory is {}, not {}: register it as the kind that it is",
                                 name_of(found.value()), name_of(said))};
    }
    if (said == memory_kind::host()) return {};
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const current_device current(said.ordinal);
    const auto all = find_allocation(address);
    if (!all) return all.error();
    if (bytes > all.value().base + all.value().bytes - address) {
        return error{status::invalid_argument, 0,
                     fmt::format("{} bytes from here exceed the GPU allocation of {} bytes", bytes, all.value().bytes)};
    }
    return {};
}

result<bool> cuda_accelerator::pin(void* memory, std::size_t bytes) {
    const auto code = cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (code == cudaSuccess) return true;
    if (code == cudaErrorHostMemoryAlreadyRegistered) {
        (void)cudaGetLastError();
        return false;
    }
    return call_failed(fmt::format("{} bytes of host memory cannot be pinned for the GPU", bytes), code);
}

/// The registers of an emulated adapter are plain memory.
result<bool> cuda_accelerator::pin_registers(void* page, std::size_t bytes) {
    const auto code =
        cudaHostRegister(page, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory);
    if (code == cudaSuccess) return true;
    (void)cudaGetLastError();
    if (code == cudaErrorHostMemoryAlreadyRegistered) return false;
    return pin(page, bytes);
}

void cuda_accelerator::unpin(void* memory) noexcept {
    (void)cudaHostUnregister(memory);
}

}  // namespace
}  // namespace accel::cuda

namespace accel::core {

std::shared_ptr<accelerator> make_accelerator() {
    return std::make_shared<cuda::cuda_accelerator>();
}

}  // namespace accel::core
