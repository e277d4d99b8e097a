// SPDX-License-Identifier: Apache-2.0
// Requests and responses in many ranges, over a link that reaches what the test says, and a server that answers what
// it likes.
#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "gpu/fake_gpu.hpp"
#include "unit/scripted_client.hpp"

#include <accel_transport/context.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

constexpr std::size_t bytes_each = 512;

struct in_ranges : ::testing::Test, scripted_client {
    in_ranges() : scripted_client(2, 4096) {}

    [[nodiscard]] call_id begin() const {
        const auto call = client->begin();
        EXPECT_EQ(call.code(), status::ok);
        return call->id;
    }
    [[nodiscard]] status submit_mixed() const {
        const std::array ranges{on_gpu.part(0, bytes_each).value(), on_host.part(0, bytes_each).value()};
        const call_id call = begin();
        const status done = client->submit(call, ranges, {});
        if (done != status::ok) {
            EXPECT_EQ(client->release(call), status::ok);
        }
        return done;
    }
    void answer(call_id call, std::size_t length) const {
        std::byte* const bytes = server->receive().payload(call.slot);
        std::fill_n(bytes, length, std::byte{7});
        link_event event;
        event.header.kind = message_kind::response;
        event.header.slot = call.slot;
        event.header.generation = call.generation;
        event.header.length = length;
        event.payload = {bytes, length};
        server->events.push_back(event);
    }
    [[nodiscard]] status outcome() const {
        std::array<completion, 1> done;
        if (client->poll(done) != 1) return status::again;
        const status how = done[0].status;
        done[0].release();
        return how;
    }

    context within = [] {
        auto made = context::open({.log = log_level::off}).value();
        core::internals::state_of(made)->replace_devices(std::make_shared<tests::fake_accelerator>());
        return made;
    }();
    region on_gpu = within.allocate(bytes_each, memory_kind::cuda(0)).value();
    region on_host = within.allocate(2 * bytes_each).value();
};

/// What lies on a GPU cannot be copied together with the rest.
TEST_F(in_ranges, ranges_of_a_gpu_and_of_unreachable_memory_are_unsupported) {
    server->reaches_memory = true;
    server->out_of_reach = on_host.whole().region();
    EXPECT_EQ(submit_mixed(), status::unsupported);
    server->out_of_reach = on_gpu.whole().region();
    EXPECT_EQ(submit_mixed(), status::unsupported);
    server->reaches_memory = false;
    EXPECT_EQ(submit_mixed(), status::unsupported);
    EXPECT_TRUE(server->sent.empty());
    server->reaches_memory = true;
    server->out_of_reach = nullptr;
    EXPECT_EQ(submit_mixed(), status::ok);
    EXPECT_EQ(server->ranges, 2U);
}

/// Lists of any length, copied from the slot or filled by the link: each byte goes to its own piece, and the bytes
/// between the pieces are nobody's.
TEST_F(in_ranges, a_response_fills_its_ranges_in_their_order_and_nothing_else) {
    std::mt19937 random(1);
    const auto memory = on_host.whole().bytes();
    int by_link = 0;
    server->room = 10'000;
    for (int round = 0; round < 2'000; ++round) {
        std::vector<slice> into;
        std::size_t room = 0;
        for (std::size_t at = random() % 9; at < memory.size() && into.size() < 5;) {
            const std::size_t length = std::min<std::size_t>(random() % 600, memory.size() - at);
            into.push_back(on_host.part(at, random() % 8 == 0 ? 0 : length).value());
            room += into.back().size();
            at += length + (random() % 3 == 0 ? 0 : random() % 99);
        }
        if (random() % 2 == 0) std::ranges::reverse(into);
        std::size_t pieces = 0;  // neighbours are one, and those without bytes are none
        const std::byte* end = nullptr;
        for (const slice& each : into) {
            if (each.empty()) continue;
            if (each.data() != end) ++pieces;
            end = each.data() + each.size();
        }
        server->takes_apart = random() % 2 == 0;
        const bool listed = server->takes_apart && pieces > 0 && room / pieces >= 256;
        by_link += listed ? 1 : 0;
        const std::size_t length = random() % 2 == 0 ? room : random() % (room + 1);
        std::ranges::fill(memory, std::byte{1});
        std::vector<std::byte> expected(memory.begin(), memory.end());
        std::size_t left = listed ? 0 : length;
        for (const slice& each : into) {
            const std::size_t part = std::min(left, each.size());
            std::fill_n(expected.begin() + (each.data() - memory.data()), part, std::byte{7});
            left -= part;
        }
        const call_id call = begin();
        ASSERT_EQ(client->submit(call, 4, {.response_ranges = into}), status::ok);
        EXPECT_EQ(server->response_ranges, listed ? pieces : 0U);
        EXPECT_EQ(server->sent.back().response_room, room);
        answer(call, length);
        std::array<completion, 1> done;
        ASSERT_EQ(client->poll(done), 1U);
        EXPECT_EQ(done[0].status, status::ok);
        EXPECT_EQ(done[0].response.size(), length);
        ASSERT_TRUE(std::ranges::equal(memory, expected)) << "round " << round;
        std::array<tensor, 1> tensors;
        EXPECT_EQ(done[0].tensors(tensors).code(), status::unsupported);
    }
    EXPECT_GT(by_link, 100);
}

TEST_F(in_ranges, a_response_longer_than_its_ranges_ends_the_session) {
    constexpr std::size_t half = bytes_each / 2;
    const std::array into{on_host.part(0, half).value(), on_host.part(bytes_each, half).value()};
    const auto bytes = on_host.whole().bytes();
    std::ranges::fill(bytes, std::byte{1});
    const call_id longer = begin();
    ASSERT_EQ(client->submit(longer, 4, {.response_ranges = into}), status::ok);
    answer(longer, 2 * half + 1);
    EXPECT_EQ(outcome(), status::peer_lost);
    EXPECT_FALSE(client->connected());
    EXPECT_EQ(std::ranges::count(bytes, std::byte{7}), 0);
}

/// The link may write there until it was asked back, or the answer has come.
TEST_F(in_ranges, a_cancel_retracts_ranges_from_a_link_that_scatters_responses) {
    const std::array into{on_host.part(0, bytes_each).value()};
    server->takes_apart = true;
    const call_id call = begin();
    ASSERT_EQ(client->submit(call, 4, {.response_ranges = into}), status::ok);
    ASSERT_EQ(client->cancel(call), status::ok);
    EXPECT_EQ(outcome(), status::cancelled);
    EXPECT_EQ(server->retracted, 1);
}

}  // namespace
}  // namespace accel::core
