// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "conformance/payload.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <vector>

/// Clients of a service that echoes.
namespace accel::tests {

/// Keeps all slots of a channel full; returns how many answers were right, and says what the first other was.
inline std::uint64_t run_calls(channel& client, std::uint64_t total, std::uint64_t seed) {
    std::uint64_t submitted = 0;
    std::uint64_t right = 0;
    std::uint64_t ended = 0;
    std::array<completion, 16> done;
    const auto deadline = std::chrono::steady_clock::now() + patience(60s);
    while (ended < total && std::chrono::steady_clock::now() < deadline) {
        while (submitted < total) {
            const auto call = client.begin();
            if (!call) break;
            const std::size_t size = (submitted * 37 + seed) % 2048;
            fill(call->request.first(size), seed + submitted);
            submit_options with;
            with.tag = submitted;
            const status sent = client.submit(call->id, size, with);
            if (sent != status::ok) return right;
            ++submitted;
        }
        const std::size_t got = client.wait(done, patience(5s));
        if (got == 0) {
            std::cout << "nothing came for " << submitted - ended << " calls\n";
            return right;
        }
        for (std::size_t i = 0; i < got; ++i) {
            const std::size_t size = (done[i].tag * 37 + seed) % 2048;
            const bool equal = done[i].response.size() == size && matches(done[i].response, seed + done[i].tag);
            if (done[i].status == status::ok && equal)
                ++right;
            else if (right == ended)
                std::cout << "call " << done[i].tag << ": " << to_string(done[i].status) << '\n';
            done[i].release();
            ++ended;
        }
    }
    return right;
}

}  // namespace accel::tests
