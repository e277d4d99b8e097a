// SPDX-License-Identifier: Apache-2.0
#include "core/server/lendable_slots.hpp"

#include "core/context_state.hpp"
#include "core/internals.hpp"

#include <cstdint>
#include <new>

namespace accel::core {
namespace {

/// The part of `all` that these bytes are; `unsupported`: they lie elsewhere.
[[nodiscard]] result<slice, status> find_part(const region& all, std::span<const std::byte> bytes) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(all.data());
    const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
    const bool inside = at >= begin && at - begin <= all.size() && bytes.size() <= all.size() - (at - begin);
    if (!inside) return status::unsupported;
    const auto found = all.part(at - begin, bytes.size());
    if (!found) return found.code();
    return *found;
}

}  // namespace

void lendable_slots::open(context_state& context, slot_memory& requests, slot_memory& responses) noexcept {
    context_ = &context;
    request_slots_ = &requests;
    response_slots_ = &responses;
}

/// Backends prepare it as any other region.
region lendable_slots::make_region(const slot_memory& slots) const noexcept {
    std::unique_ptr<region_state> state(new (std::nothrow)
                                            region_state(*context_, slots.base(), slots.size_bytes(), nullptr, false));
    if (state == nullptr) return region{};
    for (const auto& each : context_->backends())
        if (auto done = each->register_region(*state); !done) return region{};
    return internals::make_region(std::move(state));
}

/// A lock for the first caller only.
bool lendable_slots::make() noexcept {
    std::call_once(made_, [this] {
        requests_ = make_region(*request_slots_);
        responses_ = make_region(*response_slots_);
    });
    return requests_.size() != 0 && responses_.size() != 0;
}

result<slice, status> lendable_slots::find_request(std::span<const std::byte> bytes) noexcept {
    if (context_ == nullptr) return status::unsupported;
    if (!make()) return status::out_of_memory;
    return find_part(requests_, bytes);
}

result<slice, status> lendable_slots::find_response(std::span<std::byte> bytes) noexcept {
    if (context_ == nullptr) return status::unsupported;
    if (!make()) return status::out_of_memory;
    return find_part(responses_, bytes);
}

}  // namespace accel::core
