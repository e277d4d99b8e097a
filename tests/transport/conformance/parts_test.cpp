// SPDX-License-Identifier: Apache-2.0
// Responses in parts: in order, each with memory of its own until its release, and exactly one last completion.
#include "rig.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

/// Sends what follows from `seed` as a part; the handler's own bytes may be on a GPU.
status send_seed(exchange& one, std::size_t length, std::uint64_t seed) {
    const std::span<std::byte> room = one.part();
    if (length <= room.size()) fill(room.first(length), seed);
    return one.send(length);
}

/// Notes that it was called.
struct noted : exchange::part_waiter {
    noted() : part_waiter{[](part_waiter& self) noexcept { ++static_cast<noted&>(self).calls; }} {}
    [[nodiscard]] bool called(int count) const {
        return eventually(patience(5s), [&] { return calls == count; });
    }
    std::atomic<int> calls{0};
};

class parts : public on_every_backend {
  protected:
    /// The next completion, which has to be a part with these bytes.
    static completion next_part(checked_channel& client, call_id call, std::size_t length, std::uint64_t seed) {
        const completion c = client.next();
        EXPECT_EQ(c.status, status::ok) << to_string(c.status);
        EXPECT_TRUE(c.more);
        EXPECT_EQ(c.call, call);
        EXPECT_EQ(c.response.size(), length);
        EXPECT_TRUE(matches(c.response, seed)) << seed;
        return c;
    }
    /// Releases what comes next: a part, or the end of a call whose time was over before.
    static bool part_comes(checked_channel& client, call_id call, nanoseconds timeout) {
        const completion c = client.next(timeout + until_hung());
        EXPECT_EQ(c.call, call);
        EXPECT_EQ(c.status, c.more ? status::ok : status::timed_out) << to_string(c.status);
        EXPECT_EQ(client.release(c.id), status::ok);
        return c.more;
    }
    static completion last(checked_channel& client, call_id call, status expected) {
        const completion c = client.next();
        EXPECT_FALSE(c.more);
        EXPECT_EQ(c.id, call);
        EXPECT_EQ(c.status, expected) << to_string(c.status);
        EXPECT_EQ(client.release(c.id), status::ok);
        return c;
    }
};

TEST_P(parts, parts_arrive_in_order_before_the_last_completion) {
    rig r(GetParam(), [](exchange one) {
        EXPECT_TRUE(one.in_parts());
        const std::uint64_t seed = one.trace_id();
        for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(send_seed(one, 100 * i, seed + i), status::ok) << i;
        EXPECT_EQ(one.send(1), status::again) << "the client takes four";
        fill(one.response().first(50), seed);
        EXPECT_EQ(one.reply(50), status::ok);
    });
    auto client = r.connect();
    for (std::uint64_t round = 0; round < 20; ++round) {
        const call_id call = client.send_seed(100, 1000 * round, {.tag = round, .parts = 4});
        std::vector<completion> held;
        for (std::uint64_t i = 0; i < 4; ++i) held.push_back(next_part(client, call, 100 * i, 1000 * round + i));
        const completion end = client.next();
        EXPECT_FALSE(end.more);
        EXPECT_EQ(end.status, status::ok);
        EXPECT_TRUE(matches(end.response, 1000 * round));
        for (std::uint64_t i = 0; i < 4; ++i) {
            EXPECT_TRUE(matches(held[i].response, 1000 * round + i)) << "until its release, " << i;
            EXPECT_EQ(client.release(held[i].id), status::ok);
            EXPECT_EQ(client.release(held[i].id), status::invalid_state);
        }
        EXPECT_EQ(client.release(end.id), status::ok);
        ASSERT_TRUE(client.all_slots_free());
    }
    EXPECT_EQ(client->statistics().submitted, client->statistics().completed);
    EXPECT_EQ(client->statistics().stale, 0U);
}

