// SPDX-License-Identifier: Apache-2.0
#include "cuda/device.hpp"

#include "cuda/driver.hpp"
#include "cuda/failure.hpp"
#include "cuda/pulse.hpp"
#include "cuda/shared_memory.hpp"
#include "cuda/stream.hpp"

#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace accel::cuda {
namespace {

/// Allocations are whole pages of a dma-buf, whatever the host's page size.
constexpr std::size_t granularity = std::size_t{64} << 10;

std::size_t round_up(std::size_t value, std::size_t to) noexcept {
    return (value + to - 1) / to * to;
}

}  // namespace

result<std::unique_ptr<device>> device::open(int ordinal) {
    int count = 0;
    if (const auto code = cudaGetDeviceCount(&count); code != cudaSuccess)
        return call_failed("no GPU can be used", code);
    if (ordinal < 0 || ordinal >= count) {
        return error{
            status::unsupported, 0,
            fmt::format("there is no cuda:{}; this process sees {} GPU{}", ordinal, count, count == 1 ? "" : "s")};
    }
    cudaDeviceProp properties{};
    if (const auto code = cudaGetDeviceProperties(&properties, ordinal); code != cudaSuccess)
        return call_failed("cannot read the GPU's properties", code);
    const current_device current(ordinal);
    if (current.code() != cudaSuccess) return call_failed("the GPU cannot be used", current.code());
    std::unique_ptr<device> made(new device(ordinal, fmt::format("cuda:{} ({})", ordinal, properties.name)));
    int ordering = cudaGPUDirectRDMAWritesOrderingNone;
    (void)cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, ordinal);
    int options = 0;
    (void)cudaDeviceGetAttribute(&options, cudaDevAttrGPUDirectRDMAFlushWritesOptions, ordinal);
    const bool can_flush = (options & cudaFlushGPUDirectRDMAWritesOptionHost) != 0;
    int reached = 0;
    (void)cudaDeviceGetAttribute(&reached, cudaDevAttrGPUDirectRDMASupported, ordinal);
    // Where no adapter reaches the memory there is no order; one that is emulated copies.
    made->orders_inbound_ = reached == 0 || ordering >= cudaGPUDirectRDMAWritesOrderingOwner;
    made->flush_needed_ = ordering < cudaGPUDirectRDMAWritesOrderingOwner && can_flush;
    return made;
}

result<std::byte*> device::allocate(std::size_t bytes) {
    const std::size_t size = round_up(bytes, granularity);
    void* memory = nullptr;
    const current_device current(ordinal_);
    if (current.code() != cudaSuccess) return call_failed(name_, current.code());
    if (const auto code = cudaMalloc(&memory, size); code != cudaSuccess)
        return call_failed(fmt::format("{} does not have {} bytes of free memory", name_, size), code);
    if (auto cleared = clear(memory, size); !cleared) {
        (void)cudaFree(memory);
        return cleared.error();
    }
    auto* const made = static_cast<std::byte*>(memory);
    keep(made, size, false);
    return made;
}

/// Not on the legacy stream, which would wait for kernels that never end.
result<void> device::clear(void* memory, std::size_t bytes) {
    auto zeroed = stream::create(ordinal_, stream_priority::normal, failed_);
    cudaError_t code = cudaErrorUnknown;
    if (zeroed) {
        code = cudaMemsetAsync(memory, 0, bytes, (*zeroed)->native());
        if (code == cudaSuccess) code = cudaStreamSynchronize((*zeroed)->native());
    }
    if (code == cudaSuccess) return {};
    return call_failed(fmt::format("{}: memory cannot be cleared", name_), code);
}

void device::keep(std::byte* made, std::size_t bytes, bool mapped) {
    const std::lock_guard lock(mutex_);
    owned_[made] = {bytes, mapped};
    allocated_.fetch_add(bytes, std::memory_order_relaxed);
}

void device::release(std::byte* memory) noexcept {
    owned gone;
    {
        const std::lock_guard lock(mutex_);
        const auto found = owned_.find(memory);
        if (found == owned_.end()) return;
        gone = found->second;
        allocated_.fetch_sub(gone.bytes, std::memory_order_relaxed);
        owned_.erase(found);
    }
    if (!gone.mapped) {
        (void)cudaFree(memory);
        return;
    }
    const current_device current(ordinal_);
    shared_memory::unmap(memory, gone.bytes);
}

result<std::byte*> device::allocate_shareable(std::size_t bytes) {
    const current_device current(ordinal_);
    if (current.code() != cudaSuccess) return call_failed(name_, current.code());
    auto made = shared_memory::create(ordinal_, bytes);
    if (!made) return error{made.error().code, made.error().native, fmt::format("{}: {}", name_, made.error().message)};
    if (auto cleared = clear(made->data, made->bytes); !cleared) {
        shared_memory::unmap(made->data, made->bytes);
        return cleared.error();
    }
    keep(made->data, made->bytes, true);
    return made->data;
}

result<core::unique_fd> device::share(const std::byte* memory) {
    const current_device current(ordinal_);
    return shared_memory::export_descriptor(memory);
}

result<std::byte*> device::map_shared(int fd, std::size_t bytes, core::shared_of whose) {
    const current_device current(ordinal_);
    if (current.code() != cudaSuccess) return call_failed(name_, current.code());
    auto mapped = shared_memory::map(ordinal_, fd, bytes, whose);
    if (!mapped)
        return error{mapped.error().code, mapped.error().native, fmt::format("{}: {}", name_, mapped.error().message)};
    keep(mapped->data, mapped->bytes, true);
    return mapped->data;
}

result<std::unique_ptr<core::device_stream>> device::open_stream(stream_priority priority) {
    auto made = stream::create(ordinal_, priority, failed_);
    if (!made) return made.error();
    return std::unique_ptr<core::device_stream>(std::move(*made));
}

result<core::dma_buf> device::export_memory(const std::byte* memory, std::size_t bytes) {
    const current_device current(ordinal_);
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    auto all = find_allocation(address);
    if (!all) return all.error();
    if (address + bytes > all->base + all->bytes)
        return error{status::invalid_argument, 0, fmt::format("{} bytes of GPU memory exceed their allocation", bytes)};
    // A dma-buf covers whole pages; allocations do too, though they may be handed out in smaller pieces.
    constexpr std::size_t page = 4096;
    const std::uintptr_t begin = address / page * page;
    const std::size_t size = round_up(address + bytes - begin, page);
    auto fd = export_dma_buf(begin, size, true);
    if (!fd) fd = export_dma_buf(begin, size, false);
    if (!fd) return fd.error();
    return core::dma_buf{*fd, address - begin};
}

result<void> device::watch() {
    const std::lock_guard lock(mutex_);
    if (watch_ != nullptr) return {};
    auto made = pulse::create(ordinal_, name_);
    if (!made) return made.error();
    std::shared_ptr<pulse> felt = std::move(*made);
    watch_ = std::make_unique<core::failure_watch>([felt] { return felt->look(); }, failed_);
    return {};
}

result<void> device::when_ended(CUstream_st* stream, void (*done)(void*), void* argument) {
    const current_device current(ordinal_);
    if (const auto code = cudaLaunchHostFunc(stream, done, argument); code != cudaSuccess)
        return call_failed(fmt::format("{} does not report when a stream ends", name_), code);
    return {};
}

void device::make_inbound_visible() noexcept {
    if (!flush_needed_) return;
    const current_device current(ordinal_);
    (void)cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                             cudaFlushGPUDirectRDMAWritesToOwner);
}

}  // namespace accel::cuda
