// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "patience.hpp"
#include "payload.hpp"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace accel::tests {

/// What came of calls whose responses were compared with their requests.
struct tally {
    std::uint64_t right = 0;
    std::uint64_t wrong = 0;
    std::uint64_t failed = 0;
};

/// `total` calls of a service that echoes, each of up to `largest` bytes that follow from `seed`. Keeps all slots full;
/// ends early when nothing comes back for a while.
inline tally run_calls(channel& client, std::uint64_t total, std::uint64_t seed, std::size_t largest) {
    tally out;
    std::uint64_t submitted = 0;
    std::array<completion, 16> done;
    while (out.right + out.wrong + out.failed < total) {
        while (submitted < total) {
            const auto call = client.begin();
            if (!call) break;
            const std::size_t size = submitted * 37 % (largest + 1);
            fill(call->request.first(size), seed + submitted);
            submit_options with;
            with.tag = submitted;
            if (client.submit(call->id, size, with) != status::ok) {
                (void)client.release(call->id);
                break;
            }
            ++submitted;
        }
        const std::size_t got = client.wait(done, patience(10s));
        if (got == 0) return out;
        for (std::size_t i = 0; i < got; ++i) {
            const std::size_t size = done[i].tag * 37 % (largest + 1);
            const bool equal = done[i].response.size() == size && matches(done[i].response, seed + done[i].tag);
            ++(done[i].status != status::ok ? out.failed : equal ? out.right : out.wrong);
            done[i].release();
        }
    }
    return out;
}

}  // namespace accel::tests
