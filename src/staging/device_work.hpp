// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/options.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace accel::core {

class slot_memory;
struct stream_lane;

/// The GPU part of a session's slot.
struct device_work {
    stream_lane* lane = nullptr;            ///< while a stream works for its exchange
    std::span<const std::byte> arrived;     ///< where the transport put the request
    std::span<std::byte> departure;         ///< where the transport takes the response from
    std::span<std::byte> text;              ///< on the host, for the message of a failure
    std::span<const std::byte> copied_out;  ///< set while the response is copied to `departure`
};

/// The GPU part of a session besides its slots. `requests` and `responses` are the handler's slots where
/// the transport's are on the host; null where the transport's own are on the GPU.
struct device_session {
    std::shared_ptr<slot_memory> requests;
    std::shared_ptr<slot_memory> responses;
    stream_priority priority = stream_priority::normal;
    stream_lane* lane = nullptr;  ///< of its own, or null

    [[nodiscard]] bool staged() const noexcept { return requests != nullptr; }
};

}  // namespace accel::core
