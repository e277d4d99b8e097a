// SPDX-License-Identifier: Apache-2.0
#include "core/context_state.hpp"
#include "core/internals.hpp"

#include <accel_transport/memory.hpp>

#include <atomic>
#include <cstdint>

#include <fmt/format.h>
#include <sys/mman.h>

namespace accel {

namespace {

result<slice> out_of_range(std::size_t offset, std::size_t length, std::size_t size) {
    return error{
        status::invalid_argument, 0,
        fmt::format("{} bytes from offset {} are not within the {} bytes of this memory", length, offset, size)};
}

}  // namespace

result<slice> slice::part(std::size_t offset, std::size_t length) const {
    if (offset > size_ || length > size_ - offset) return out_of_range(offset, length, size_);
    return slice{data_ + offset, length, region_};
}

region::region() noexcept = default;
region::region(std::unique_ptr<core::region_state> state) noexcept : state_(std::move(state)) {}
region::region(region&&) noexcept = default;
region& region::operator=(region&& other) noexcept {
    core::leave_to_parent(state_);
    state_ = std::move(other.state_);
    return *this;
}
region::~region() {
    core::leave_to_parent(state_);
}

std::byte* region::data() const noexcept {
    return state_ ? state_->data() : nullptr;
}
std::size_t region::size() const noexcept {
    return state_ ? state_->size() : 0;
}
memory_kind region::kind() const noexcept {
    return state_ ? state_->kind() : memory_kind::host();
}
slice region::whole() const noexcept {
    return {data(), size(), state_.get()};
}
result<slice> region::part(std::size_t offset, std::size_t length) const {
    if (state_ != nullptr && state_->inherited()) return core::made_before_fork();
    return whole().part(offset, length);
}

namespace core {
namespace {

std::uint64_t next_region_id() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

region internals::make_region(std::unique_ptr<region_state> state) noexcept {
    return region{std::move(state)};
}

region_state::region_state(context_state& context, std::byte* data, std::size_t size, accelerator_device* on,
                           bool owned) noexcept
    : context_(context.shared_from_this()),
      data_(data),
      size_(size),
      device_(on),
      kind_(on == nullptr ? memory_kind::host() : on->kind()),
      id_(next_region_id()),
      owned_(owned) {}

region_state::~region_state() {
    for (const auto& each : context_->backends()) each->unregister_region(*this);
    if (!owned_) return;
    if (device_ != nullptr)
        device_->release(data_);
    else
        ::munmap(data_, size_);
}

}  // namespace core
}  // namespace accel
