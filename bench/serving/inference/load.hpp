// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server.hpp"

#include <accel_transport/accel_transport.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace accel::bench {

struct inference_settings {
    std::uint64_t calls = 500;  ///< after `warm_up`
    std::uint64_t warm_up = 20;
    std::int16_t gpu = 0;
};

/// One way to serve one network. Times are means in microseconds of one client with one call in flight, but
/// for the percentiles.
struct inference_row {
    network_choice what;
    serving how;
    std::size_t payload_bytes = 0;
    std::uint64_t calls = 0;
    std::uint64_t wrong = 0;  ///< failures, and answers too far from what is expected
    double farthest = 0;      ///< `distance` of the others, at most
    double total_us = 0, p50_us = 0, p99_us = 0, request_us = 0, queue_us = 0, copy_us = 0, preprocessing_us = 0,
           inference_us = 0, response_us = 0, server_us = 0, cpu_us_per_request = 0;
    std::optional<graph_times> graph;  ///< all calls, also those to warm up
};

/// All ways, the first of which is the one that others are compared with: rdma, staged, launched. What cannot
/// be measured is said on standard error, and left out.
[[nodiscard]] std::vector<inference_row> measure_network(context& ctx, const network_choice& choice,
                                                         const inference_settings& wanted);

}  // namespace accel::bench
