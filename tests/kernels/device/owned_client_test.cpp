// SPDX-License-Identifier: Apache-2.0
// A channel of kernels that one of them owns, with threads of the host in their place, at servers of all kinds. What
// holds for shared channels as well is in client_test.cpp.
#include "device/client_rig.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

namespace accel::tests {
namespace {

struct owned_case {
    const char* name;
    client_case who;
    queue_location queues = queue_location::automatic;
    friend std::ostream& operator<<(std::ostream& out, const owned_case& which) { return out << which.name; }
};

class owned_client : public ::testing::TestWithParam<owned_case> {
  protected:
    void SetUp() override {
        if (!has(GetParam().who.caller.engine)) GTEST_SKIP() << "this device has no queues to drive";
        rig.wanted.kernels.sharing = service_sharing::exclusive;
        rig.wanted.kernels.queues = GetParam().queues;
    }
    void open() {
        rig.listen();
        if (!HasFatalFailure()) rig.connect();
        if (!HasFatalFailure()) {
            ASSERT_EQ(rig.channel->sharing(), service_sharing::exclusive);
            ASSERT_EQ(device::own(ref(), mine), status::ok);
        }
    }
    [[nodiscard]] const device::channel_ref& ref() const { return rig.channel->ref(); }
    /// An owned service's kernels answer at once.
    [[nodiscard]] static bool holds_requests() { return !GetParam().who.owners_answer; }
    client_rig rig{GetParam().who};
    device::owned_channel mine;
};

TEST_P(owned_client, echoes_every_size) {
    open();
    EXPECT_EQ(rig.channel->engine(), GetParam().who.caller.engine);
    EXPECT_NE(rig.channel->engine_reason(), "");
    for (const std::size_t size : {0U, 1U, 7U, 64U, 65U, 255U, 1000U, 4095U, 4096U})
        EXPECT_EQ(call_once(mine, size, size), status::ok) << size;
    rig.channel->close();
    const auto seen = rig.channel->statistics();
    EXPECT_EQ(seen.submitted, 9U);
    EXPECT_EQ(seen.completed, 9U);
    EXPECT_EQ(seen.ended_early, 0U);
    EXPECT_EQ(seen.stale, 0U);
}

TEST_P(owned_client, echoes_more_calls_than_its_queue_has_room_for) {
    open();
    const auto calls = static_cast<std::uint64_t>(effort(1500));
    std::uint64_t right = 0;
    for (std::uint64_t i = 0; i < calls; ++i) right += call_once(mine, i * 37 % 2048, i) == status::ok ? 1U : 0U;
    EXPECT_EQ(right, calls);
    EXPECT_TRUE(rig.channel->connected());
    // Reported while it runs, now and then.
    device::call_ref none;
    EXPECT_TRUE(eventually(patience(5s), [&] {
        if (device::begin(mine, none) == status::ok) (void)device::release(mine, none);
        return call_once(mine, 0, 1) == status::ok && rig.channel->statistics().completed >= calls;
    }));
}

TEST_P(owned_client, calls_name_their_target) {
    open();
    const auto outcome = [&](std::uint32_t number) {
        device::call_ref call;
        EXPECT_EQ(begin_call(mine, call), status::ok);
        device::call_options with;
        with.target = number;
        EXPECT_EQ(device::submit(mine, call, 10, with), status::ok);
        (void)await(mine, call);
        EXPECT_EQ(device::release(mine, call), status::ok);
        return call;
    };
    const device::call_ref answered = outcome(target_of("named").number);
    EXPECT_EQ(answered.outcome, status::application_error);
    EXPECT_EQ(answered.code, 99U);
    EXPECT_EQ(outcome(0).outcome, status::ok);
}

TEST_P(owned_client, messages_of_the_largest_agreed_size_arrive) {
    constexpr std::size_t large = std::size_t{3} << 20;
    if (rig.kind.kernels_answer) {
        rig.services.options.max_sessions = 2;
        rig.services.options.max_request_bytes = rig.services.options.max_response_bytes = large;
    }
    rig.wanted.slots = 2;
    rig.wanted.request_bytes = rig.wanted.response_bytes = large;
    open();
    for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(call_once(mine, large, i), status::ok);
    device::call_ref call;
    ASSERT_EQ(device::begin(mine, call), status::ok);
    EXPECT_EQ(call.request_room, large);
    EXPECT_EQ(device::submit(mine, call, large + 1), status::message_too_large);
    EXPECT_EQ(device::release(mine, call), status::ok);
}

/// More than the owner has at hand.
TEST_P(owned_client, all_slots_work_at_once_and_begin_gives_no_more) {
    rig.wanted.slots = device::detail::max_calls_at_hand + 4;
    open();
    std::vector<device::call_ref> calls(rig.wanted.slots);
    for (std::uint64_t round = 0; round < 20; ++round) {
        for (std::size_t i = 0; i < calls.size(); ++i) {
            ASSERT_EQ(device::begin(mine, calls[i]), status::ok);
            fill({calls[i].request, 500}, round * 100 + i);
        }
        device::call_ref one_more;
        ASSERT_EQ(device::begin(mine, one_more), status::again);
        for (device::call_ref& each : calls) ASSERT_EQ(device::submit(mine, each, 500), status::ok);
        for (std::size_t i = 0; i < calls.size(); ++i) {
            ASSERT_EQ(await(mine, calls[i]), status::ok);
            EXPECT_TRUE(matches({calls[i].response, calls[i].response_bytes}, round * 100 + i));
        }
        for (device::call_ref& each : calls) ASSERT_EQ(device::release(mine, each), status::ok);
    }
}

TEST_P(owned_client, stale_and_untimely_handles_are_refused) {
    open();
    device::call_ref call;
    ASSERT_EQ(device::begin(mine, call), status::ok);
    EXPECT_EQ(device::poll(mine, call), status::invalid_state);  // not submitted
    EXPECT_EQ(device::cancel(mine, call), status::invalid_state);
    ASSERT_EQ(device::submit(mine, call, 10), status::ok);
    EXPECT_EQ(device::submit(mine, call, 10), status::invalid_state);
    ASSERT_EQ(await(mine, call), status::ok);
    EXPECT_EQ(device::poll(mine, call), status::ok);
    EXPECT_EQ(device::cancel(mine, call), status::invalid_state);
    const device::call_ref old = call;
    EXPECT_EQ(device::release(mine, call), status::ok);
    EXPECT_EQ(device::release(mine, old), status::invalid_state);
    device::call_ref next;
    ASSERT_EQ(device::begin(mine, next), status::ok);
    EXPECT_EQ(next.slot, old.slot);
    device::call_ref stale = old;
    for (const std::uint32_t slot : {old.slot, 1'000'000U}) {
        stale.slot = slot;
        EXPECT_EQ(device::submit(mine, stale, 10), status::invalid_state);
        EXPECT_EQ(device::poll(mine, stale), status::invalid_state);
        EXPECT_EQ(device::release(mine, stale), status::invalid_state);
    }
    EXPECT_EQ(device::submit(mine, next, 10, {.timeout_ns = -1}), status::invalid_argument);
    EXPECT_EQ(device::release(mine, next), status::ok);
}

TEST_P(owned_client, functions_for_shared_channels_touch_nothing) {
    open();
    device::call_ref call;
    EXPECT_EQ(device::begin(ref(), call), status::unsupported);
    ASSERT_EQ(device::begin(mine, call), status::ok);
    EXPECT_EQ(device::submit(ref(), call, 10), status::invalid_state);
    EXPECT_EQ(device::poll(ref(), call), status::invalid_state);
    EXPECT_EQ(device::cancel(ref(), call), status::invalid_state);
    EXPECT_EQ(device::release(ref(), call), status::invalid_state);
    EXPECT_EQ(device::submit(mine, call, 10), status::ok);
    EXPECT_EQ(await(mine, call), status::ok);
    EXPECT_EQ(device::release(mine, call), status::ok);
}

TEST_P(owned_client, failures_carry_the_code_and_text_of_the_handler) {
    open();
    device::call_ref call;
    ASSERT_EQ(submit_wish(mine, call, wish::fail), status::ok);
    EXPECT_EQ(await(mine, call), status::application_error);
    EXPECT_EQ(call.code, 77U);
    if (!rig.kind.kernels_answer) {
        const std::string_view text(reinterpret_cast<const char*>(call.response), call.response_bytes);
        EXPECT_EQ(text, "as was wished");
    }
    EXPECT_EQ(device::release(mine, call), status::ok);
    EXPECT_EQ(call_once(mine, 100, 1), status::ok);
}

TEST_P(owned_client, a_response_is_not_longer_than_the_call_wants) {
    open();
    device::call_ref call;
    ASSERT_EQ(device::begin(mine, call), status::ok);
    fill({call.request, 1000}, 3);
    ASSERT_EQ(device::submit(mine, call, 1000, {.max_bytes = 100}), status::ok);
    EXPECT_EQ(await(mine, call), status::ok);
    EXPECT_EQ(call.response_bytes, 100U);
    EXPECT_EQ(device::release(mine, call), status::ok);
}

TEST_P(owned_client, the_server_learns_of_the_deadline) {
    open();
    constexpr std::int64_t a_minute = 60'000'000'000;
    EXPECT_TRUE(eventually(patience(5s), [&] {
        device::call_ref call;
        const bool sent = submit_wish(mine, call, wish::fail, a_minute) == status::ok;
        if (!sent || await(mine, call) != status::application_error) return false;
        (void)device::release(mine, call);
        return rig.last_time_left > a_minute / 2 && rig.last_time_left <= a_minute;
    }));
}

TEST_P(owned_client, a_late_response_frees_its_slot) {
    open();
    if (!holds_requests()) return;
    constexpr std::int64_t hasty = 20'000'000;
    device::call_ref call;
    ASSERT_EQ(submit_wish(mine, call, wish::hold, hasty), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    EXPECT_EQ(await(mine, call), status::timed_out);
    EXPECT_EQ(call.response_bytes, 0U);
    EXPECT_EQ(device::poll(mine, call), status::timed_out);
    EXPECT_EQ(device::release(mine, call), status::ok);
    // Its slot is not given to anybody, as the server may write there.
    std::vector<device::call_ref> others(rig.wanted.slots - 1);
    for (device::call_ref& each : others) {
        ASSERT_EQ(device::begin(mine, each), status::ok);
        EXPECT_NE(each.slot, call.slot);
    }
    device::call_ref next;
    EXPECT_EQ(device::begin(mine, next), status::again);
    rig.release();
    ASSERT_TRUE(eventually(patience(5s), [&] { return device::begin(mine, next) == status::ok; }));
    EXPECT_EQ(next.slot, call.slot);
    EXPECT_EQ(device::release(mine, next), status::ok);
    for (device::call_ref& each : others) EXPECT_EQ(device::release(mine, each), status::ok);
    for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(call_once(mine, 300, i), status::ok);
    rig.channel->close();
    const auto seen = rig.channel->statistics();
    EXPECT_EQ(seen.stale, 1U);
    EXPECT_EQ(seen.ended_early, 1U);
    EXPECT_EQ(seen.quarantined, 0U);
}

TEST_P(owned_client, a_late_response_may_arrive_before_the_release) {
    open();
    if (!holds_requests()) return;
    device::call_ref call;
    ASSERT_EQ(submit_wish(mine, call, wish::hold), status::ok);
    EXPECT_EQ(device::wait(mine, call, 1'000'000), status::again);
    EXPECT_EQ(device::release(mine, call), status::invalid_state);  // it goes on
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    ASSERT_EQ(device::cancel(mine, call), status::ok);
    rig.release();
    EXPECT_TRUE(
        eventually(patience(5s), [&] { return device::detail::has_response(mine, call.slot, call.generation); }));
    EXPECT_EQ(device::poll(mine, call), status::cancelled);
    EXPECT_EQ(device::release(mine, call), status::ok);
    EXPECT_EQ(call_once(mine, 300, 1), status::ok);
    rig.channel->close();
    EXPECT_EQ(rig.channel->statistics().stale, 1U);
    EXPECT_EQ(rig.channel->statistics().quarantined, 0U);
}

TEST_P(owned_client, timeouts_and_responses_may_cross) {
    open();
    int wrong = 0;
    for (int i = 0; i < effort(600); ++i) {
        device::call_ref call;
        ASSERT_EQ(begin_call(mine, call), status::ok);
        const auto seed = static_cast<std::uint64_t>(i);
        fill({call.request, 256}, seed);
        // Up to 0.4 ms: about as long as a call takes here.
        ASSERT_EQ(device::submit(mine, call, 256, {.timeout_ns = 1 + i % 40 * 10'000}), status::ok);
        const status found = await(mine, call);
        const bool right = found == status::ok && matches({call.response, call.response_bytes}, seed);
        if (!right && found != status::timed_out) ++wrong;
        (void)device::release(mine, call);
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(rig.channel->failure().reason, status::ok);
    EXPECT_EQ(call_once(mine, 100, 1), status::ok);
    // All of them come back.
    std::vector<device::call_ref> calls(rig.wanted.slots);
    for (device::call_ref& each : calls)
        EXPECT_TRUE(eventually(patience(5s), [&] { return device::begin(mine, each) == status::ok; }));
}

/// A kernel ends with a call on its way, and others follow.
TEST_P(owned_client, the_next_owner_takes_over_the_calls) {
    rig.wanted.slots = device::detail::max_calls_at_hand + 1;
    open();
    device::call_ref call;
    for (std::uint64_t i = 0; i < 300; ++i) {
        device::owned_channel next;
        ASSERT_EQ(device::own(ref(), next), status::ok);
        if (i > 0) {
            ASSERT_EQ(await(next, call), status::ok) << i;
            EXPECT_TRUE(matches({call.response, call.response_bytes}, i - 1));
            EXPECT_EQ(device::release(next, call), status::ok);
        }
        ASSERT_EQ(device::begin(next, call), status::ok);
        fill({call.request, 200}, i);
        ASSERT_EQ(device::submit(next, call, 200), status::ok);
    }
    rig.channel->close();
    EXPECT_EQ(rig.channel->statistics().submitted, 300U);
    EXPECT_EQ(rig.channel->statistics().completed, 299U);
}

TEST_P(owned_client, owners_of_several_channels_call_at_once) {
    rig.listen();
    const auto calls = static_cast<std::uint64_t>(effort(300));
    std::vector<gpu_channel> channels;
    for (int i = 0; i < 3; ++i) {
        auto made = rig.try_connect();
        ASSERT_TRUE(made.ok()) << made.error().message;
        channels.push_back(std::move(*made));
    }
    std::atomic<std::uint64_t> right{0};
    std::vector<std::thread> kernels;
    for (std::size_t i = 0; i < channels.size(); ++i) {
        kernels.emplace_back([&, i] {
            device::owned_channel own;
            ASSERT_EQ(device::own(channels[i].ref(), own), status::ok);
            for (std::uint64_t k = 0; k < calls; ++k)
                if (call_once(own, k * 37 % 2048, i * 1'000'003 + k) == status::ok) right.fetch_add(1);
        });
    }
    for (std::thread& each : kernels) each.join();
    EXPECT_EQ(right.load(), calls * channels.size());
}

TEST_P(owned_client, a_server_that_stops_ends_calls) {
    open();
    if (!holds_requests()) return;
    device::call_ref call;
    ASSERT_EQ(submit_wish(mine, call, wish::hold), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    std::thread server([&] {
        if (rig.handler) rig.handler->stop();
        rig.services.end_kernels();
        rig.forget();
        rig.services.stop();
    });
    const status found = await(mine, call);
    EXPECT_TRUE(found == status::peer_lost || found == status::closed) << to_string(found);
    EXPECT_EQ(device::release(mine, call), status::ok);
    device::call_ref next;
    EXPECT_EQ(device::begin(mine, next), found);
    EXPECT_TRUE(eventually(patience(5s), [&] { return !rig.channel->connected(); }));
    server.join();
}

TEST_P(owned_client, draining_server_answers_calls_in_flight_and_gets_no_others) {
    open();
    if (!holds_requests()) return;
    device::call_ref call;
    ASSERT_EQ(submit_wish(mine, call, wish::hold), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    device::call_ref begun;
    ASSERT_EQ(device::begin(mine, begun), status::ok);
    rig.drain_server();
    EXPECT_TRUE(hears_of_drain(mine, call));
    EXPECT_EQ(device::submit(mine, begun, 1), status::closed);
    EXPECT_EQ(device::submit(mine, begun, 1, {.parts = 1}), status::closed);
    EXPECT_EQ(device::release(mine, begun), status::ok);
    EXPECT_FALSE(rig.channel->connected());
    device::owned_channel next;
    ASSERT_EQ(device::own(ref(), next), status::ok);
    EXPECT_EQ(begins(next), status::closed) << "another kernel goes on with the channel";
    rig.release();
    EXPECT_EQ(await(next, call), status::ok);
    EXPECT_EQ(device::release(next, call), status::ok);
    rig.channel->close();
    EXPECT_EQ(rig.channel->failure().reason, status::closed);
    EXPECT_EQ(rig.channel->statistics().completed, 1U);
}

TEST_P(owned_client, server_that_ends_while_it_drains_ends_calls) {
    open();
    if (!holds_requests()) return;
    device::call_ref call;
    ASSERT_EQ(submit_wish(mine, call, wish::hold), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    rig.drain_server();
    EXPECT_TRUE(hears_of_drain(mine, call));
    std::thread server([&] {
        if (rig.handler) rig.handler->stop();
        rig.services.end_kernels();
        rig.forget();
        rig.services.stop();
    });
    const status lost = rig.handler ? status::peer_lost : status::closed;  // the host cannot ask kernels what they hold
    EXPECT_EQ(await(mine, call), lost);
    EXPECT_EQ(device::release(mine, call), status::ok);
    EXPECT_EQ(begins(mine), lost);
    server.join();
}

/// Also where its kernels own the sessions.
TEST_P(owned_client, server_that_stops_under_load_ends_a_call_that_nobody_has_seen) {
    open();
    std::atomic<std::uint64_t> right{0};
    status last = status::ok;
    std::thread kernel([&] {
        for (std::uint64_t i = 0; last == status::ok; ++i) {
            last = call_once(mine, i % 1000, i);
            if (last == status::ok) right.fetch_add(1);
        }
    });
    EXPECT_TRUE(eventually(patience(5s), [&] { return right.load() > 50; }));
    rig.stop_server();
    kernel.join();
    EXPECT_EQ(last, status::closed);
}

/// Also one whose responses leave no time for anything else.
TEST_P(owned_client, a_stop_ends_calls_under_load) {
    open();
    std::atomic<std::uint64_t> right{0};
    status last = status::ok;
    std::thread kernel([&] {
        for (std::uint64_t i = 0; last == status::ok; ++i) {
            last = call_once(mine, i % 1000, i);
            if (last == status::ok) right.fetch_add(1);
        }
    });
    EXPECT_TRUE(eventually(patience(5s), [&] { return right.load() > 50; }));
    const auto begin = std::chrono::steady_clock::now();
    rig.channel->request_stop();
    kernel.join();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, until_hung());
    EXPECT_EQ(last, status::closed);
    rig.channel->close();
    EXPECT_EQ(rig.channel->failure().reason, status::closed);
    const auto seen = rig.channel->statistics();
    EXPECT_EQ(seen.submitted, seen.completed + seen.ended_early);
}

TEST_P(owned_client, channels_come_and_go) {
    rig.listen();
    for (std::uint64_t i = 0; i < 10; ++i) {
        rig.connect();
        device::owned_channel own;
        ASSERT_EQ(device::own(ref(), own), status::ok);
        for (std::uint64_t k = 0; k < 10; ++k) EXPECT_EQ(call_once(own, 200, i * 10 + k), status::ok);
        rig.channel.reset();
        EXPECT_EQ(rig.pages_pinned(), 0);
    }
}

constexpr service_setting host_direct{false, gpu_engine::direct};
constexpr service_setting host_proxy{false, gpu_engine::proxy};
constexpr service_setting fake_direct{true, gpu_engine::direct};
constexpr service_setting fake_proxy{true, gpu_engine::proxy};

INSTANTIATE_TEST_SUITE_P(
    ways, owned_client,
    ::testing::Values(owned_case{"host_direct_to_handler", {host_direct, false}},
                      owned_case{"host_proxy_to_handler", {host_proxy, false}},
                      owned_case{"fake_direct_to_handler", {fake_direct, false}, queue_location::host},
                      owned_case{"queues_with_kernels_to_handler", {host_direct, false}, queue_location::gpu},
                      owned_case{"host_direct_to_kernels", {host_direct, true}},
                      owned_case{"fake_proxy_to_kernels", {fake_proxy, true}},
                      owned_case{"host_direct_to_owners", {host_direct, true, true}},
                      owned_case{"host_proxy_to_owners", {host_proxy, true, true}}),
    [](const auto& way) { return way.param.name; });

TEST(owned_client_options, queues_on_a_gpu_need_the_engine_direct) {
    client_rig rig(client_case{{false, gpu_engine::proxy}});
    rig.wanted.kernels.sharing = service_sharing::exclusive;
    rig.wanted.kernels.queues = queue_location::gpu;
    rig.listen();
    const auto made = rig.try_connect();
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, status::invalid_argument);
    EXPECT_THAT(made.error().message, ::testing::HasSubstr("option queues must be auto or host with engine=proxy"));
}

TEST(owned_client_options, a_shared_channel_stays_the_default) {
    client_rig rig(client_case{{false, gpu_engine::proxy}});
    rig.listen();
    rig.connect();
    EXPECT_EQ(rig.channel->sharing(), service_sharing::shared);
}

TEST(owned_client_options, kernels_for_an_owner_call_through_a_shared_channel) {
    client_rig rig(client_case{{false, gpu_engine::proxy}});
    rig.listen();
    rig.connect();
    device::owned_channel mine;
    ASSERT_EQ(device::own(rig.channel->ref(), mine), status::ok);
    for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(call_once(mine, i * 50, i), status::ok);
    device::call_ref call;
    ASSERT_EQ(submit_wish(mine, call, wish::hold), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    EXPECT_EQ(device::cancel(mine, call), status::ok);
    EXPECT_EQ(device::release(mine, call), status::ok);
    rig.release();
    rig.channel->close();
    EXPECT_EQ(rig.channel->statistics().completed, 20U);
}

}  // namespace
}  // namespace accel::tests
