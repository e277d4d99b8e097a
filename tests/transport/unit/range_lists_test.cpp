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
#include <span>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

constexpr std::size_t bytes_each = 512;

struct in_ranges : ::testing::Test, scripted_client {
    in_ranges() : scripted_client(2, 4096) {}

    [[nodiscard]] call_id begin() const {
        call_view call;
        EXPECT_EQ(client->begin(call), status::ok);
        return call.id;
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
        EXPECT_EQ(client->release(done[0].id), status::ok);
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

/// Each in its own piece; the bytes between them are nobody's.
TEST_F(in_ranges, a_response_longer_than_its_ranges_ends_the_session) {
    constexpr std::size_t half = bytes_each / 2;
    const std::array into{on_host.part(0, half).value(), on_host.part(bytes_each, half).value()};
    const auto bytes = on_host.whole().bytes();
    std::ranges::fill(bytes, std::byte{1});
    const call_id fits = begin();
    ASSERT_EQ(client->submit(fits, 4, {.response_ranges = into}), status::ok);
    answer(fits, 2 * half);
    EXPECT_EQ(outcome(), status::ok);
    EXPECT_EQ(std::ranges::count(bytes, std::byte{7}), static_cast<std::ptrdiff_t>(2 * half));

    std::ranges::fill(bytes, std::byte{1});
    const call_id longer = begin();
    ASSERT_EQ(client->submit(longer, 4, {.response_ranges = into}), status::ok);
    answer(longer, 2 * half + 1);
    EXPECT_EQ(outcome(), status::peer_lost);
    EXPECT_FALSE(client->connected());
    EXPECT_EQ(std::ranges::count(bytes, std::byte{7}), 0);
}

/// What the link has put into the ranges is not copied there once more, nor read from the slot.
TEST_F(in_ranges, a_response_that_the_link_scatters_is_not_copied) {
    constexpr std::size_t half = bytes_each / 2;
    const std::array into{on_host.part(0, half).value(), on_host.part(bytes_each, half).value()};
    const auto bytes = on_host.whole().bytes();
    std::ranges::fill(bytes, std::byte{1});
    server->takes_apart = true;
    const call_id call = begin();
    ASSERT_EQ(client->submit(call, 4, {.response_ranges = into}), status::ok);
    EXPECT_EQ(server->response_ranges, 2U);
    answer(call, 2 * half);
    std::array<completion, 1> done;
    ASSERT_EQ(client->poll(done), 1U);
    EXPECT_EQ(done[0].response.size(), 2 * half);
    EXPECT_EQ(std::ranges::count(bytes, std::byte{7}), 0);
    std::array<tensor, 1> tensors;
    std::size_t count = 0;
    EXPECT_EQ(client->tensors(done[0], tensors, count), status::unsupported);
    EXPECT_EQ(client->release(call), status::ok);
}

/// A list costs more than a copy then.
TEST_F(in_ranges, short_ranges_are_copied_even_where_the_link_scatters_responses) {
    const std::array into{on_host.part(0, 8).value(), on_host.part(bytes_each, 8).value()};
    const auto bytes = on_host.whole().bytes();
    std::ranges::fill(bytes, std::byte{1});
    server->takes_apart = true;
    const call_id call = begin();
    ASSERT_EQ(client->submit(call, 4, {.response_ranges = into}), status::ok);
    EXPECT_EQ(server->response_ranges, 0U);
    answer(call, 16);
    EXPECT_EQ(outcome(), status::ok);
    EXPECT_EQ(std::ranges::count(bytes, std::byte{7}), 16);
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
