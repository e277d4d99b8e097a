// SPDX-License-Identifier: Apache-2.0
// A channel whose calls come from kernels, with threads of the host in their place, at servers of all kinds: what needs
// several threads, and the ends of channels and servers. What single calls do is in call_sequences_test.cpp.
#include "conformance/child_process.hpp"
#include "device/client_rig.hpp"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <optional>
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
        if (!HasFatalFailure()) connect();
    }
    void connect() {
        rig.connect();
        if (!HasFatalFailure()) {
            ASSERT_EQ(device::own(ref(), mine), status::ok);
        }
    }
    [[nodiscard]] const device::channel_ref& ref() const { return rig.channel->ref(); }
    [[nodiscard]] static bool is_shared() { return GetParam().caller.sharing == service_sharing::shared; }
    /// A call that the server has and does not answer.
    [[nodiscard]] device::call_ref hold() {
        device::call_ref call;
        const int before = rig.held();
        EXPECT_EQ(submit_wish(mine, call, held_call()), status::ok);
        EXPECT_TRUE(rig.holds(before + 1));
        return call;
    }
    /// Kernels that call until they are refused, each with `work(channel, number of the kernel)`.
    template <class Work>
    void run_kernels(std::uint64_t threads, const Work& work) {
        if (!is_shared()) threads = 1;
        for (std::uint64_t t = 0; t < threads; ++t) {
            kernels_.emplace_back([this, work, t] {
                device::owned_channel own;
                ASSERT_EQ(device::own(ref(), own), status::ok);
                work(own, t);
            });
        }
    }
    void join_kernels() {
        for (std::thread& each : kernels_) each.join();
        kernels_.clear();
    }
    /// Kernels that call one after the other; what the last call of each says is in `refused`.
    void call_until_refused() {
        run_kernels(3, [this](device::owned_channel& own, std::uint64_t t) {
            status found = status::ok;
            for (std::uint64_t i = 0; found == status::ok; ++i) {
                found = call_once(own, i % 1000, t * 1'000'000 + i);
                if (found == status::ok) right.fetch_add(1);
            }
            EXPECT_EQ(found, status::closed);
        });
        EXPECT_TRUE(eventually([this] { return right.load() > 50; }));
    }

    client_rig rig{GetParam()};
    device::owned_channel mine;  ///< also of a shared channel, whose calls then go the shared way
    std::atomic<std::uint64_t> right{0};

  private:
    std::vector<std::thread> kernels_;
};

TEST_P(device_client, the_metrics_of_a_context_count_its_calls) {
    const auto at = [](context& ctx, std::string_view name, std::initializer_list<label> labels = {}) {
        return ctx.metrics().sum(name, labels);
    };
    context& caller = rig.services.client_context;
    EXPECT_EQ(at(caller, "accel_kernel_channels"), 0);
    open();
    EXPECT_EQ(at(caller, "accel_kernel_channels"), 1);
    for (std::uint64_t i = 0; i < 9; ++i) EXPECT_EQ(call_once(mine, 100, i), status::ok);
    device::call_ref call = hold();
    EXPECT_TRUE(eventually([&] {
        (void)device::poll(mine, call);
        return at(caller, "accel_kernel_calls_in_flight") == 1;
    })) << "kernels report now and then";
    rig.work.give_up(0);
    EXPECT_EQ(device::cancel(mine, call), status::ok);
    EXPECT_EQ(device::release(mine, call), status::ok);
    rig.release();
    const double kernels = rig.kind.kernels_answer ? 1 : 0;
    context& answerer = rig.services.server_context;
    EXPECT_TRUE(eventually([&] { return at(answerer, "accel_kernel_replies_total") == 10 * kernels; }));
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

TEST_P(device_client, a_forked_child_can_neither_use_nor_disturb_a_channel) {
    open();
    EXPECT_EQ(call_once(mine, 1000, 1), status::ok);
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
        EXPECT_EQ(call_once(mine, 1000, 2), status::ok);
        return child.ended();
    })) << "the child hangs";
    EXPECT_EQ(call_once(mine, 1000, 3), status::ok);
    EXPECT_TRUE(rig.channel->connected());
}