TEST_P(parts, a_released_part_gives_room_for_one_more) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    const call_id call = client.send_seed(10, 1, {.parts = 2});
    exchange open = held.take();
    ASSERT_EQ(send_seed(open, 1000, 1), status::ok);
    ASSERT_EQ(send_seed(open, 1000, 2), status::ok);
    EXPECT_TRUE(open.part().empty());
    EXPECT_EQ(open.send(1), status::again);
    const completion first = next_part(client, call, 1000, 1);
    const completion second = next_part(client, call, 1000, 2);
    noted waiter;
    ASSERT_FALSE(open.await_part(waiter));
    EXPECT_EQ(client.release(first.id), status::ok);
    EXPECT_TRUE(waiter.called(1));
    EXPECT_EQ(open.part().size(), open.response().size());
    EXPECT_EQ(open.send(open.part().size() + 1), status::message_too_large);
    EXPECT_TRUE(open.await_part(waiter)) << "there is room";
    ASSERT_EQ(send_seed(open, 500, 3), status::ok);
    EXPECT_EQ(open.send(1), status::again);
    const completion third = next_part(client, call, 500, 3);
    EXPECT_TRUE(matches(second.response, 2)) << "nobody has released it";
    EXPECT_EQ(open.reply(0), status::ok);
    (void)last(client, call, status::ok);
    EXPECT_TRUE(matches(second.response, 2)) << "after the end as well";
    EXPECT_TRUE(matches(third.response, 3));
    EXPECT_EQ(client.release(third.id), status::ok);
    EXPECT_EQ(client.release(second.id), status::ok);
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_EQ(waiter.calls, 1);
}

TEST_P(parts, a_long_response_needs_little_room) {
    const auto count = static_cast<std::uint64_t>(effort(500));
    rig r(GetParam(), [count](exchange one) {
        std::thread([count, one = std::move(one)]() mutable {
            for (std::uint64_t i = 0; i < count;) {
                const status sent = send_seed(one, 8 + i % 100, i);
                if (sent == status::ok)
                    ++i;
                else if (sent == status::again)
                    std::this_thread::yield();
                else
                    break;
            }
            (void)one.reply(0);
        }).detach();
    });
    for (const std::uint32_t room : {1U, 3U}) {
        auto client = r.connect();
        const call_id call = client.send_seed(10, 1, {.parts = room});
        for (std::uint64_t i = 0; i < count; ++i) {
            const completion c = next_part(client, call, 8 + i % 100, i);
            ASSERT_EQ(client.release(c.id), status::ok);
        }
        (void)last(client, call, status::ok);
        EXPECT_TRUE(client.all_slots_free());
    }
}

TEST_P(parts, short_parts_do_not_overtake_long_parts) {
    constexpr std::size_t longest = 1 << 20;
    rig r(GetParam(), [](exchange one) {
        for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(send_seed(one, i % 2 == 0 ? longest : i, i), status::ok);
        (void)one.reply(0);
    });
    channel_options options = calm_client();
    options.response_bytes = longest;
    auto client = r.connect(options);
    for (int round = 0; round < effort(5); ++round) {
        const call_id call = client.send_seed(10, 1, {.parts = 6});
        for (std::uint64_t i = 0; i < 6; ++i) {
            const completion c = next_part(client, call, i % 2 == 0 ? longest : i, i);
            EXPECT_EQ(client.release(c.id), status::ok);
        }
        (void)last(client, call, status::ok);
        ASSERT_TRUE(client.all_slots_free());
    }
}

TEST_P(parts, a_call_without_room_gets_no_parts) {
    std::atomic<int> served{0};
    rig r(GetParam(), [&](exchange one) {
        EXPECT_FALSE(one.in_parts());
        EXPECT_TRUE(one.part().empty());
        EXPECT_EQ(one.send(0), status::unsupported);
        noted waiter;
        EXPECT_TRUE(one.await_part(waiter)) << "there will never be room";
        ++served;
        echo(std::move(one));
    });
    channel_options options = calm_client();
    options.slots = 4;
    auto client = r.connect(options);
    client.send_seed(10, 1);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_EQ(served, 1);

    call_view call;
    call_view other;
    ASSERT_EQ(client.begin(call), status::ok);
    EXPECT_EQ(client.submit(call.id, 1, {.parts = 4}), status::invalid_argument) << "the call takes a slot as well";
    EXPECT_EQ(client.submit(call.id, 1, {.parts = 1, .part_timeout = -1ns}), status::invalid_argument);
    ASSERT_EQ(client.begin(other), status::ok);
    EXPECT_EQ(client.submit(call.id, 1, {.parts = 3}), status::again) << "two are free";
    EXPECT_EQ(client.release(call.id), status::ok);
    EXPECT_EQ(client.release(other.id), status::ok);
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_EQ(client->call({}, {.parts = 1}).code(), status::invalid_argument);
    EXPECT_EQ(served, 1);
}

