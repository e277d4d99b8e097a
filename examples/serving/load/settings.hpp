// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/table.hpp"

#include <accel_transport/options.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel::examples::serving {

/// What an answer is compared with. All of them look at status, types and shapes.
enum class expectation : std::uint8_t {
    shape,      ///< nothing else
    synthetic,  ///< what a synthetic model answers
    digits,     ///< the digits network's scores
};

/// Where a client preprocesses raw images before it sends their tensors.
struct first_stage {
    std::int16_t gpu = 0;
    bool from_host = false;  ///< the tensors are copied to the host and sent from there, as where only the host sends
};

/// One measurement: clients with a channel and a thread each.
struct load_settings {
    std::vector<std::string> uris;  ///< clients are spread over them
    const model_shapes* model = nullptr;
    bool raw = false;                       ///< send raw images, which the server preprocesses
    std::optional<first_stage> preprocess;  ///< not `raw`; with `depth` 1
    expectation expect = expectation::shape;
    std::uint32_t clients = 1;
    std::uint32_t priority_clients = 0;  ///< so many of them have channels of high priority
    std::uint64_t requests = 1000;       ///< of each client, and at most so many
    std::uint64_t at_least = 0;          ///< calls of each client, beyond `duration` as well; closed loop
    std::uint64_t warm_up = 10;          ///< of each client, before the measurement
    /// The warm-up is repeated, from a quarter of this time until all of it, while two series of it take other times.
    std::chrono::nanoseconds settle{};
    /// No more calls are sent after this time.
    std::optional<std::chrono::nanoseconds> duration;
    std::chrono::nanoseconds least_time{};  ///< open loop: more than `requests` are sent until a call is due behind it
    std::uint32_t depth = 1;                ///< calls in flight, of each client
    double rate = 0;  ///< open loop: calls due in a second, of all clients together; 0: as soon as possible
    std::chrono::nanoseconds slo{};  ///< answers within it are goodput; 0: none was given
    std::chrono::nanoseconds timeout = std::chrono::seconds{30};
    std::uint64_t seed = 1;
    int gpu = 0;  ///< which is watched, by NVML's number; -1: none
    poll_mode poll = poll_mode::adaptive;
};

}  // namespace accel::examples::serving