TEST_P(device_client, messages_of_the_largest_agreed_size_arrive) {
    constexpr std::size_t large = std::size_t{3} << 20;
    if (rig.kind.kernels_answer) {
        rig.services.options.max_sessions = 2;
        rig.services.options.max_request_bytes = rig.services.options.max_response_bytes = large;
    }
    rig.wanted.slots = 2;
    rig.wanted.request_bytes = rig.wanted.response_bytes = large;
    open();
    for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(call_once(mine, large, i), status::ok);
    device::call_ref call;
    ASSERT_EQ(device::begin(mine, call), status::ok);
    EXPECT_EQ(call.request_room, large);
    EXPECT_EQ(device::submit(mine, call, large + 1), status::message_too_large);
    EXPECT_EQ(device::release(mine, call), status::ok);
}

/// Of a shared channel more threads than slots, of owned channels one each.
TEST_P(device_client, many_threads_call_at_once) {
    open();
    // Proxies, callers and an emulated device are more threads than some machines have cores.
    const auto calls = static_cast<std::uint64_t>(effort(rig.kind.caller.engine == gpu_engine::proxy ? 150 : 1500));
    const auto call_all = [&](auto& channel, std::uint64_t t) {
        for (std::uint64_t i = 0; i < calls; ++i) {
            if (call_once(channel, i * 37 % 2048, t * 1'000'003 + i) != status::ok) return;
            right.fetch_add(1);
        }
    };
    if (is_shared()) {
        constexpr std::uint64_t threads = 6;
        run_kernels(threads, call_all);
        join_kernels();
        EXPECT_EQ(right.load(), calls * threads);
        rig.channel->close();
        EXPECT_EQ(rig.channel->statistics().completed, calls * threads);
        return;
    }
    auto second = rig.try_connect();
    ASSERT_TRUE(second.ok()) << second.error().message;
    device::owned_channel other;
    ASSERT_EQ(device::own(second->ref(), other), status::ok);
    std::thread one([&] { call_all(mine, 0); });
    call_all(other, 1);
    one.join();
    EXPECT_EQ(right.load(), 2 * calls);
    // Reported while it runs, now and then.
    EXPECT_TRUE(eventually(
        [&] { return call_once(mine, 0, 1) == status::ok && rig.channel->statistics().completed >= calls; }));
}

TEST_P(device_client, the_server_learns_of_the_deadline) {
    open();
    constexpr std::int64_t a_minute = 60'000'000'000;
    // As soon as both ends' kernels have heard the time.
    EXPECT_TRUE(eventually([&] {
        device::call_ref call;
        const bool sent = submit_wish(mine, call, failing_call(7), {.timeout_ns = a_minute}) == status::ok;
        if (!sent || await(mine, call) != status::application_error) return false;
        (void)device::release(mine, call);
        return rig.work.last_time_left > a_minute / 2 && rig.work.last_time_left <= a_minute;
    }));
}

TEST_P(device_client, timeouts_and_responses_may_cross) {
    open();
    std::atomic<int> wrong{0};
    run_kernels(3, [&](device::owned_channel& own, std::uint64_t t) {
        for (int i = 0; i < effort(600); ++i) {
            device::call_ref call;
            if (begin_call(own, call) != status::ok) return wrong.fetch_add(1), void();
            const std::uint64_t seed = t * 10'000 + static_cast<std::uint64_t>(i);
            fill({call.request, 256}, seed);
            device::call_options with;
            with.timeout_ns = 1 + i % 40 * 10'000;  // up to 0.4 ms: about as long as a call takes here
            if (device::submit(own, call, 256, with) != status::ok) return wrong.fetch_add(1), void();
            const status found = await(own, call);
            const bool as_sent = found == status::ok && matches({call.response, call.response_bytes}, seed);
            if (!as_sent && found != status::timed_out) wrong.fetch_add(1);
            (void)device::release(own, call);
        }
    });
    join_kernels();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_EQ(rig.channel->failure().reason, status::ok);
    ASSERT_EQ(device::own(ref(), mine), status::ok);
    EXPECT_EQ(call_once(mine, 100, 1), status::ok);
    // All of them come back.
    std::vector<device::call_ref> calls(rig.wanted.slots);
    for (device::call_ref& each : calls)
        EXPECT_TRUE(eventually([&] { return device::begin(mine, each) == status::ok; }));
}