TEST_P(parts, a_failure_arrives_after_its_parts) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    const call_id failing = client.send_seed(10, 1, {.parts = 3});
    {
        exchange open = held.take();
        ASSERT_EQ(send_seed(open, 77, 7), status::ok);
        ASSERT_EQ(open.fail(status::application_error, 42, "no more"), status::ok);
    }
    EXPECT_EQ(client.release(next_part(client, failing, 77, 7).id), status::ok);
    const completion c = client.next();
    EXPECT_EQ(c.status, status::application_error);
    EXPECT_EQ(c.code, 42U);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(c.response.data()), c.response.size()), "no more");
    EXPECT_EQ(client.release(c.id), status::ok);
    const call_id dropped = client.send_seed(10, 1, {.parts = 3});
    {
        exchange open = held.take();
        ASSERT_EQ(send_seed(open, 1, 7), status::ok);
    }
    EXPECT_EQ(client.release(next_part(client, dropped, 1, 7).id), status::ok);
    (void)last(client, dropped, status::abandoned);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(parts, a_cancel_ends_the_parts_and_reaches_the_handler) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    for (int round = 0; round < 3; ++round) {
        const call_id call = client.send_seed(10, 1, {.parts = 3});
        exchange open = held.take();
        ASSERT_EQ(send_seed(open, 100, 1), status::ok);
        const completion first = next_part(client, call, 100, 1);
        EXPECT_FALSE(open.cancelled());
        EXPECT_EQ(client.cancel(first.id), status::invalid_state) << "a part is no call";
        ASSERT_EQ(client.cancel(call), status::ok);
        (void)last(client, call, status::cancelled);
        EXPECT_TRUE(eventually(patience(5s), [&] { return open.cancelled(); }));
        EXPECT_EQ(open.send(1), status::cancelled);
        noted waiter;
        EXPECT_TRUE(open.await_part(waiter));
        EXPECT_TRUE(matches(first.response, 1)) << "it is the application's until its release";
        EXPECT_EQ(open.reply(0), status::ok);
        EXPECT_EQ(client.release(first.id), status::ok);
        EXPECT_TRUE(client.all_slots_free());
    }
}

TEST_P(parts, the_deadline_of_a_call_ends_its_parts) {
    with_enough_time(300ms, [](nanoseconds timeout) {
        held_exchanges held;
        rig r(GetParam(), held.keeper());
        auto client = r.connect();
        const call_id call = client.send_seed(10, 1, {.timeout = timeout, .parts = 2});
        if (!reaches_its_handler(r, held)) return part_comes(client, call, timeout);
        exchange open = held.take();
        (void)send_seed(open, 100, 1);
        const bool came = part_comes(client, call, timeout);
        if (came) (void)last(client, call, status::timed_out);
        EXPECT_TRUE(eventually(until_hung(), [&] { return open.cancelled(); }));
        for (int i = 0; i < 3; ++i) (void)send_seed(open, 10, 5);  // as far as there is room
        EXPECT_EQ(open.reply(0), status::ok);
        EXPECT_TRUE(client.all_slots_free());
        return came;
    });
}

TEST_P(parts, the_deadline_between_parts_ends_the_call) {
    with_enough_time(250ms, [](nanoseconds between) {
        held_exchanges held;
        rig r(GetParam(), held.keeper());
        auto client = r.connect();
        const call_id call = client.send_seed(10, 1, {.timeout = patience(120s), .parts = 1, .part_timeout = between});
        exchange open = held.take();
        (void)send_seed(open, 100, 1);
        const completion first = client.next(between + until_hung());
        if (first.more) {
            completion none;
            EXPECT_EQ(client.wait({&none, 1}, 2 * between), 0U) << "the server has no room, so no part is late";
            EXPECT_EQ(client.release(first.id), status::ok);
            noted waiter;
            if (!open.await_part(waiter)) {
                EXPECT_TRUE(waiter.called(1));
            }
            const auto start = std::chrono::steady_clock::now();
            (void)last(client, call, status::timed_out);
            EXPECT_LT(std::chrono::steady_clock::now() - start, between + until_hung());
        } else {
            EXPECT_EQ(first.status, status::timed_out);
            EXPECT_EQ(client.release(first.id), status::ok);
        }
        EXPECT_TRUE(eventually(until_hung(), [&] { return open.cancelled(); })) << "the client has told it";
        EXPECT_EQ(open.reply(0), status::ok);
        EXPECT_TRUE(client.all_slots_free());
        return first.more;
    });
}

