// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/slot_memory.hpp"

#include <accel_transport/memory.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <mutex>
#include <span>

namespace accel::core {

class context_state;

/// A session's slots on the host as regions that channels of the same context can lend. They are made at the first use,
/// and end with the session, which lives as long as any of its exchanges. Any thread.
class lendable_slots {
  public:
    lendable_slots() = default;
    lendable_slots(const lendable_slots&) = delete;
    lendable_slots& operator=(const lendable_slots&) = delete;

    /// Once, before the first request. Without it nothing can be lent.
    void open(context_state& context, slot_memory& requests, slot_memory& responses) noexcept;
    /// `unsupported`: these bytes are in no slot of the host; `out_of_memory`.
    [[nodiscard]] result<slice, status> find_request(std::span<const std::byte> bytes) noexcept;
    [[nodiscard]] result<slice, status> find_response(std::span<std::byte> bytes) noexcept;

  private:
    [[nodiscard]] bool make() noexcept;
    [[nodiscard]] region make_region(const slot_memory& slots) const noexcept;

    context_state* context_ = nullptr;
    slot_memory* request_slots_ = nullptr;
    slot_memory* response_slots_ = nullptr;
    std::once_flag made_;
    region requests_;
    region responses_;
};

}  // namespace accel::core
