// SPDX-License-Identifier: Apache-2.0
// Kernels read responses in parts, and their servers hear of what they cancel. Threads of the host are in the kernels'
// place.
#include "core/internals.hpp"
#include "device/client_rig.hpp"
#include "device/part_streams.hpp"

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

namespace accel::tests {
namespace {

struct caller_case {
    const char* name;
    service_setting setting;
    service_sharing sharing;      ///< of the channel
    bool kernels_answer = false;  ///< else a handler over rdma
    bool owners_answer = false;   ///< of those kernels
    friend std::ostream& operator<<(std::ostream& out, const caller_case& which) { return out << which.name; }
};

constexpr std::uint32_t slots = 8;

class client_parts : public ::testing::TestWithParam<caller_case> {
  protected:
    void SetUp() override {
        if (!has(GetParam().setting.engine)) GTEST_SKIP() << "this device has no queues to drive";
        if (GetParam().setting.on_gpu)
            core::internals::state_of(rig_.client_context)->replace_devices(std::make_shared<fake_accelerator>());
        GetParam().kernels_answer ? serve_by_kernels() : serve_by_handler();
        if (!HasFatalFailure()) connect();
    }
    void TearDown() override {
        streams_.gives_up = true;
        if (channel_) channel_->close();
        channel_.reset();
        streams_.end();
        if (handler_) handler_->stop();
        rig_.stop();
    }
    void serve_by_kernels() {
        rig_.options.max_sessions = 2;
        if (GetParam().owners_answer) rig_.options.kernels.sharing = service_sharing::exclusive;
        rig_.listen();
        if (GetParam().owners_answer)
            return rig_.serve_owned([this](device::owned_sessions& mine, const device::exchange_ref& exchange) {
                note_trace_of(exchange);
                streams_.answer(mine, rig_.service->ref(), exchange);
            });
        rig_.serve([this](const device::service_ref& service, const device::exchange_ref& exchange) {
            note_trace_of(exchange);
            streams_.answer(service, service, exchange);
        });
    }
    void serve_by_handler() {
        server_options options;
        options.security.insecure = true;
        options.peer_timeout = patience(20s);
        options.drain_timeout = 50ms;
        const accel::handler answer = [this](exchange request) {
            trace_context found;
            note_trace(request.trace(found), found);
            streams_.handle(std::move(request));
        };
        auto made = server::listen(rig_.server_context, {"rdma://" + own_loopback() + ":0"}, answer, options);
        ASSERT_TRUE(made.ok()) << made.error().message;
        handler_ = std::make_unique<server>(std::move(*made));
    }
    void connect() {
        gpu_channel_options wanted;
        wanted.slots = slots;
        wanted.request_bytes = wanted.response_bytes = 4096;
        wanted.call_timeout = patience(10s);
        wanted.connect_timeout = patience(20s);
        wanted.peer_timeout = patience(20s);
        wanted.security.insecure = true;
        wanted.kernels.engine = GetParam().setting.engine;
        wanted.kernels.sharing = GetParam().sharing;
        wanted.memory = GetParam().setting.on_gpu ? memory_kind::cuda(0) : memory_kind::host();
        const std::string there = handler_ ? handler_->endpoints().front() : rig_.service->endpoint();
        auto made = gpu_channel::connect(rig_.client_context, "gpu" + there.substr(there.find(':')), wanted);
        ASSERT_TRUE(made.ok()) << made.error().message;
        channel_ = std::make_unique<gpu_channel>(std::move(*made));
        // Of a shared channel any scope may be an "owner": its calls go the shared way.
        ASSERT_EQ(device::own(channel_->ref(), mine_), status::ok);
        ASSERT_EQ(channel_->sharing(), GetParam().sharing);
    }
    void note_trace_of(const device::exchange_ref& exchange) {
        trace_context found;
        note_trace(device::trace(exchange, found), found);
    }
    void note_trace(status found, const trace_context& trace) {
        const std::lock_guard lock(trace_mutex_);
        trace_found_ = found;
        trace_ = trace;
    }
    void expect_trace(status found, const trace_context& trace) {
        const std::lock_guard lock(trace_mutex_);
        EXPECT_EQ(trace_found_, found);
        EXPECT_EQ(trace_, trace);
    }