TEST_P(device_client, draining_server_answers_calls_in_flight_and_gets_no_others) {
    open();
    device::call_ref call = hold();
    device::call_ref begun;
    ASSERT_EQ(device::begin(mine, begun), status::ok);
    EXPECT_TRUE(rig.channel->connected());
    rig.drain_server();
    EXPECT_TRUE(hears_of_drain(mine, call));
    EXPECT_EQ(device::submit(mine, begun, 1), status::closed);
    EXPECT_EQ(device::submit(mine, begun, 1, {.parts = 1}), status::closed);
    EXPECT_EQ(device::release(mine, begun), status::ok);
    EXPECT_EQ(rig.channel->failure().reason, status::closed);
    EXPECT_FALSE(rig.channel->connected());
    device::owned_channel next;
    ASSERT_EQ(device::own(ref(), next), status::ok);
    EXPECT_EQ(begins(next), status::closed) << "another kernel goes on with the channel";
    rig.release();
    EXPECT_EQ(await(next, call), status::ok);
    EXPECT_EQ(device::release(next, call), status::ok);
    rig.stop_server();
    EXPECT_EQ(begins(next), status::closed);
    EXPECT_EQ(rig.channel->failure().reason, status::closed);
    rig.channel->close();
    EXPECT_EQ(rig.channel->failure().reason, status::closed);
    EXPECT_EQ(rig.channel->statistics().completed, 1U);
    EXPECT_EQ(rig.channel->statistics().ended_early, 0U);
}

TEST_P(device_client, server_that_ends_ends_calls) {
    open();
    device::call_ref call = hold();
    std::thread server([&] { rig.end_server(); });
    const status found = await(mine, call);
    EXPECT_TRUE(found == status::peer_lost || found == status::closed) << to_string(found);
    EXPECT_EQ(device::release(mine, call), status::ok);
    EXPECT_EQ(begins(mine), found);
    EXPECT_TRUE(eventually([&] { return !rig.channel->connected(); }));
    server.join();
}

TEST_P(device_client, server_that_ends_while_it_drains_ends_calls) {
    open();
    device::call_ref call = hold();
    rig.drain_server();
    EXPECT_TRUE(hears_of_drain(mine, call));
    std::thread server([&] { rig.end_server(); });
    const status lost = rig.handler ? status::peer_lost : status::closed;  // the host cannot ask kernels what they hold
    EXPECT_EQ(await(mine, call), lost);
    EXPECT_EQ(device::release(mine, call), status::ok);
    EXPECT_EQ(begins(mine), lost);
    EXPECT_TRUE(eventually([&] { return rig.channel->failure().reason == lost; }));
    server.join();
}

TEST_P(device_client, answers_that_came_before_the_end_of_the_session_are_taken) {
    rig.wanted.slots = 24;
    rig.services.options.max_slots = 24;
    open();
    std::vector<device::call_ref> calls(rig.wanted.slots);
    for (device::call_ref& each : calls) ASSERT_EQ(submit_wish(mine, each, held_call()), status::ok);
    ASSERT_TRUE(rig.holds(static_cast<int>(calls.size())));
    rig.release();
    rig.stop_server();
    const auto ended = [&] { return __atomic_load_n(&ref().orders->ended, __ATOMIC_RELAXED); };
    ASSERT_TRUE(eventually([&] { return ended() == static_cast<std::uint32_t>(status::closed); }));
    for (device::call_ref& each : calls) EXPECT_EQ(await(mine, each), status::ok);
}

TEST_P(device_client, server_that_stops_under_load_ends_calls_that_nobody_has_seen) {
    open();
    call_until_refused();
    rig.stop_server();
    join_kernels();
}

TEST_P(device_client, a_stop_ends_calls_under_load) {
    open();
    call_until_refused();
    const auto begin = std::chrono::steady_clock::now();
    rig.channel->request_stop();
    join_kernels();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, until_hung());
    rig.channel->close();
    EXPECT_EQ(rig.channel->failure().reason, status::closed);
    EXPECT_FALSE(rig.channel->connected());
    const auto seen = rig.channel->statistics();
    EXPECT_EQ(seen.submitted, seen.completed + seen.ended_early);
}