TEST_P(parts, a_client_that_leaves_ends_the_wait_for_room) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    noted waiter;
    std::optional<exchange> open;
    {
        auto client = r.connect();
        client.send_seed(10, 1, {.parts = 1});
        open = held.take();
        ASSERT_EQ(send_seed(*open, 100, 1), status::ok);
        ASSERT_FALSE(open->await_part(waiter));
        client.forget();
    }
    EXPECT_TRUE(waiter.called(1));
    EXPECT_EQ(open->send(1), status::peer_lost);
    EXPECT_EQ(open->reply(0), status::peer_lost);
    open.reset();
    EXPECT_TRUE(eventually(patience(5s), [&] { return r.served().statistics().sessions == 0; }));
}

TEST_P(parts, a_server_that_stops_ends_each_call_once) {
    held_exchanges held;
    server_options options = calm_server();
    options.drain_timeout = 50ms;
    rig r(GetParam(), held.keeper(), options);
    auto client = r.connect();
    std::vector<call_id> calls;
    for (std::uint64_t i = 0; i < 3; ++i) calls.push_back(client.send_seed(10, i, {.parts = 1}));
    ASSERT_TRUE(held.wait_for(3));
    std::vector<exchange> open;
    for (int i = 0; i < 3; ++i) open.push_back(held.take());
    for (exchange& each : open) ASSERT_EQ(send_seed(each, 100, each.trace_id()), status::ok);
    std::vector<completion> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(client.next());
    r.destroy_server();
    std::size_t ended = 0;
    while (client.open_calls() > 0) {
        const completion c = client.next();
        EXPECT_FALSE(c.more);
        EXPECT_TRUE(c.status == status::closed || c.status == status::peer_lost) << to_string(c.status);
        EXPECT_EQ(client.release(c.id), status::ok);
        ++ended;
    }
    EXPECT_EQ(ended, 3U);
    for (const completion& each : taken) {
        EXPECT_TRUE(matches(each.response, each.trace_id)) << "parts outlive their server";
        EXPECT_EQ(client.release(each.id), status::ok);
    }
    for (exchange& each : open) {
        EXPECT_EQ(each.send(1), status::peer_lost);
        (void)each.reply(0);
    }
}

TEST_P(parts, calls_in_parts_take_lent_payloads_and_response_targets) {
    rig r(GetParam(), [](exchange one) {
        EXPECT_EQ(send_seed(one, 1000, 5), status::ok);
        echo(std::move(one));
    });
    auto client = r.connect();
    auto memory = r.ctx().allocate(64 << 10);
    ASSERT_TRUE(memory);
    const slice payload = memory->part(0, 32 << 10).value();
    const slice target = memory->part(32 << 10, 32 << 10).value();
    for (std::uint64_t round = 0; round < 5; ++round) {
        fill(payload.bytes(), round);
        call_view call;
        ASSERT_EQ(client.begin(call), status::ok);
        ASSERT_EQ(client.submit(call.id, payload, {.response_into = target, .parts = 2}), status::ok);
        EXPECT_EQ(client.release(next_part(client, call.id, 1000, 5).id), status::ok);
        const completion c = client.next();
        EXPECT_EQ(c.status, status::ok);
        EXPECT_EQ(c.response.data(), target.bytes().data());
        EXPECT_TRUE(matches(c.response, round));
        EXPECT_EQ(client.release(c.id), status::ok);
        ASSERT_TRUE(client.all_slots_free());
    }
}

