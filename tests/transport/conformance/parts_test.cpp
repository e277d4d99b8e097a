// SPDX-License-Identifier: Apache-2.0
// Responses in parts: in order, each with memory of its own until its release, and with room that comes back.
// (random_test.cpp ends them in every way.)
#include "rig.hpp"

#include <atomic>
#include <future>
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

/// The same, once there is room.
status send_seed_soon(exchange& one, std::size_t length, std::uint64_t seed) {
    const std::span<std::byte> room = one.part(until_hung());
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
        completion c = client.next();
        EXPECT_EQ(c.status, status::ok) << to_string(c.status);
        EXPECT_TRUE(c.more);
        EXPECT_EQ(c.call, call);
        EXPECT_EQ(c.response.size(), length);
        EXPECT_TRUE(matches(c.response, seed)) << seed;
        return c;
    }
    static completion last(checked_channel& client, call_id call, status expected) {
        completion c = client.next();
        EXPECT_FALSE(c.more);
        EXPECT_EQ(c.id, call);
        EXPECT_EQ(c.status, expected) << to_string(c.status);
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
        completion end = client.next();
        EXPECT_FALSE(end.more);
        EXPECT_EQ(end.status, status::ok);
        EXPECT_TRUE(matches(end.response, 1000 * round));
        for (std::uint64_t i = 0; i < 4; ++i) {
            EXPECT_TRUE(matches(held[i].response, 1000 * round + i)) << "until its release, " << i;
            held[i].release();
            EXPECT_EQ(client.release(held[i].id), status::invalid_state);
        }
        end.release();
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
    completion first = next_part(client, call, 1000, 1);
    completion second = next_part(client, call, 1000, 2);
    noted waiter;
    ASSERT_FALSE(open.await_part(waiter));
    first.release();
    EXPECT_TRUE(waiter.called(1));
    EXPECT_EQ(open.part().size(), open.response().size());
    EXPECT_EQ(open.send(open.part().size() + 1), status::message_too_large);
    EXPECT_TRUE(open.await_part(waiter)) << "there is room";
    ASSERT_EQ(send_seed(open, 500, 3), status::ok);
    EXPECT_EQ(open.send(1), status::again);
    completion third = next_part(client, call, 500, 3);
    EXPECT_TRUE(matches(second.response, 2)) << "nobody has released it";
    EXPECT_EQ(open.reply(0), status::ok);
    (void)last(client, call, status::ok);
    EXPECT_TRUE(matches(second.response, 2)) << "after the end as well";
    EXPECT_TRUE(matches(third.response, 3));
    third.release();
    second.release();
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_EQ(waiter.calls, 1);
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
        for (std::uint64_t i = 0; i < 6; ++i) (void)next_part(client, call, i % 2 == 0 ? longest : i, i);
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

    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    EXPECT_EQ(client.submit(call->id, 1, {.parts = 4}), status::invalid_argument) << "the call takes a slot as well";
    EXPECT_EQ(client.submit(call->id, 1, {.parts = 1, .part_timeout = -1ns}), status::invalid_argument);
    const auto other = client.begin();
    ASSERT_EQ(other.code(), status::ok);
    EXPECT_EQ(client.submit(call->id, 1, {.parts = 3}), status::again) << "two are free";
    EXPECT_EQ(client.release(call->id), status::ok);
    EXPECT_EQ(client.release(other->id), status::ok);
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_EQ(client->call({}, {.parts = 1}).code(), status::invalid_argument);
    EXPECT_EQ(served, 1);
}

