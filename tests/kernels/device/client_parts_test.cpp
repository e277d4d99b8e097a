// SPDX-License-Identifier: Apache-2.0
// Responses in parts that kernels wait for, and what ends them. Threads of the host are in the kernels' place. How
// parts come, wait for room and are released is in call_sequences_test.cpp.
#include "device/client_rig.hpp"

#include <vector>

namespace accel::tests {
namespace {

class client_parts : public ::testing::TestWithParam<client_case> {
  protected:
    void SetUp() override {
        if (!has(GetParam().caller.engine)) GTEST_SKIP() << "this device has no queues to drive";
        rig_.listen();
        if (!HasFatalFailure()) rig_.connect();
        if (HasFatalFailure()) return;
        ASSERT_EQ(device::own(rig_.channel->ref(), mine_), status::ok);
    }
    [[nodiscard]] static wished parts(std::uint64_t count, std::uint32_t stalls_after = 0) {
        wished out;
        out.what = wish::stream;
        out.parts = count;
        out.bytes = 10;
        out.stalls_after = stalls_after;
        return out;
    }
    [[nodiscard]] device::call_ref submit(wished& what, const device::call_options& with) {
        device::call_ref call;
        what.number = numbers_ += 3;  // without a trace
        status sent = status::again;
        // Room of the call before comes back after its answer.
        EXPECT_TRUE(eventually([&] {
            sent = submit_wish(mine_, call, what, with);
            if (sent == status::again) (void)device::release(mine_, call);
            return sent != status::again;
        }));
        EXPECT_EQ(sent, status::ok) << to_string(sent);
        return call;
    }
    template <class Channel>
    [[nodiscard]] static status next(Channel& channel, device::call_ref& call, device::arrival_ref& out) {
        for (;;) {
            const status found = device::wait(channel, call, out, 200'000);
            if (found != status::again) return found;
            EXPECT_FALSE(out.more);
            std::this_thread::sleep_for(50us);
        }
    }
    device::arrival_ref expect_part(device::call_ref& call, const wished& what, std::uint64_t number) {
        device::arrival_ref out;
        EXPECT_EQ(next(mine_, call, out), status::ok) << number;
        EXPECT_TRUE(out.more) << number;
        EXPECT_TRUE(is_part(out, what, number)) << number;
        return out;
    }
    static bool is_part(const device::arrival_ref& part, const wished& what, std::uint64_t number) {
        return part.response_bytes == what.bytes_of(number) &&
               matches({part.response, part.response_bytes}, what.seed_of(number));
    }
    void expect_end(device::call_ref& call, status expected) {
        device::arrival_ref out;
        EXPECT_EQ(next(mine_, call, out), expected);
        EXPECT_FALSE(out.more);
        EXPECT_EQ(call.outcome, expected);
        EXPECT_EQ(device::release(mine_, out), status::ok);
    }
    void expect_released(const device::arrival_ref& part) { EXPECT_EQ(device::release(mine_, part), status::ok); }
    void expect_all_slots() {
        std::vector<device::call_ref> calls(rig_.wanted.slots);
        for (device::call_ref& each : calls)
            EXPECT_TRUE(eventually([&] { return device::begin(mine_, each) == status::ok; }));
        for (const device::call_ref& each : calls) EXPECT_EQ(device::release(mine_, each), status::ok);
    }
    [[nodiscard]] bool heard(const wished& call) {
        return eventually([&] { return rig_.work.has_heard(call.number); });
    }

    client_rig rig_{GetParam()};
    device::owned_channel mine_;
    std::uint64_t numbers_ = 0;
};

TEST_P(client_parts, a_late_part_ends_the_call_and_the_server_is_notified) {
    wished what = parts(3);
    device::call_ref call = submit(what, {.parts = 3, .part_timeout_ns = 60'000'000'000});
    for (std::uint64_t i = 0; i < what.parts; ++i) expect_released(expect_part(call, what, i));
    expect_end(call, status::ok);
    wished stalling = parts(5, 2);
    with_enough_time(500ms, [&](nanoseconds between) {
        call = submit(stalling, {.timeout_ns = 200'000'000'000, .parts = 1, .part_timeout_ns = between.count()});
        rig_.work.give_up(stalling.number);
        device::arrival_ref out;
        std::uint64_t came = 0;
        for (; next(mine_, call, out) == status::ok; ++came) expect_released(out);
        EXPECT_LE(came, stalling.stalls_after);
        EXPECT_EQ(call.outcome, status::timed_out);
        expect_released(out);
        EXPECT_TRUE(heard(stalling));
        return came == stalling.stalls_after;
    });
    expect_all_slots();
}

TEST_P(client_parts, unread_parts_suspend_part_timeout) {
    wished what = parts(3);
    with_enough_time(400ms, [&](nanoseconds between) {
        device::call_ref call = submit(what, {.parts = 1, .part_timeout_ns = between.count()});
        device::arrival_ref part;
        const bool came = next(mine_, call, part) == status::ok;
        if (came) {
            EXPECT_TRUE(is_part(part, what, 0));
            std::this_thread::sleep_for(between * 5 / 4);
            device::arrival_ref none;
            EXPECT_EQ(device::poll(mine_, call, none), status::again);
            expect_released(part);
            EXPECT_EQ(device::cancel(mine_, call), status::ok);
        }
        expect_end(call, came ? status::cancelled : status::timed_out);
        return came;
    });
}

TEST_P(client_parts, the_deadline_of_a_call_ends_its_parts) {
    wished endless = parts(1'000'000);
    device::call_ref call = submit(endless, {.timeout_ns = 200'000'000, .parts = 2});
    device::arrival_ref out;
    while (next(mine_, call, out) == status::ok) expect_released(out);
    EXPECT_EQ(call.outcome, status::timed_out) << "though the server always has a part";
    expect_released(out);
    expect_all_slots();
}

TEST_P(client_parts, the_end_of_a_session_ends_the_parts) {
    wished endless = parts(1'000'000);
    device::call_ref call = submit(endless, {.parts = 2});
    const device::arrival_ref held = expect_part(call, endless, 0);
    rig_.channel->request_stop();
    device::arrival_ref out;
    status found = status::ok;
    while ((found = next(mine_, call, out)) == status::ok && out.more) expect_released(out);
    EXPECT_EQ(found, status::closed);
    expect_released(out);
    EXPECT_TRUE(is_part(held, endless, 0)) << "until its release";
    expect_released(held);
}

TEST_P(client_parts, draining_server_sends_the_parts_of_calls_in_flight) {
    wished what = parts(40);
    device::call_ref call = submit(what, {.parts = 2});
    device::arrival_ref first = expect_part(call, what, 0);
    rig_.drain_server();
    device::arrival_ref second = expect_part(call, what, 1);
    device::arrival_ref none;
    EXPECT_TRUE(eventually(
        [&] { return device::poll(mine_, call, none) != status::again || begins(mine_) == status::closed; }));
    EXPECT_EQ(device::poll(mine_, call, none), status::again) << "its parts are unread";
    expect_released(first);
    expect_released(second);
    for (std::uint64_t i = 2; i < what.parts; ++i) expect_released(expect_part(call, what, i));
    expect_end(call, status::ok);
}

TEST_P(client_parts, several_threads_stream_through_one_channel) {
    if (GetParam().caller.sharing == service_sharing::exclusive) GTEST_SKIP() << "it has one owner";
    std::vector<std::thread> callers;
    for (std::uint64_t t = 0; t < 3; ++t) {
        callers.emplace_back([this, t] {
            const device::channel_ref& channel = rig_.channel->ref();
            for (std::uint64_t round = 0; round < 5; ++round) {
                wished what = parts(6);
                what.number = 3 * (100 * t + round + 1);
                device::call_ref call;
                status sent = status::again;
                while (sent == status::again) {
                    sent = submit_wish(channel, call, what, {.parts = 1});
                    if (sent == status::again) (void)device::release(channel, call);
                }
                ASSERT_EQ(sent, status::ok);
                device::arrival_ref out;
                for (std::uint64_t i = 0; i <= what.parts; ++i) {
                    EXPECT_EQ(next(channel, call, out), status::ok);
                    EXPECT_EQ(out.more, i < what.parts);
                    EXPECT_TRUE(!out.more || is_part(out, what, i));
                    EXPECT_EQ(device::release(channel, out), status::ok);
                }
            }
        });
    }
    for (std::thread& each : callers) each.join();
    expect_all_slots();
}

INSTANTIATE_TEST_SUITE_P(by, client_parts,
                         ::testing::Values(client_case{{false, gpu_engine::direct}},
                                           client_case{{false, gpu_engine::proxy}, true},
                                           client_case{{true, gpu_engine::direct}, true},
                                           client_case{{false, gpu_engine::direct, owned}},
                                           client_case{{false, gpu_engine::proxy, owned}},
                                           client_case{{true, gpu_engine::direct, owned}, true, true}),
                         [](const auto& row) { return name_of(row.param); });

}  // namespace
}  // namespace accel::tests