/// Works on exchanges by turns: a part of each, or its end.
class interleaving {
  public:
    interleaving() : thread_([this] { run(); }) {}
    ~interleaving() {
        stop_ = true;
        thread_.join();
    }
    handler service() { return held_.keeper(); }

  private:
    struct work {
        exchange open;
        std::uint64_t left;
        std::uint64_t next = 0;
    };
    void run() {
        std::deque<work> all;
        for (std::uint64_t i = 0; !stop_; ++i) {
            for (std::size_t n = held_.size(); n > 0; --n) {
                exchange one = held_.take();
                const std::uint64_t count = one.in_parts() ? mix(one.trace_id()) % 12 : 0;
                all.push_back({std::move(one), count});
            }
            if (all.empty() || i % 64 == 0) std::this_thread::sleep_for(100us);
            if (all.empty()) continue;
            work at = std::move(all.front());
            all.pop_front();
            if (at.left == 0 || !step(at))
                echo(std::move(at.open));
            else
                all.push_back(std::move(at));
        }
        for (work& each : all) (void)each.open.reply(0);
    }
    static bool step(work& at) {
        const std::uint64_t seed = at.open.trace_id() + 1000 * at.next;
        const status sent = send_seed(at.open, mix(seed) % 3000, seed);
        if (sent == status::ok) {
            ++at.next;
            --at.left;
        }
        return sent == status::ok || sent == status::again;
    }
    held_exchanges held_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

TEST_P(parts, many_calls_with_and_without_parts_interleave) {
    auto work = std::make_unique<interleaving>();
    rig r(GetParam(), work->service());
    channel_options options = calm_client();
    options.slots = 24;
    auto client = r.connect(options);
    struct open_call {
        std::uint64_t seed = 0;
        std::uint64_t parts = 0;
        bool in_parts = false;
    };
    std::map<call_id, open_call> open;
    std::vector<completion> unread;
    std::uint64_t done = 0;
    const auto release = [&](const completion& c) { EXPECT_EQ(client.release(c.id), status::ok); };
    const auto take = [&](const completion& c) {
        open_call& of = open.at(c.call);
        if (c.more) {
            EXPECT_TRUE(of.in_parts);
            EXPECT_TRUE(matches(c.response, of.seed + 1000 * of.parts)) << "part " << of.parts << " of " << of.seed;
            ++of.parts;
            unread.push_back(c);
            return;
        }
        EXPECT_TRUE(c.status == status::ok || c.status == status::cancelled) << to_string(c.status);
        if (c.status == status::ok) {
            EXPECT_TRUE(matches(c.response, of.seed));
            EXPECT_EQ(of.parts, of.in_parts ? mix(of.seed) % 12 : 0);
            ++done;
        }
        open.erase(c.call);
        release(c);
    };
    const auto calls = static_cast<std::uint64_t>(effort(2000));
    for (std::uint64_t i = 0; i < calls || !open.empty() || !unread.empty();) {
        call_view call;
        if (i < calls && client.begin(call) == status::ok) {
            const std::size_t length = mix(i) % 2000;
            fill(call.request.first(length), i);
            const auto room = static_cast<std::uint32_t>(mix(i) % 5);
            const status sent = client.submit(call.id, length, {.trace_id = i, .parts = room});
            if (sent == status::ok)
                open[call.id] = {i++, 0, room > 0};
            else
                EXPECT_EQ(client.release(call.id), status::ok);
        }
        if (!open.empty() && mix(i ^ 0x77U) % 200 == 0) (void)client.cancel(open.begin()->first);
        std::array<completion, 4> out;
        const std::size_t count = client.wait(out, 100us);
        for (std::size_t k = 0; k < count; ++k) take(out[k]);
        while (!unread.empty() && (unread.size() > 3 || mix(done + i) % 2 == 0 || i >= calls)) {
            const std::size_t which = mix(unread.size() + i) % unread.size();
            release(unread[which]);
            unread.erase(unread.begin() + static_cast<std::ptrdiff_t>(which));
        }
    }
    EXPECT_GT(done, calls / 2);
    EXPECT_TRUE(client.all_slots_free());
    r.destroy_server();
}

ACCEL_INSTANTIATE(parts, all_backends);

}  // namespace
}  // namespace accel::tests