TEST_P(parts, the_deadline_between_parts_ends_the_call) {
    with_enough_time(250ms, [](nanoseconds between) {
        held_exchanges held;
        rig r(GetParam(), held.keeper());
        auto client = r.connect();
        const call_id call = client.send_seed(10, 1, {.timeout = patience(120s), .parts = 1, .part_timeout = between});
        exchange open = held.take();
        (void)send_seed(open, 100, 1);
        completion first = client.next(between + until_hung());
        if (first.more) {
            completion none;
            EXPECT_EQ(client.wait({&none, 1}, 2 * between), 0U) << "the server has no room, so no part is late";
            first.release();
            noted waiter;
            if (!open.await_part(waiter)) {
                EXPECT_TRUE(waiter.called(1));
            }
            const auto start = std::chrono::steady_clock::now();
            (void)last(client, call, status::timed_out);
            EXPECT_LT(std::chrono::steady_clock::now() - start, between + until_hung());
        } else {
            EXPECT_EQ(first.status, status::timed_out);
            first.release();
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

TEST_P(parts, a_blocked_sender_and_a_blocking_reader_lose_nothing) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    const auto count = static_cast<std::uint64_t>(effort(200));
    std::vector<std::byte> request(100);
    for (const std::uint32_t room : {1U, 3U}) {
        auto reader = client->call_parts(request, {.parts = room});
        ASSERT_TRUE(reader) << reader.error().message;
        std::jthread sender([&] {
            exchange open = held.take();
            status sent = status::ok;
            for (std::uint64_t i = 0; i < count && sent == status::ok; ++i) sent = send_seed_soon(open, i % 700, i);
            EXPECT_EQ(sent, status::ok);
            (void)open.reply(0);
        });
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto part = reader->next(until_hung());
            ASSERT_TRUE(part) << part.error().message;
            EXPECT_TRUE(part->more);
            EXPECT_EQ(part->response.size(), i % 700);
            EXPECT_TRUE(matches(part->response, i)) << i;
        }
        const auto end = reader->next(until_hung());
        ASSERT_TRUE(end) << end.error().message;
        EXPECT_FALSE(end->more);
        EXPECT_EQ(reader->next(1ms).code(), status::invalid_state);
    }
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(parts, a_blocking_reader_leaves_other_calls_to_poll) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    client.send_seed(10, 1);
    exchange other = held.take();
    auto reader = client->call_parts({}, {.parts = 1});
    ASSERT_TRUE(reader) << reader.error().message;
    exchange open = held.take();
    EXPECT_EQ(reader->next(1ms).code(), status::again);
    echo(std::move(other));
    ASSERT_EQ(send_seed(open, 50, 7), status::ok);
    {
        const auto part = reader->next(until_hung());
        ASSERT_TRUE(part) << part.error().message;
        EXPECT_TRUE(matches(part->response, 7));
    }
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_EQ(open.fail(status::overloaded, 0, "too much"), status::ok);
    const auto failed = reader->next(until_hung());
    EXPECT_EQ(failed.code(), status::overloaded);
    EXPECT_NE(failed.error().message.find("too much"), std::string::npos);
    EXPECT_EQ(client->call_parts({}, {}).code(), status::invalid_argument);
    EXPECT_EQ(client->call_parts({}, {.parts = client->slots()}).code(), status::invalid_argument);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(parts, copied_parts_are_sent_unless_the_room_is_on_a_gpu) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    const call_id call = client.send_seed(10, 1, {.parts = 1});
    exchange open = held.take();
    std::vector<std::byte> bytes(100);
    fill(bytes, 2);
    if (GetParam().scheme == "gdr") {
        EXPECT_EQ(open.send(bytes), status::unsupported);
        EXPECT_EQ(open.send(bytes, until_hung()), status::unsupported);
    } else {
        EXPECT_EQ(open.send(bytes), status::ok);
        (void)next_part(client, call, 100, 2);
    }
    EXPECT_EQ(open.reply(0), status::ok);
    (void)last(client, call, status::ok);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(parts, a_wait_for_room_ends_in_time_and_sends_nothing) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    const call_id call = client.send_seed(10, 1, {.parts = 1});
    exchange open = held.take();
    ASSERT_EQ(send_seed(open, 100, 1), status::ok);
    const std::vector<std::byte> unsent(GetParam().scheme == "gdr" ? 0 : 10);  // nothing can be copied to a GPU
    for (int i = 0; i < 3; ++i) EXPECT_EQ(open.send(unsent, 1ms), status::timed_out);
    (void)next_part(client, call, 100, 1);
    ASSERT_EQ(send_seed_soon(open, 200, 2), status::ok);
    (void)next_part(client, call, 200, 2);
    EXPECT_EQ(open.reply(0), status::ok);
    (void)last(client, call, status::ok);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(parts, a_reader_that_is_destroyed_ends_the_wait_for_room) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    std::optional<result<call_in_parts>> reader(client->call_parts({}, {.parts = 2}));
    ASSERT_TRUE(*reader) << reader->error().message;
    exchange open = held.take();
    ASSERT_EQ(send_seed(open, 100, 1), status::ok);
    ASSERT_EQ(send_seed(open, 100, 2), status::ok);
    auto sent = std::async(std::launch::async, [&] { return open.send(std::span<const std::byte>{}, until_hung()); });
    reader.reset();  // with parts that nobody has read
    EXPECT_EQ(sent.get(), status::cancelled);
    EXPECT_EQ(open.reply(0), status::ok);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(parts, a_reader_outlasts_its_channel) {
    std::optional<result<call_in_parts>> reader;
    completion part;
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    {
        auto client = r.connect();
        reader.emplace(client->call_parts({}, {.parts = 2}));
        ASSERT_TRUE(*reader) << reader->error().message;
        exchange open = held.take();
        ASSERT_EQ(send_seed(open, 100, 1), status::ok);
        auto first = (*reader)->next(until_hung());
        ASSERT_TRUE(first) << first.error().message;
        part = std::move(*first);
    }
    EXPECT_EQ((*reader)->next(until_hung()).code(), status::closed);
    EXPECT_EQ((*reader)->next(until_hung()).code(), status::invalid_state);
    EXPECT_TRUE(matches(part.response, 1));
    reader.reset();
    EXPECT_TRUE(matches(part.response, 1));
}

TEST_P(parts, a_client_that_disconnects_ends_a_blocked_sender) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    std::future<status> sent;
    std::optional<exchange> open;
    {
        auto client = r.connect();
        client.send_seed(10, 1, {.parts = 1});
        open = held.take();
        ASSERT_EQ(send_seed(*open, 100, 1), status::ok);
        sent =
            std::async(std::launch::async, [&] { return open->send(std::span<const std::byte>{}, 2 * until_hung()); });
        client.forget();
    }
    EXPECT_NE(sent.get(), status::timed_out);
    EXPECT_TRUE(eventually([&] { return open->send(std::span<const std::byte>{}, 1ms) == status::peer_lost; }));
    EXPECT_EQ(open->reply(0), status::peer_lost);
}

TEST_P(parts, a_thread_that_serves_the_client_does_not_wait_for_its_room) {
    const std::span<const std::byte> nothing;
    std::atomic<int> tried{0};
    rig r(GetParam(), [&](exchange one) {
        EXPECT_EQ(one.send(nothing, until_hung()), status::ok);
        EXPECT_EQ(one.send(nothing, until_hung()), status::again) << "in the handler";
        ++tried;
        (void)one.reply(0);
    });
    auto client = r.connect();
    const call_id call = client.send_seed(10, 1, {.parts = 1});
    (void)next_part(client, call, 0, 0);
    (void)last(client, call, status::ok);
    EXPECT_EQ(tried, 1);
}

TEST_P(parts, a_server_without_workers_serves_threads_that_wait_for_room) {
    held_exchanges held;
    server_options driven = calm_server();
    driven.workers = 0;
    rig r(GetParam(), held.keeper(), driven);
    std::atomic<bool> over{false};
    std::jthread reader([&] {
        auto client = r.connect();
        auto reading = client->call_parts({}, {.parts = 1});
        for (bool more = static_cast<bool>(reading); more;) {
            const auto part = reading->next(until_hung());
            EXPECT_TRUE(part) << part.error().message;
            more = part && part->more;
        }
        over = true;
    });
    const auto drive = [&](const auto& done) {
        return eventually([&] {
            (void)r.served().poll();
            return done();
        });
    };
    ASSERT_TRUE(drive([&] { return held.size() == 1; }));
    exchange open = held.take();
    ASSERT_EQ(send_seed(open, 10, 1), status::ok);
    EXPECT_EQ(open.send(std::span<const std::byte>{}, until_hung()), status::again) << "this thread polls";
    auto sender = std::async(std::launch::async, [&] {
        for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(send_seed_soon(open, 10, i), status::ok);
        return open.reply(0);
    });
    EXPECT_TRUE(drive([&] { return over.load(); }));
    EXPECT_EQ(sender.get(), status::ok);
}

ACCEL_INSTANTIATE(parts, all_backends);

}  // namespace
}  // namespace accel::tests
