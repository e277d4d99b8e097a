// SPDX-License-Identifier: Apache-2.0
// A channel whose calls come from kernels, with threads of the host in their place, at servers of all kinds.
#include "conformance/child_process.hpp"
#include "device/client_rig.hpp"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::tests {
namespace {

using label = std::pair<std::string_view, std::string_view>;

class device_client : public ::testing::TestWithParam<client_case> {
  protected:
    void SetUp() override {
        if (!has(GetParam().caller.engine)) GTEST_SKIP() << "this device has no queues to drive";
    }
    void open() {
        rig.listen();
        if (!HasFatalFailure()) rig.connect();
    }
    [[nodiscard]] const device::channel_ref& ref() const { return rig.channel->ref(); }
    client_rig rig{GetParam()};
};

TEST_P(device_client, echoes_every_size) {
    open();
    EXPECT_EQ(rig.channel->engine(), GetParam().caller.engine);
    for (const std::size_t size : {0U, 1U, 7U, 64U, 65U, 255U, 1000U, 4095U, 4096U}) {
        EXPECT_EQ(call_once(ref(), size, size), status::ok) << size;
    }
    rig.channel->close();
    const auto seen = rig.channel->statistics();
    EXPECT_EQ(seen.submitted, 9U);
    EXPECT_EQ(seen.completed, 9U);
    EXPECT_EQ(seen.ended_early, 0U);
    EXPECT_EQ(seen.stale, 0U);
}

TEST_P(device_client, the_metrics_of_a_context_count_its_calls) {
    const auto at = [](context& ctx, std::string_view name, std::initializer_list<label> labels = {}) {
        return ctx.metrics().sum(name, labels);
    };
    context& caller = rig.services.client_context;
    EXPECT_EQ(at(caller, "accel_kernel_channels"), 0);
    open();
    EXPECT_EQ(at(caller, "accel_kernel_channels"), 1);
    for (std::uint64_t i = 0; i < 9; ++i) EXPECT_EQ(call_once(ref(), 100, i), status::ok);
    device::call_ref call;
    ASSERT_EQ(begin_call(ref(), call), status::ok);
    ASSERT_EQ(submit_wish(ref(), call, wish::hold), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    EXPECT_TRUE(eventually(patience(5s), [&] {
        (void)device::poll(ref(), call);
        return at(caller, "accel_kernel_calls_in_flight") == 1;
    })) << "kernels report now and then";
    device::cancel(ref(), call);
    EXPECT_EQ(device::release(ref(), call), status::ok);
    rig.release();
    const double kernels = rig.kind.kernels_answer ? 1 : 0;
    context& answerer = rig.services.server_context;
    EXPECT_TRUE(eventually(patience(5s), [&] { return at(answerer, "accel_kernel_replies_total") == 10 * kernels; }));
    rig.channel->close();
    EXPECT_EQ(at(caller, "accel_kernel_channels"), 0);
    EXPECT_EQ(at(caller, "accel_kernel_calls_in_flight"), 0);
    EXPECT_EQ(at(caller, "accel_kernel_calls_total", {{"outcome", "answered"}}), 9);
    EXPECT_EQ(at(caller, "accel_kernel_calls_total", {{"outcome", "ended_early"}}), 1);

    rig.stop_server();
    EXPECT_EQ(at(answerer, "accel_kernel_requests_total"), 10 * kernels);
    EXPECT_EQ(at(answerer, "accel_kernel_replies_total"), 10 * kernels);
    EXPECT_EQ(at(answerer, "accel_sessions_opened_total"), 1);
}

TEST_P(device_client, calls_name_their_target) {
    open();
    const auto outcome = [&](std::uint32_t number) {
        device::call_ref call;
        EXPECT_EQ(begin_call(ref(), call), status::ok);
        device::call_options with;
        with.target = number;
        EXPECT_EQ(device::submit(ref(), call, 10, with), status::ok);
        (void)await(ref(), call);
        EXPECT_EQ(device::release(ref(), call), status::ok);
        return call;
    };
    const auto named = rig.channel->resolve("named");
    ASSERT_TRUE(named.ok()) << named.error().message;
    const device::call_ref answered = outcome(named.value().number);
    EXPECT_EQ(answered.outcome, status::application_error);
    EXPECT_EQ(answered.code, 99U);
    EXPECT_EQ(outcome(target_of("other").number).outcome, status::not_found);
    EXPECT_EQ(outcome(0).outcome, status::ok);
    EXPECT_EQ(rig.channel->resolve("other").code(), status::not_found);
    EXPECT_EQ(rig.channel->resolve("two words").code(), status::invalid_argument);
}

TEST_P(device_client, a_forked_child_can_neither_use_nor_disturb_a_channel) {
    open();
    EXPECT_EQ(call_once(ref(), 1000, 1), status::ok);
    child_process child([&] {
        CHILD_EXPECT(!rig.channel->connected());
        CHILD_EXPECT(rig.channel->failure().reason == status::invalid_state);
        CHILD_EXPECT(rig.channel->statistics().submitted == 0);
        rig.channel->request_stop();
        CHILD_EXPECT(rig.channel->close(nullptr, 1h) == status::invalid_state);
        rig.channel->close();
        rig.channel.reset();
        CHILD_EXPECT(gpu_channel::connect(rig.services.client_context, "gpu://127.0.0.1:1").code() ==
                     status::invalid_state);
        CHILD_EXPECT(gpu_service::listen(rig.services.client_context, "gpu://127.0.0.1:0").code() ==
                     status::invalid_state);
        if (!rig.services.service) return;
        gpu_service& service = *rig.services.service;
        CHILD_EXPECT(service.statistics().sessions == 0);
        service.request_stop();
        CHILD_EXPECT(service.stop(nullptr, 1h) == status::invalid_state);
        service.stop();
        rig.services.service.reset();
    });
    EXPECT_TRUE(eventually(patience(20s), [&] {
        EXPECT_EQ(call_once(ref(), 1000, 2), status::ok);
        return child.ended();
    })) << "the child hangs";
    EXPECT_EQ(call_once(ref(), 1000, 3), status::ok);
    EXPECT_TRUE(rig.channel->connected());
}

TEST_P(device_client, slots_may_lie_on_the_host) {
    rig.wanted.kernels.host_slots = true;
    open();
    for (const std::size_t size : {0U, 64U, 4096U}) EXPECT_EQ(call_once(ref(), size, size), status::ok) << size;
    EXPECT_EQ(rig.channel->memory(), rig.wanted.memory);
}

TEST_P(device_client, messages_of_the_largest_agreed_size_arrive) {
    if (rig.kind.kernels_answer) {
        rig.services.options.max_sessions = 2;
        rig.services.options.max_request_bytes = rig.services.options.max_response_bytes = std::size_t{3} << 20;
    }
    rig.wanted.slots = 2;
    rig.wanted.request_bytes = rig.wanted.response_bytes = std::size_t{3} << 20;
    open();
    for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(call_once(ref(), std::size_t{3} << 20, i), status::ok);
    device::call_ref call;
    ASSERT_EQ(device::begin(ref(), call), status::ok);
    EXPECT_EQ(call.request_room, std::size_t{3} << 20);
    EXPECT_EQ(device::submit(ref(), call, (std::size_t{3} << 20) + 1), status::message_too_large);
    EXPECT_EQ(device::release(ref(), call), status::ok);
}

TEST_P(device_client, many_threads_share_one_channel) {
    open();
    constexpr int threads = 6;  // fewer slots than threads with two calls each
    // Two proxies, their callers and an emulated device are more threads than some machines have cores.
    const bool crowded = rig.kind.kernels_answer && rig.kind.caller.engine == gpu_engine::proxy;
    const auto calls = static_cast<std::uint64_t>(effort(crowded ? 150 : 1500));
    std::atomic<std::uint64_t> right{0};
    std::vector<std::thread> all;
    for (std::uint64_t t = 0; t < threads; ++t) {
        all.emplace_back([&, t] {
            device::channel_ref mine = ref();
            for (std::uint64_t i = 0; i < calls; ++i) {
                if (call_once(mine, i * 37 % 2048, t * 1'000'003 + i) != status::ok) return;
                right.fetch_add(1);
            }
        });
    }
    for (std::thread& each : all) each.join();
    EXPECT_EQ(right.load(), calls * threads);
    rig.channel->close();
    EXPECT_EQ(rig.channel->statistics().completed, calls * threads);
}

TEST_P(device_client, all_slots_work_at_once_and_begin_gives_no_more) {
    open();
    std::vector<device::call_ref> calls(rig.wanted.slots);
    for (std::uint64_t round = 0; round < 20; ++round) {
        for (std::size_t i = 0; i < calls.size(); ++i) {
            ASSERT_EQ(device::begin(ref(), calls[i]), status::ok);
            fill({calls[i].request, 500}, round * 100 + i);
        }
        device::call_ref one_more;
        ASSERT_EQ(device::begin(ref(), one_more), status::again);
        for (device::call_ref& each : calls) ASSERT_EQ(device::submit(ref(), each, 500), status::ok);
        for (std::size_t i = 0; i < calls.size(); ++i) {
            ASSERT_EQ(await(ref(), calls[i]), status::ok);
            EXPECT_TRUE(matches({calls[i].response, calls[i].response_bytes}, round * 100 + i));
        }
        for (device::call_ref& each : calls) ASSERT_EQ(device::release(ref(), each), status::ok);
    }
}

TEST_P(device_client, stale_and_untimely_handles_are_refused) {
    open();
    device::call_ref call;
    ASSERT_EQ(device::begin(ref(), call), status::ok);
    EXPECT_EQ(device::poll(ref(), call), status::invalid_state);  // not submitted
    EXPECT_EQ(device::cancel(ref(), call), status::invalid_state);
    ASSERT_EQ(device::submit(ref(), call, 10), status::ok);
    const device::call_ref submitted = call;
    device::call_options other;
    other.max_bytes = 1;
    other.timeout_ns = 1;
    other.trace_id = other.target = 7;
    EXPECT_EQ(device::submit(ref(), call, 10, other), status::invalid_state);
    EXPECT_EQ(call.response_room, submitted.response_room) << "its terms stay";
    EXPECT_EQ(call.deadline, submitted.deadline);
    EXPECT_EQ(call.trace_id, submitted.trace_id);
    EXPECT_EQ(call.target, submitted.target);
    ASSERT_EQ(await(ref(), call), status::ok);
    EXPECT_EQ(device::poll(ref(), call), status::ok);  // as often as one likes
    EXPECT_EQ(device::cancel(ref(), call), status::invalid_state);
    const device::call_ref old = call;
    EXPECT_EQ(device::release(ref(), call), status::ok);
    EXPECT_EQ(device::release(ref(), old), status::invalid_state);
    device::call_ref next;
    ASSERT_EQ(device::begin(ref(), next), status::ok);
    EXPECT_EQ(next.slot, old.slot);
    device::call_ref stale = old;
    EXPECT_EQ(device::submit(ref(), stale, 10), status::invalid_state);
    EXPECT_EQ(device::poll(ref(), stale), status::invalid_state);
    EXPECT_EQ(device::release(ref(), stale), status::invalid_state);
    stale.slot = 1'000'000;
    EXPECT_EQ(device::submit(ref(), stale, 10), status::invalid_state);
    EXPECT_EQ(device::poll(ref(), stale), status::invalid_state);
    EXPECT_EQ(device::release(ref(), stale), status::invalid_state);
    device::call_options never;
    never.timeout_ns = -1;
    EXPECT_EQ(device::submit(ref(), next, 10, never), status::invalid_argument);
    EXPECT_EQ(device::release(ref(), next), status::ok);
}

TEST_P(device_client, failures_carry_the_code_and_text_of_the_handler) {
    open();
    device::call_ref call;
    ASSERT_EQ(submit_wish(ref(), call, wish::fail), status::ok);
    EXPECT_EQ(await(ref(), call), status::application_error);
    EXPECT_EQ(call.outcome, status::application_error);
    EXPECT_EQ(call.code, 77U);
    if (!rig.kind.kernels_answer) {
        const std::string_view text(reinterpret_cast<const char*>(call.response), call.response_bytes);
        EXPECT_EQ(text, "as was wished");
    }
    EXPECT_EQ(device::release(ref(), call), status::ok);
    EXPECT_EQ(call_once(ref(), 100, 1), status::ok);
}

TEST_P(device_client, a_response_is_not_longer_than_the_call_wants) {
    open();
    device::call_ref call;
    ASSERT_EQ(device::begin(ref(), call), status::ok);
    fill({call.request, 1000}, 3);
    device::call_options with;
    with.max_bytes = 100;
    with.trace_id = 42;
    ASSERT_EQ(device::submit(ref(), call, 1000, with), status::ok);
    EXPECT_EQ(await(ref(), call), status::ok);
    EXPECT_EQ(call.response_bytes, 100U);
    EXPECT_EQ(device::release(ref(), call), status::ok);
}

TEST_P(device_client, the_server_learns_of_the_deadline) {
    open();
    constexpr std::int64_t a_minute = 60'000'000'000;
    // As soon as both ends' kernels have heard the time.
    EXPECT_TRUE(eventually(patience(5s), [&] {
        device::call_ref call;
        const bool sent = submit_wish(ref(), call, wish::fail, a_minute) == status::ok;
        if (!sent || await(ref(), call) != status::application_error) return false;
        (void)device::release(ref(), call);
        return rig.last_time_left > a_minute / 2 && rig.last_time_left <= a_minute;
    }));
}

TEST_P(device_client, a_late_response_frees_its_slot) {
    open();
    constexpr std::int64_t hasty = 20'000'000;
    device::call_ref call;
    ASSERT_EQ(submit_wish(ref(), call, wish::hold, hasty), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    EXPECT_EQ(await(ref(), call), status::timed_out);
    EXPECT_EQ(call.response_bytes, 0U);
    EXPECT_EQ(device::poll(ref(), call), status::timed_out);
    EXPECT_EQ(device::release(ref(), call), status::ok);
    // Its slot is not given to anybody, as the server may write there.
    std::vector<device::call_ref> others(rig.wanted.slots - 1);
    for (device::call_ref& each : others) {
        ASSERT_EQ(device::begin(ref(), each), status::ok);
        EXPECT_NE(each.slot, call.slot);
    }
    device::call_ref next;
    EXPECT_EQ(device::begin(ref(), next), status::again);
    rig.release();
    ASSERT_TRUE(eventually(patience(5s), [&] { return device::begin(ref(), next) == status::ok; }));
    EXPECT_EQ(next.slot, call.slot);
    EXPECT_EQ(device::release(ref(), next), status::ok);
    for (device::call_ref& each : others) EXPECT_EQ(device::release(ref(), each), status::ok);
    for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(call_once(ref(), 300, i), status::ok);
    rig.channel->close();
    const auto seen = rig.channel->statistics();
    EXPECT_EQ(seen.stale, 1U);
    EXPECT_EQ(seen.ended_early, 1U);
    EXPECT_EQ(seen.quarantined, 0U);
}

TEST_P(device_client, a_late_response_may_arrive_before_the_release) {
    open();
    device::call_ref call;
    ASSERT_EQ(submit_wish(ref(), call, wish::hold), status::ok);
    EXPECT_EQ(device::wait(ref(), call, 1'000'000), status::again);
    EXPECT_EQ(device::release(ref(), call), status::invalid_state);  // it goes on
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    ASSERT_EQ(device::cancel(ref(), call), status::ok);
    rig.release();
    // Others look, and find it.
    for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(call_once(ref(), 300, i), status::ok);
    EXPECT_EQ(device::poll(ref(), call), status::cancelled);
    EXPECT_EQ(device::release(ref(), call), status::ok);
    rig.channel->close();
    EXPECT_EQ(rig.channel->statistics().stale, 1U);
    EXPECT_EQ(rig.channel->statistics().quarantined, 0U);
}

TEST_P(device_client, timeouts_and_responses_may_cross) {
    open();
    constexpr int threads = 3;
    std::atomic<int> wrong{0};
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t) {
        all.emplace_back([&, t] {
            const device::channel_ref mine = ref();
            for (int i = 0; i < effort(600); ++i) {
                device::call_ref call;
                if (begin_call(mine, call) != status::ok) return wrong.fetch_add(1), void();
                const auto seed = static_cast<std::uint64_t>(t * 10'000 + i);
                fill({call.request, 256}, seed);
                device::call_options with;
                with.timeout_ns = 1 + i % 40 * 10'000;  // up to 0.4 ms: about as long as a call takes here
                if (device::submit(mine, call, 256, with) != status::ok) return wrong.fetch_add(1), void();
                const status found = await(mine, call);
                const bool right = found == status::ok && matches({call.response, call.response_bytes}, seed);
                if (!right && found != status::timed_out) wrong.fetch_add(1);
                (void)device::release(mine, call);
            }
        });
    }
    for (std::thread& each : all) each.join();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_EQ(rig.channel->failure().reason, status::ok);
    EXPECT_EQ(call_once(ref(), 100, 1), status::ok);
    // All of them come back.
    std::vector<device::call_ref> calls(rig.wanted.slots);
    for (device::call_ref& each : calls) {
        EXPECT_TRUE(eventually(patience(5s), [&] { return device::begin(ref(), each) == status::ok; }));
    }
}

TEST_P(device_client, a_server_that_stops_ends_calls) {
    open();
    device::call_ref call;
    ASSERT_EQ(submit_wish(ref(), call, wish::hold), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    std::thread server([&] {
        if (rig.handler) rig.handler->stop();
        rig.services.end_kernels();
        rig.forget();
        rig.services.stop();
    });
    const status found = await(ref(), call);
    EXPECT_TRUE(found == status::peer_lost || found == status::closed) << to_string(found);
    EXPECT_EQ(device::release(ref(), call), status::ok);
    device::call_ref next;
    EXPECT_EQ(device::begin(ref(), next), found);
    EXPECT_TRUE(eventually(patience(5s), [&] { return !rig.channel->connected(); }));
    server.join();
}

TEST_P(device_client, draining_server_answers_calls_in_flight_and_gets_no_others) {
    open();
    device::call_ref call;
    ASSERT_EQ(submit_wish(ref(), call, wish::hold), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    device::call_ref begun;
    ASSERT_EQ(device::begin(ref(), begun), status::ok);
    EXPECT_TRUE(rig.channel->connected());
    rig.drain_server();
    EXPECT_TRUE(hears_of_drain(ref(), call));
    EXPECT_EQ(device::submit(ref(), begun, 1), status::closed);
    EXPECT_EQ(device::submit(ref(), begun, 1, {.parts = 1}), status::closed);
    EXPECT_EQ(device::release(ref(), begun), status::ok);
    EXPECT_EQ(rig.channel->failure().reason, status::closed);
    EXPECT_FALSE(rig.channel->connected());
    rig.release();
    EXPECT_EQ(await(ref(), call), status::ok);
    EXPECT_EQ(device::release(ref(), call), status::ok);
    rig.stop_server();
    EXPECT_EQ(begins(ref()), status::closed);
    EXPECT_EQ(rig.channel->failure().reason, status::closed);
    rig.channel->close();
    EXPECT_EQ(rig.channel->failure().reason, status::closed);
    EXPECT_EQ(rig.channel->statistics().completed, 1U);
    EXPECT_EQ(rig.channel->statistics().ended_early, 0U);
}

TEST_P(device_client, server_that_ends_while_it_drains_ends_calls) {
    open();
    device::call_ref call;
    ASSERT_EQ(submit_wish(ref(), call, wish::hold), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    rig.drain_server();
    EXPECT_TRUE(hears_of_drain(ref(), call));
    std::thread server([&] {
        if (rig.handler) rig.handler->stop();
        rig.services.end_kernels();
        rig.forget();
        rig.services.stop();
    });
    const status lost = rig.handler ? status::peer_lost : status::closed;  // the host cannot ask kernels what they hold
    EXPECT_EQ(await(ref(), call), lost);
    EXPECT_EQ(device::release(ref(), call), status::ok);
    EXPECT_EQ(begins(ref()), lost);
    EXPECT_TRUE(eventually(patience(5s), [&] { return rig.channel->failure().reason == lost; }));
    server.join();
}

TEST_P(device_client, answers_that_came_before_the_end_of_the_session_are_taken) {
    rig.wanted.slots = 24;
    rig.services.options.max_slots = 24;
    open();
    std::vector<device::call_ref> calls(rig.wanted.slots);
    for (device::call_ref& each : calls) ASSERT_EQ(submit_wish(ref(), each, wish::hold), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == calls.size(); }));
    rig.release();
    rig.stop_server();
    const auto ended = [&] { return __atomic_load_n(&ref().orders->ended, __ATOMIC_RELAXED); };
    ASSERT_TRUE(eventually(patience(5s), [&] { return ended() == static_cast<std::uint32_t>(status::closed); }));
    for (device::call_ref& each : calls) EXPECT_EQ(await(ref(), each), status::ok);
}

TEST_P(device_client, server_that_stops_under_load_ends_calls_that_nobody_has_seen) {
    open();
    std::vector<std::thread> all;
    std::atomic<std::uint64_t> right{0};
    std::atomic<std::uint64_t> closed{0};
    for (std::uint64_t t = 0; t < 3; ++t) {
        all.emplace_back([&, t] {
            const device::channel_ref mine = ref();
            status found = status::ok;
            for (std::uint64_t i = 0; found == status::ok; ++i) {
                found = call_once(mine, i % 1000, t * 1'000'000 + i);
                if (found == status::ok) right.fetch_add(1);
            }
            EXPECT_EQ(found, status::closed);
            if (found == status::closed) closed.fetch_add(1);
        });
    }
    EXPECT_TRUE(eventually(patience(5s), [&] { return right.load() > 50; }));
    rig.stop_server();
    for (std::thread& each : all) each.join();
    EXPECT_EQ(closed.load(), 3U);
}

TEST_P(device_client, a_stop_ends_calls_under_load) {
    open();
    std::vector<std::thread> all;
    std::atomic<int> closed{0};
    std::atomic<std::uint64_t> right{0};
    for (std::uint64_t t = 0; t < 3; ++t) {
        all.emplace_back([&, t] {
            const device::channel_ref mine = ref();
            for (std::uint64_t i = 0;; ++i) {
                const status found = call_once(mine, i % 1000, t * 1'000'000 + i);
                if (found == status::ok) {
                    right.fetch_add(1);
                    continue;
                }
                if (found == status::closed) closed.fetch_add(1);
                return;
            }
        });
    }
    EXPECT_TRUE(eventually(patience(5s), [&] { return right.load() > 50; }));
    const auto begin = std::chrono::steady_clock::now();
    rig.channel->request_stop();
    for (std::thread& each : all) each.join();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, until_hung());
    EXPECT_EQ(closed.load(), 3);
    rig.channel->close();
    EXPECT_EQ(rig.channel->failure().reason, status::closed);
    EXPECT_FALSE(rig.channel->connected());
    const auto seen = rig.channel->statistics();
    EXPECT_EQ(seen.submitted, seen.completed + seen.ended_early);
}

TEST_P(device_client, a_channel_may_close_with_open_calls) {
    open();
    device::call_ref call;
    ASSERT_EQ(submit_wish(ref(), call, wish::hold), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    rig.channel->close();
    EXPECT_EQ(rig.channel->statistics().submitted, 1U);
    rig.channel.reset();
    rig.release();
    rig.connect();
    EXPECT_EQ(call_once(ref(), 100, 5), status::ok);
}

TEST_P(device_client, channels_come_and_go) {
    rig.listen();
    for (std::uint64_t i = 0; i < 10; ++i) {
        rig.connect();
        for (std::uint64_t k = 0; k < 10; ++k) EXPECT_EQ(call_once(ref(), 200, i * 10 + k), status::ok);
        EXPECT_EQ(rig.pages_pinned() > 0, rig.kind.caller.on_gpu);
        rig.channel.reset();
        EXPECT_EQ(rig.pages_pinned(), 0);
    }
}

TEST_P(device_client, options_that_no_kernel_can_serve_are_refused) {
    rig.listen();
    rig.wanted.reconnect = true;
    EXPECT_EQ(rig.try_connect().error().code, status::invalid_argument);
    rig.wanted.reconnect = false;
    EXPECT_EQ(rig.try_connect("?engine=direct&direct=false").error().code, status::invalid_argument);
    rig.wanted.slots = 60'000;
    EXPECT_FALSE(rig.try_connect().ok());
    rig.wanted.slots = 8;
    const std::string tcp = "tcp" + rig.endpoint().substr(3);
    const auto wrong = gpu_channel::connect(rig.services.client_context, tcp, rig.wanted);
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().code, status::invalid_argument);
    // A channel of the host has its slots on the host, and no kernels.
    for (const char* key : {"?memory=cuda:0", "?sharing=exclusive"}) {
        const auto host = channel::connect(rig.services.client_context, rig.endpoint() + key, rig.wanted);
        ASSERT_FALSE(host.ok()) << key;
        EXPECT_EQ(host.error().code, status::invalid_argument) << key;
    }
}

constexpr service_setting host_direct{false, gpu_engine::direct};
constexpr service_setting host_proxy{false, gpu_engine::proxy};
constexpr service_setting fake_direct{true, gpu_engine::direct};
constexpr service_setting fake_proxy{true, gpu_engine::proxy};

INSTANTIATE_TEST_SUITE_P(ways, device_client,
                         ::testing::Values(client_case{host_direct, false}, client_case{host_proxy, false},
                                           client_case{fake_direct, false}, client_case{fake_proxy, false},
                                           client_case{host_direct, true}, client_case{fake_direct, true},
                                           client_case{fake_proxy, true}),
                         [](const auto& way) { return name_of(way.param); });

}  // namespace
}  // namespace accel::tests
