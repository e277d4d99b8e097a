// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel_memory.hpp"

#include "core/clock.hpp"
#include "staging/stream_wait.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

namespace accel::gpu {
namespace {

constexpr std::size_t page_bytes = 4096;

std::size_t whole_pages(std::size_t bytes) noexcept {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

}  // namespace

kernel_memory::kernel_memory(std::shared_ptr<core::accelerator> gpus, core::accelerator_device* on) noexcept
    : gpus_(std::move(gpus)), gpu_(on) {}

kernel_memory::~kernel_memory() {
    end_sharing();
    for (std::byte* each : on_gpu_) gpu_->release(each);
    for (const mapping& each : on_host_) ::munmap(each.base, each.bytes);
}

void kernel_memory::end_sharing() noexcept {
    for (void* each : pinned_) gpus_->unpin(each);
    pinned_.clear();
}

void kernel_memory::leave_behind() noexcept {
    on_gpu_.clear();
    on_host_.clear();
}

result<std::byte*> kernel_memory::allocate(std::size_t bytes) {
    if (gpu_ == nullptr) return allocate_shared(bytes);
    auto made = gpu_->allocate(bytes);
    if (made) on_gpu_.push_back(*made);
    return made;
}

result<std::byte*> kernel_memory::allocate_shared(std::size_t bytes) {
    const std::size_t size = whole_pages(bytes);
    void* const base =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return error{status::out_of_memory, errno, fmt::format("cannot map {} bytes for a service", size)};
    on_host_.push_back({base, size});
    // Nothing else lies on these pages, so they are pinned in one piece.
    if (gpu_ != nullptr) {
        auto done = gpus_->pin(base, size);
        if (!done) return done.error();
        if (*done) pinned_.push_back(base);
    }
    return static_cast<std::byte*>(base);
}

template <class Pin>
result<void> kernel_memory::share_pages(const void* memory, std::size_t bytes, Pin&& pin) {
    if (gpu_ == nullptr) return {};
    const auto begin = reinterpret_cast<std::uintptr_t>(memory) / page_bytes * page_bytes;
    const auto end = whole_pages(reinterpret_cast<std::uintptr_t>(memory) + bytes);
    for (std::uintptr_t page = begin; page < end; page += page_bytes) {
        if (!known_.insert(page).second) continue;
        // NOLINTNEXTLINE(performance-no-int-to-ptr): a page is a number here
        auto* const where = reinterpret_cast<void*>(page);
        auto done = pin(where);
        if (!done) return done.error();
        if (*done) pinned_.push_back(where);
    }
    return {};
}

result<void> kernel_memory::share(const void* memory, std::size_t bytes) {
    return share_pages(memory, bytes, [this](void* page) { return gpus_->pin(page, page_bytes); });
}

result<void> kernel_memory::share_registers(const void* where, std::size_t bytes) {
    return share_pages(where, bytes, [this](void* page) { return gpus_->pin_registers(page, page_bytes); });
}

result<void> kernel_memory::upload(std::byte* to, std::span<const std::byte> bytes) {
    return copy(to, bytes.data(), bytes.size());
}

result<void> kernel_memory::download(std::span<std::byte> to, const std::byte* from) {
    return copy(to.data(), from, to.size());
}

result<void> kernel_memory::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (gpu_ == nullptr) {
        std::memcpy(to, from, bytes);
        return {};
    }
    constexpr std::chrono::seconds patience{10};
    return core::copy_and_wait(*gpu_, to, from, bytes, core::deadline_after(patience));
}

}  // namespace accel::gpu