    [[nodiscard]] device::call_ref submit(const parts_wish& what, const device::call_options& with) {
        device::call_ref call;
        status sent = status::again;
        // Room of the call before comes back behind its answer.
        EXPECT_TRUE(eventually(patience(5s), [&] {
            if (device::begin(mine_, call) != status::ok) return false;
            std::memcpy(call.request, &what, sizeof what);
            sent = device::submit(mine_, call, sizeof what, with);
            if (sent == status::again) (void)device::release(mine_, call);
            return sent != status::again;
        }));
        EXPECT_EQ(sent, status::ok) << to_string(sent);
        return call;
    }
    [[nodiscard]] status next(device::call_ref& call, device::arrival_ref& out) {
        for (;;) {
            const status found = device::wait(mine_, call, out, 200'000);
            if (found != status::again) return found;
            EXPECT_FALSE(out.more);
            std::this_thread::sleep_for(50us);
        }
    }
    device::arrival_ref expect_part(device::call_ref& call, const parts_wish& what, std::uint64_t number) {
        device::arrival_ref out;
        EXPECT_EQ(next(call, out), status::ok) << number;
        EXPECT_TRUE(out.more) << number;
        EXPECT_EQ(out.response_bytes, what.bytes_of(number)) << number;
        EXPECT_TRUE(is_part(out, what, number)) << number;
        return out;
    }
    static bool is_part(const device::arrival_ref& part, const parts_wish& what, std::uint64_t number) {
        return matches({part.response, part.response_bytes}, what.seed + number);
    }
    void expect_end(device::call_ref& call, status expected) {
        device::arrival_ref out;
        EXPECT_EQ(next(call, out), expected);
        EXPECT_FALSE(out.more);
        EXPECT_EQ(call.outcome, expected);
        device::arrival_ref again;
        EXPECT_EQ(device::poll(mine_, call, again), expected) << "it stays";
        EXPECT_FALSE(again.more);
        EXPECT_EQ(device::release(mine_, out), status::ok);
        EXPECT_EQ(device::release(mine_, out), status::invalid_state) << "only once";
    }
    void expect_released(const device::arrival_ref& part) { EXPECT_EQ(device::release(mine_, part), status::ok); }
    /// Takes a whole response, part by part.
    void expect_all(device::call_ref& call, const parts_wish& what) {
        for (std::uint64_t i = 0; i < what.parts; ++i) {
            const device::arrival_ref part = expect_part(call, what, i);
            if (::testing::Test::HasFailure()) return;
            expect_released(part);
        }
        expect_end(call, status::ok);
    }
    void expect_all_slots() {
        std::vector<device::call_ref> calls(slots);
        std::size_t begun = 0;
        EXPECT_TRUE(eventually(patience(5s), [&] {
            while (begun < calls.size() && device::begin(mine_, calls[begun]) == status::ok) ++begun;
            return begun == calls.size();
        })) << begun;
        for (std::size_t i = 0; i < begun; ++i) EXPECT_EQ(device::release(mine_, calls[i]), status::ok);
    }
    [[nodiscard]] bool heard(int count) {
        return eventually(patience(5s), [&] { return streams_.heard == count; });
    }

    part_streams streams_;
    service_rig rig_{service_setting{false, GetParam().setting.engine}};
    std::unique_ptr<server> handler_;
    std::unique_ptr<gpu_channel> channel_;
    device::owned_channel mine_;
    std::mutex trace_mutex_;
    trace_context trace_;  ///< of the last request
    status trace_found_ = status::again;
};

TEST_P(client_parts, parts_arrive_in_order_before_the_end) {
    for (std::uint64_t round = 0; round < 10; ++round) {
        const parts_wish what{4, 100 * round, 1000 * round};
        device::call_ref call = submit(what, {.parts = 4});
        std::vector<device::arrival_ref> held;
        for (std::uint64_t i = 0; i < what.parts; ++i) held.push_back(expect_part(call, what, i));
        expect_end(call, status::ok);
        for (std::uint64_t i = 0; i < what.parts; ++i) {
            EXPECT_TRUE(is_part(held[i], what, i)) << "until its release, " << i;
            expect_released(held[i]);
            EXPECT_EQ(device::release(mine_, held[i]), status::invalid_state) << "only once";
        }
    }
    expect_all_slots();
    channel_->close();
    const auto seen = channel_->statistics();
    EXPECT_EQ(seen.submitted, 10U);
    EXPECT_EQ(seen.completed, 10U);
    EXPECT_EQ(seen.ended_early, 0U);
    EXPECT_EQ(seen.stale, 0U);
    EXPECT_EQ(seen.quarantined, 0U);
}

TEST_P(client_parts, a_long_response_needs_little_room) {
    for (const std::uint32_t room : {1U, 3U}) {
        const parts_wish what{100, 10, 7};
        device::call_ref call = submit(what, {.parts = room});
        expect_all(call, what);
    }
    expect_all_slots();
}

TEST_P(client_parts, parts_wait_for_room) {
    const parts_wish what{3, 10, 7};
    device::call_ref call = submit(what, {.parts = 2});
    const device::arrival_ref first = expect_part(call, what, 0);
    const device::arrival_ref second = expect_part(call, what, 1);
    ASSERT_TRUE(eventually(patience(5s), [&] { return streams_.without_room > 3; }));
    device::arrival_ref none;
    EXPECT_EQ(device::poll(mine_, call, none), status::again);
    EXPECT_FALSE(none.more);
    EXPECT_EQ(device::release(mine_, none), status::invalid_state);
    expect_released(second);
    const device::arrival_ref third = expect_part(call, what, 2);
    EXPECT_TRUE(is_part(first, what, 0)) << "nobody has released it";
    expect_end(call, status::ok);
    expect_released(first);
    expect_released(third);
    expect_all_slots();
}

TEST_P(client_parts, unused_room_returns_to_the_channel) {
    for (std::uint64_t round = 0; round < 10; ++round) {
        const parts_wish what{round % 3, 10, round};
        device::call_ref call = submit(what, {.parts = slots - 1});
        expect_all(call, what);
    }
    expect_all_slots();
    for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(call_once(mine_, 100, i), status::ok);
}

TEST_P(client_parts, calls_without_parts_end_through_the_same_functions) {
    device::call_ref call;
    ASSERT_EQ(device::begin(mine_, call), status::ok);
    fill({call.request, 300}, 5);
    ASSERT_EQ(device::submit(mine_, call, 300), status::ok);
    device::arrival_ref out;
    EXPECT_EQ(next(call, out), status::ok);
    EXPECT_FALSE(out.more);
    EXPECT_TRUE(out.response_bytes == 300 && matches({out.response, 300}, 5));
    expect_released(out);
    const parts_wish what{2, 10, 7};
    call = submit(what, {.parts = 2});
    EXPECT_EQ(device::poll(mine_, call), status::invalid_state) << "it would lose parts";
    expect_all(call, what);
}

TEST_P(client_parts, wrong_numbers_and_times_are_refused) {
    device::call_ref call;
    ASSERT_EQ(device::begin(mine_, call), status::ok);
    EXPECT_EQ(device::submit(mine_, call, 8, {.parts = slots}), status::invalid_argument);
    EXPECT_EQ(device::submit(mine_, call, 8, {.parts = 1, .part_timeout_ns = -1}), status::invalid_argument);
    EXPECT_EQ(device::submit(mine_, call, 5000, {.parts = 1}), status::message_too_large);
    device::call_ref other;
    ASSERT_EQ(device::begin(mine_, other), status::ok);
    EXPECT_EQ(device::submit(mine_, call, 8, {.parts = slots - 1}), status::again) << "one slot too few is free";
    EXPECT_EQ(device::release(mine_, other), status::ok);
    EXPECT_EQ(device::release(mine_, call), status::ok);
    EXPECT_EQ(device::submit(mine_, call, 8, {.parts = 1}), status::invalid_state);
    expect_all_slots();
}

TEST_P(client_parts, a_failure_arrives_after_its_parts) {
    parts_wish what{2, 77, 7};
    what.fails = 1;
    device::call_ref call = submit(what, {.parts = 3});
    for (std::uint64_t i = 0; i < what.parts; ++i) expect_released(expect_part(call, what, i));
    expect_end(call, status::application_error);
    EXPECT_EQ(call.code, 42U);
    expect_all_slots();
}

TEST_P(client_parts, a_cancel_ends_the_parts_and_reaches_the_server) {
    for (int round = 1; round <= 2; ++round) {
        const parts_wish what{1000, 10, 7};
        device::call_ref call = submit(what, {.parts = 2});
        const device::arrival_ref first = expect_part(call, what, 0);
        const device::arrival_ref second = expect_part(call, what, 1);
        ASSERT_EQ(device::cancel(mine_, call), status::ok);
        EXPECT_EQ(device::cancel(mine_, call), status::invalid_state);
        expect_end(call, status::cancelled);
        EXPECT_TRUE(heard(round));
        EXPECT_TRUE(is_part(first, what, 0)) << "until its release";
        expect_released(first);
        expect_released(second);
        expect_all_slots();
    }
}

TEST_P(client_parts, a_late_part_ends_the_call_and_the_server_is_notified) {
    const parts_wish what{3, 10, 7};
    device::call_ref call = submit(what, {.parts = 3, .part_timeout_ns = 60'000'000'000});
    expect_all(call, what);
    const parts_wish stalling{5, 10, 7, 0, 2};
    int calls = 0;
    with_enough_time(500ms, [&](nanoseconds between) {
        call = submit(stalling, {.timeout_ns = 200'000'000'000, .parts = 1, .part_timeout_ns = between.count()});
        device::arrival_ref out;
        std::uint64_t came = 0;
        for (; next(call, out) == status::ok; ++came) expect_released(out);
        EXPECT_LE(came, stalling.stalls_after);
        EXPECT_EQ(call.outcome, status::timed_out);
        expect_released(out);
        EXPECT_TRUE(heard(++calls));
        return came == stalling.stalls_after;
    });
    expect_all_slots();
}

TEST_P(client_parts, unread_parts_suspend_part_timeout) {
    const parts_wish what{3, 10, 7};
    with_enough_time(400ms, [&](nanoseconds between) {
        device::call_ref call = submit(what, {.parts = 1, .part_timeout_ns = between.count()});
        device::arrival_ref part;
        const bool came = next(call, part) == status::ok;
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
    const parts_wish endless{1'000'000, 10, 7};
    device::call_ref call = submit(endless, {.timeout_ns = 200'000'000, .parts = 2});
    device::arrival_ref out;
    while (next(call, out) == status::ok) expect_released(out);
    EXPECT_EQ(call.outcome, status::timed_out) << "though the server always has a part";
    expect_released(out);
    expect_all_slots();
}

TEST_P(client_parts, the_end_of_a_session_ends_the_parts) {
    const parts_wish endless{1'000'000, 10, 7};
    device::call_ref call = submit(endless, {.parts = 2});
    const device::arrival_ref held = expect_part(call, endless, 0);
    streams_.gives_up = true;
    channel_->request_stop();
    device::arrival_ref out;
    status found = status::ok;
    while ((found = next(call, out)) == status::ok && out.more) expect_released(out);
    EXPECT_TRUE(found == status::closed || found == status::ok) << to_string(found);
    expect_released(out);
    expect_released(held);
}

TEST_P(client_parts, draining_server_sends_the_parts_of_calls_in_flight) {
    const parts_wish what{40, 10, 7};
    device::call_ref call = submit(what, {.parts = 2});
    device::arrival_ref first = expect_part(call, what, 0);
    if (handler_)
        EXPECT_EQ(handler_->drain(0ns), status::timed_out);
    else
        rig_.service->request_stop();
    device::arrival_ref second = expect_part(call, what, 1);
    device::arrival_ref none;
    EXPECT_TRUE(eventually(patience(5s), [&] {
        return device::poll(mine_, call, none) != status::again || begins(mine_) == status::closed;
    }));
    EXPECT_EQ(device::poll(mine_, call, none), status::again) << "its parts are unread";
    expect_released(first);
    expect_released(second);
    for (std::uint64_t i = 2; i < what.parts; ++i) expect_released(expect_part(call, what, i));
    expect_end(call, status::ok);
}

TEST_P(client_parts, a_cancel_of_a_call_without_parts_reaches_the_server) {
    if (GetParam().kernels_answer) GTEST_SKIP() << "its kernels would have to look";
    const parts_wish what{1'000'000, 10, 7};
    device::call_ref call;
    ASSERT_EQ(device::begin(mine_, call), status::ok);
    std::memcpy(call.request, &what, sizeof what);
    ASSERT_EQ(device::submit(mine_, call, sizeof what), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return streams_.without_room > 0; })) << "the handler has it";
    ASSERT_EQ(device::cancel(mine_, call), status::ok);
    EXPECT_EQ(device::poll(mine_, call), status::cancelled);
    EXPECT_EQ(device::release(mine_, call), status::ok);
    EXPECT_TRUE(heard(1));
    expect_all_slots();
}

TEST_P(client_parts, a_trace_reaches_the_server) {
    trace_context sent;
    for (std::size_t i = 0; i < sent.trace_id.size(); ++i) sent.trace_id[i] = static_cast<std::uint8_t>(i + 1);
    sent.parent_id[7] = 9;
    sent.flags = trace_context::sampled;
    const auto ask = [&](const trace_context* trace, std::uint32_t parts) {
        const parts_wish what{parts, 10, 7};
        device::call_ref call = submit(what, {.parts = parts, .trace = trace});
        if (parts != 0) return expect_all(call, what);
        device::arrival_ref out;
        (void)next(call, out);
        expect_released(out);
    };
    ask(&sent, 0);
    expect_trace(status::ok, sent);
    const trace_context none;
    ask(nullptr, 0);
    expect_trace(status::not_found, none);
    ask(&sent, 2);
    expect_trace(status::ok, sent);
    ask(&none, 2);  // one that is not valid does not travel
    expect_trace(status::not_found, none);
}

TEST_P(client_parts, several_threads_stream_through_one_channel) {
    if (GetParam().sharing == service_sharing::exclusive) GTEST_SKIP() << "it has one owner";
    std::vector<std::thread> callers;
    for (std::uint64_t t = 0; t < 3; ++t) {
        callers.emplace_back([this, t] {
            const device::channel_ref& channel = channel_->ref();
            for (std::uint64_t round = 0; round < 5; ++round) {
                const parts_wish what{6, 30 * t, 1000 * t + round};
                device::call_ref call;
                status sent = status::again;
                while (sent == status::again) {
                    if (begin_call(channel, call) != status::ok) return;
                    std::memcpy(call.request, &what, sizeof what);
                    sent = device::submit(channel, call, sizeof what, {.parts = 1});
                    if (sent == status::again) (void)device::release(channel, call);
                }
                device::arrival_ref out;
                std::uint64_t number = 0;
                for (out.more = true; out.more;) {
                    const status found = device::wait(channel, call, out, 200'000);
                    out.more = out.more || found == status::again;
                    if (found == status::again) {
                        std::this_thread::sleep_for(50us);
                        continue;
                    }
                    EXPECT_EQ(found, status::ok);
                    EXPECT_TRUE(!out.more || is_part(out, what, number));
                    number += out.more ? 1 : 0;
                    EXPECT_EQ(device::release(channel, out), status::ok);
                }
                EXPECT_EQ(number, what.parts);
            }
        });
    }
    for (std::thread& each : callers) each.join();
    expect_all_slots();
}

INSTANTIATE_TEST_SUITE_P(
    by, client_parts,
    ::testing::Values(caller_case{"direct", {false, gpu_engine::direct}, service_sharing::shared},
                      caller_case{"proxy_to_kernels", {false, gpu_engine::proxy}, service_sharing::shared, true},
                      caller_case{"fake_direct_to_kernels", {true, gpu_engine::direct}, service_sharing::shared, true},
                      caller_case{"exclusive", {false, gpu_engine::direct}, service_sharing::exclusive},
                      caller_case{"exclusive_proxy", {false, gpu_engine::proxy}, service_sharing::exclusive},
                      caller_case{
                          "exclusive_to_owners", {true, gpu_engine::direct}, service_sharing::exclusive, true, true}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace accel::tests