TEST_P(device_client, channels_close_with_open_calls_and_others_follow) {
    rig.listen();
    for (std::uint64_t i = 0; i < 10; ++i) {
        connect();
        for (std::uint64_t k = 0; k < 10; ++k) EXPECT_EQ(call_once(mine, 200, i * 10 + k), status::ok);
        const std::uint64_t number = 3 * i;
        device::call_ref call;
        ASSERT_EQ(submit_wish(mine, call, held_call(number)), status::ok);
        ASSERT_TRUE(rig.holds(1));
        rig.work.give_up(number);
        rig.channel->close();
        EXPECT_EQ(rig.channel->statistics().submitted, 11U);
        rig.channel.reset();
        EXPECT_EQ(rig.pages_pinned(), 0);
        rig.work.let_answer(number);
        ASSERT_TRUE(rig.holds(0));
        EXPECT_EQ(rig.work.first_wrong(), "");
    }
}

INSTANTIATE_TEST_SUITE_P(
    ways, device_client,
    ::testing::Values(client_case{{false, gpu_engine::direct}}, client_case{{false, gpu_engine::proxy}},
                      client_case{{true, gpu_engine::direct}}, client_case{{true, gpu_engine::proxy}},
                      client_case{{false, gpu_engine::direct}, true}, client_case{{true, gpu_engine::direct}, true},
                      client_case{{true, gpu_engine::proxy}, true}, client_case{{false, gpu_engine::direct, owned}},
                      client_case{{false, gpu_engine::proxy, owned}},
                      client_case{{true, gpu_engine::direct, owned, queue_location::host}},
                      client_case{{false, gpu_engine::direct, owned, queue_location::gpu}},
                      client_case{{false, gpu_engine::direct, owned}, true},
                      client_case{{true, gpu_engine::proxy, owned}, true},
                      client_case{{false, gpu_engine::direct, owned}, true, true},
                      client_case{{false, gpu_engine::proxy, owned}, true, true}),
    [](const auto& way) { return name_of(way.param); });

TEST(owned_client, functions_for_shared_channels_touch_nothing) {
    client_rig rig(client_case{{false, gpu_engine::proxy, owned}});
    rig.listen();
    rig.connect();
    const device::channel_ref& ref = rig.channel->ref();
    device::owned_channel mine;
    ASSERT_EQ(device::own(ref, mine), status::ok);
    device::call_ref call;
    EXPECT_EQ(device::begin(ref, call), status::unsupported);
    ASSERT_EQ(device::begin(mine, call), status::ok);
    EXPECT_EQ(device::submit(ref, call, 10), status::invalid_state);
    EXPECT_EQ(device::poll(ref, call), status::invalid_state);
    EXPECT_EQ(device::cancel(ref, call), status::invalid_state);
    EXPECT_EQ(device::release(ref, call), status::invalid_state);
    EXPECT_EQ(device::submit(mine, call, 10), status::ok);
    EXPECT_EQ(await(mine, call), status::ok);
    EXPECT_EQ(device::release(mine, call), status::ok);
}

TEST(device_client_options, options_that_no_kernel_can_serve_are_refused) {
    client_rig rig(client_case{{false, gpu_engine::proxy}});
    rig.listen();
    rig.connect();
    EXPECT_EQ(rig.channel->sharing(), service_sharing::shared) << "the default";
    const auto refusal = [&](const std::string& query) { return rig.try_connect(query).error(); };
    EXPECT_EQ(refusal("?engine=direct&direct=false").code, status::invalid_argument);
    const error queues = refusal("?sharing=exclusive&queues=gpu&engine=proxy");
    EXPECT_EQ(queues.code, status::invalid_argument);
    EXPECT_THAT(queues.message, ::testing::HasSubstr("option queues must be auto or host with engine=proxy"));
    rig.wanted.reconnect = true;
    EXPECT_EQ(refusal("").code, status::invalid_argument);
    rig.wanted.reconnect = false;
    rig.wanted.interceptors = {std::make_shared<client_interceptor>()};
    EXPECT_EQ(refusal("").code, status::unsupported);
    rig.wanted.interceptors.clear();
    rig.wanted.slots = 60'000;
    EXPECT_FALSE(rig.try_connect().ok());
    rig.wanted.slots = 8;
    const std::string tcp = "tcp" + rig.endpoint().substr(3);
    EXPECT_EQ(gpu_channel::connect(rig.services.client_context, tcp, rig.wanted).code(), status::invalid_argument);
    // A channel of the host has its slots on the host, and no kernels.
    for (const char* key : {"?memory=cuda:0", "?sharing=exclusive"})
        EXPECT_EQ(channel::connect(rig.services.client_context, rig.endpoint() + key, rig.wanted).code(),
                  status::invalid_argument)
            << key;
}

}  // namespace
}  // namespace accel::tests
