// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/digits_inputs.hpp"

#include <accel_transport/channel.hpp>
#include <accel_transport/timeline.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace accel::examples::digits {

/// Clients that send requests one after the other, each with a thread and a channel of its own.
struct load_options {
    std::string uri;
    input_form form = input_form::raw;
    std::uint32_t clients = 4;
    std::uint32_t requests = 250;  ///< of each client
    channel_options channel;
};

/// Counts up while a load runs; another thread may watch it.
struct load_progress {
    std::atomic<std::uint64_t> answered{0};
    std::function<void()> on_start;  ///< every client is connected and has drawn its inputs
};

struct load_outcome {
    std::string scheme;               ///< the one in use
    std::vector<timeline> timelines;  ///< of every answered request
    std::uint64_t correct = 0;
    std::uint64_t failed = 0;
    std::string failure;              ///< the first one, a sentence
    std::chrono::nanoseconds wall{};  ///< first submit to last answer
    std::chrono::nanoseconds cpu{};   ///< of this process meanwhile
};

/// Runs the load to its end. A client ends at its first call that fails. Fails where a client cannot connect.
[[nodiscard]] result<load_outcome> run_load(context& ctx, const load_options& options, load_progress& progress);

}  // namespace accel::examples::digits
