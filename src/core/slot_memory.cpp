// SPDX-License-Identifier: Apache-2.0
#include "core/slot_memory.hpp"

#include "staging/accelerator.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

namespace accel::core {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t device_line = 256;

std::size_t round_up(std::size_t value, std::size_t to) noexcept {
    return (value + to - 1) / to * to;
}

std::size_t stride_for(std::size_t behind_header) noexcept {
    return round_up(extension_room + header_bytes + behind_header, cache_line);
}

}  // namespace

std::size_t slot_memory::size_bytes(std::uint32_t count, std::size_t capacity) noexcept {
    return stride_for(capacity) * count;
}

std::size_t slot_memory::device_stride(std::size_t capacity) noexcept {
    return round_up(std::max<std::size_t>(capacity, 1), device_line);
}

slot_memory::slot_memory(std::uint32_t count, std::size_t capacity, slot_place place) noexcept
    : count_(count),
      capacity_(capacity),
      stride_(stride_for(place.device == nullptr ? capacity : text_room)),
      payload_stride_(place.device == nullptr ? stride_ : device_stride(capacity)),
      place_(std::move(place)) {}

result<std::shared_ptr<slot_memory>> slot_memory::create(std::uint32_t count, std::size_t capacity, slot_place place) {
    if (count == 0 || count > max_slots || capacity > max_payload_bytes) {
        return error{status::invalid_argument, 0,
                     fmt::format("there must be 1 to {} slots of at most {} bytes", max_slots, max_payload_bytes)};
    }
    std::shared_ptr<slot_memory> made(new slot_memory(count, capacity, std::move(place)));
    if (auto mapped = made->map(); !mapped) return mapped.error();
    return made;
}

std::shared_ptr<slot_memory> slot_memory::over(std::byte* base, std::uint32_t count, std::size_t capacity,
                                               std::size_t stride) {
    std::shared_ptr<slot_memory> made(new slot_memory(count, capacity, {}));
    made->owned_ = false;
    made->base_ = base;
    made->payloads_ = base + extension_room + header_bytes;
    made->stride_ = made->payload_stride_ = stride;
    return made;
}

result<void> slot_memory::map() {
    void* base =
        ::mmap(nullptr, size_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return error{
            status::out_of_memory, errno,
            fmt::format("cannot map {} bytes for {} slots; ask for fewer or smaller ones", size_bytes(), count_)};
    }
    base_ = static_cast<std::byte*>(base);
    payloads_ = base_ + extension_room + header_bytes;
    if (place_.device == nullptr) return {};
    result<std::byte*> payloads = error{status::unsupported, 0, {}};
    if (place_.shareable) payloads = place_.device->allocate_shareable(payload_bytes());
    if (!payloads && payloads.code() == status::unsupported) payloads = place_.device->allocate(payload_bytes());
    if (!payloads) return payloads.error();
    payloads_ = *payloads;
    return {};
}

result<void> slot_memory::pin(const std::shared_ptr<accelerator>& devices) {
    if (pinned_by_ != nullptr) return {};
    auto pinned = devices->pin(base_, size_bytes());
    if (!pinned) return pinned.error();
    if (*pinned) pinned_by_ = devices;
    return {};
}

slot_memory::~slot_memory() {
    if (pinned_by_ != nullptr) pinned_by_->unpin(base_);
    if (base_ == nullptr || !owned_) return;
    const bool on_device = place_.device != nullptr && payloads_ != base_ + extension_room + header_bytes;
    if (on_device) place_.device->release(payloads_);
    ::munmap(base_, size_bytes());
}

}  // namespace accel::core
