// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace accel {

/// Stages that a handler can record on its exchange (names from Hanafy et al., section 3).
enum class stage : std::uint8_t { copy, preprocessing, inference };

/// Durations of the stages of one exchange, as seen by its client. `request` and `response` compare the clocks of both
/// ends: exact on one host; between hosts, off by at most half of the control plane's best round trip.
struct timeline {
    std::chrono::nanoseconds total{};          ///< submit to completion, on the client's clock
    std::chrono::nanoseconds request{};        ///< submit until the server had the whole request
    std::chrono::nanoseconds queue{};          ///< at the server, until its copy or its handler began
    std::chrono::nanoseconds copy{};           ///< between host and accelerator, both ways
    std::chrono::nanoseconds preprocessing{};  ///< as recorded by the handler
    std::chrono::nanoseconds inference{};      ///< as recorded by the handler
    std::chrono::nanoseconds response{};       ///< reply until the client had the whole response
    std::chrono::nanoseconds server{};         ///< total at the server: request complete until reply posted
};

}  // namespace accel
