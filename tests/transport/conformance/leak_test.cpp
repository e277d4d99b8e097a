// SPDX-License-Identifier: Apache-2.0
// Thousands of connects and disconnects: no descriptor, no memory, no session left behind.
#include "rig.hpp"

#include <fstream>
#include <string>

#include <malloc.h>
#include <unistd.h>

namespace accel::tests {
namespace {

class leaks : public on_every_backend {};

// Memory from outside the heap comes in mappings.
std::size_t mappings() {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) ++count;
    return count;
}

// What the process holds of its heap, whatever pages that is scattered over. 0 under a sanitizer, whose heap
// is another.
std::size_t heap_bytes() {
    const struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
}

TEST_P(leaks, connects_and_disconnects_leave_nothing_behind) {
    server_options small = calm_server();
    small.max_request_bytes = 4096;
    rig r(GetParam(), echo, small);
    channel_options options = calm_client();
    options.slots = 2;
    options.request_bytes = options.response_bytes = 4096;
    channel_options refused = options;
    ++refused.request_bytes;
    completion late;  // of the channel before, which has ended
    const auto once = [&](std::uint64_t i) {
        if (i % 16 == 0) {
            EXPECT_EQ(r.try_connect(refused).code(), status::message_too_large);
        }
        auto client = r.connect(options);
        if (i % 4 != 0) {
            client.send_seed(100, i);
            if (i % 4 == 1) return client.forget();  // dropped with a call in flight
            if (i % 4 == 2) {
                late = client.next();
                EXPECT_TRUE(matches(late.response, i));
                return;
            }
            EXPECT_EQ(client.finish(status::ok), 1U);
        }
    };
    const auto all_gone = [&] {
        return eventually(patience(10s), [&] {
            const auto seen = r.served().statistics();
            return seen.sessions == 0 && seen.memory_bytes == 0;
        });
    };
    const auto total = static_cast<std::uint64_t>(effort(static_cast<int>(GetParam().connects)));
    const std::uint64_t warm_up = total / 5;
    for (std::uint64_t i = 0; i < warm_up; ++i) once(i);
    ASSERT_TRUE(all_gone());
    const std::size_t descriptors = open_descriptors();
    const std::size_t mapped = mappings();
    const std::size_t heap = heap_bytes();
    for (std::uint64_t i = warm_up; i < total; ++i) once(i);
    ASSERT_TRUE(all_gone());
    EXPECT_TRUE(eventually(patience(5s), [&] { return open_descriptors() <= descriptors; }))
        << open_descriptors() << " descriptors are open, " << descriptors << " were after the first " << warm_up;
    // 100 bytes a connection would be 320 kB more; 200 kB, where there are 2,500 connections.
    EXPECT_TRUE(eventually(patience(5s), [&] { return heap_bytes() < heap + (160U << 10); }))
        << heap_bytes() << " bytes of heap, " << heap << " after the first " << warm_up;
    if (time_factor() == 1) {
        EXPECT_TRUE(eventually(patience(5s), [&] { return mappings() < mapped + 200; }))
            << mappings() << " mappings, " << mapped << " after the first " << warm_up;
    }
    EXPECT_EQ(r.served().statistics().sessions_opened, total);
    RecordProperty("connects", static_cast<int>(total));
    RecordProperty("heap_bytes_more", static_cast<int>(heap_bytes()) - static_cast<int>(heap));
}

ACCEL_INSTANTIATE(leaks, all_backends);

}  // namespace
}  // namespace accel::tests
