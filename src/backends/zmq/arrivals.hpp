// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/message.hpp"
#include "core/backend.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace accel::zmq {

/// The slots in which messages arrive. A large payload stays in ZeroMQ's own message until it is consumed, a
/// small one is copied into its slot. A header is written to its slot only if it has extensions.
class arrival_slots {
  public:
    arrival_slots(std::uint32_t count, std::size_t capacity, std::shared_ptr<core::slot_memory> memory)
        : capacity_(capacity), memory_(std::move(memory)), slots_(count) {}

    /// `protocol_error`: no such slot, too long, or the last message there is not consumed yet.
    [[nodiscard]] status place(incoming& in, std::span<std::byte>& payload) noexcept;
    /// The same, with the payload copied to `target`, which has room for it.
    [[nodiscard]] status place_in(std::span<std::byte> target, incoming& in, std::span<std::byte>& payload) noexcept;
    void consumed(std::uint32_t slot) noexcept;

  private:
    struct arrival {
        message_part message;
        bool occupied = false;
        bool adopted = false;
    };
    [[nodiscard]] arrival* free_slot(const core::slot_header& header) noexcept;
    void keep_extensions(const incoming& in) noexcept;

    std::size_t capacity_;
    std::shared_ptr<core::slot_memory> memory_;
    std::vector<arrival> slots_;
};

}  // namespace accel::zmq
