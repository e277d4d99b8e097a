// SPDX-License-Identifier: Apache-2.0
// What an idle session costs a server. Receives are shared by all sessions of a worker, so it is the send
// queue, the slots and little else.
#include "rdma_pair.hpp"
#include "sanitizers.hpp"

#include <fstream>
#include <iostream>
#include <string>

#include <malloc.h>

namespace accel::rdma::testing {
namespace {

std::size_t resident_bytes() {
    std::ifstream status("/proc/self/statm");
    std::size_t total = 0;
    std::size_t resident = 0;
    status >> total >> resident;
    return resident * 4096;
}

std::size_t heap_bytes() {
    const auto info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
}

class rdma_idle_session : public rdma_test {};

TEST_F(rdma_idle_session, costs_a_server_little_beside_its_slots) {
    if (tests::thread_sanitizer || tests::address_sanitizer) GTEST_SKIP() << "sanitizers keep books of their own";
    constexpr std::size_t sessions = 1000;
    constexpr core::link_geometry shape{8, 64 << 10, 64 << 10};
    listen();
    auto events = open_poller(core::link_role::client);
    const auto peer = events->open_link(config_of(core::link_role::client, shape)).value();
    const auto description = peer->describe();

    std::vector<std::unique_ptr<core::link>> links;
    links.reserve(sessions);
    const std::size_t heap_before = heap_bytes();
    const std::size_t resident_before = resident_bytes();
    std::size_t slots = 0;
    for (std::size_t i = 0; i < sessions; ++i) {
        auto link = accept(description, shape);
        ASSERT_TRUE(link.ok()) << i << ": " << link.error().message;
        links.push_back(std::move(*link));
        slots = links.back()->send().size_bytes() * 2;
    }
    std::array<link_event, 16> none;
    EXPECT_EQ(server_events->poll(none), 0U);
    const std::size_t heap = (heap_bytes() - heap_before) / sessions;
    // Nobody has touched the slots; but a device that pins what is registered has made their pages.
    const std::size_t grown = (resident_bytes() - resident_before) / sessions;
    const std::size_t pinned = grown >= slots ? slots : 0;
    const std::size_t resident = grown - pinned;
    std::cout << "an idle session at the server: " << heap << " bytes of heap, " << resident
              << " resident (emulated device included), " << slots << " of slots registered, "
              << (pinned > 0 ? "and pinned" : "not touched") << " (8 of 64 KiB each way)\n";
    RecordProperty("heap_bytes", static_cast<int>(heap));
    RecordProperty("resident_bytes", static_cast<int>(resident));
    // An emulated device keeps its own books in the same process.
    EXPECT_LT(heap, 64U << 10);
    EXPECT_LT(resident, 64U << 10);
    while (!links.empty()) links.pop_back();
}

}  // namespace
}  // namespace accel::rdma::testing
