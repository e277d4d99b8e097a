// SPDX-License-Identifier: Apache-2.0
// Requests in parts: in order, each in a slot of its own until the handler releases it, beside a response in parts too.
#include "rig.hpp"

#include <accel_transport/coro.hpp>

#include <atomic>
#include <future>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace accel::tests {
namespace {

/// Notes that it was called.
struct noted_part : exchange::part_waiter {
    noted_part() : part_waiter{[](part_waiter& self) noexcept { ++static_cast<noted_part&>(self).calls; }} {}
    [[nodiscard]] bool called(int count) const {
        return eventually(patience(5s), [&] { return calls == count; });
    }
    std::atomic<int> calls{0};
};

class request_parts : public on_every_backend {
  protected:
    /// Sends what follows from `seed` as a part, once there is a slot.
    static status send_seed(call_in_parts& to, std::size_t length, std::uint64_t seed) {
        const std::span<std::byte> room = to.part(until_hung());
        if (length <= room.size()) fill(room.first(length), seed);
        return to.send(length);
    }
    static call_in_parts begin(checked_channel& client, submit_options options = {}) {
        options.continues = true;
        std::vector<std::byte> first(10);
        fill(first, 0);
        auto made = client->call_parts(first, options);
        // Slots of the last call may be on their way back.
        (void)eventually(until_hung(), [&] {
            if (made.code() != status::again) return true;
            completion none;
            EXPECT_EQ(client.poll({&none, 1}), 0U);
            made = client->call_parts(first, options);
            return made.code() != status::again;
        });
        if (!made) throw std::runtime_error(made.error().message);
        return std::move(*made);
    }
    /// Sends parts as long as there are slots; how many.
    static std::uint64_t send_all(checked_channel& client, call_id call, std::size_t length) {
        std::uint64_t sent = 0;
        for (auto part = client->begin_part(call); part; part = client->begin_part(call), ++sent) {
            fill(part->request.first(length), sent);
            EXPECT_EQ(client->submit_part(part->id, length), status::ok);
        }
        return sent;
    }
    static channel_options few_slots(std::uint32_t slots) {
        channel_options options = calm_client();
        options.slots = slots;
        return options;
    }
    static void expect_end(call_in_parts& of, status expected) {
        const auto end = of.next(until_hung());
        EXPECT_EQ(end.code(), expected);
        EXPECT_EQ(of.next(1ms).code(), status::invalid_state);
    }
};

TEST_P(request_parts, parts_arrive_in_order_and_their_slots_come_back) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    const auto count = static_cast<std::uint64_t>(effort(300));
    for (const std::uint32_t slots : {2U, 5U, 64U}) {
        auto client = r.connect(few_slots(slots));
        std::jthread handling([&] {
            exchange open = held.take();
            EXPECT_TRUE(open.continues());
            EXPECT_FALSE(open.in_parts());
            EXPECT_TRUE(matches(open.request(), 0));
            std::uint64_t number = 0;
            for (bool more = true; more; ++number) {
                const request_part part = open.receive(until_hung());
                ASSERT_TRUE(part) << to_string(part.status());
                EXPECT_EQ(part.bytes().size(), number % 700);
                EXPECT_TRUE(matches(part.bytes(), number)) << number;
                more = !part.last();
                EXPECT_EQ(open.continues(), more);
            }
            EXPECT_EQ(number, count);
            EXPECT_EQ(open.receive(until_hung()).status(), status::invalid_state) << "there are no more";
            EXPECT_EQ(open.reply(0), status::ok);
        });
        call_in_parts upload = begin(client);
        for (std::uint64_t i = 0; i + 1 < count; ++i) ASSERT_EQ(send_seed(upload, i % 700, i), status::ok) << i;
        std::vector<std::byte> last((count - 1) % 700);
        fill(last, count - 1);
        EXPECT_EQ(upload.finish(last, until_hung()), status::ok);
        EXPECT_EQ(upload.send(last, until_hung()), status::invalid_state) << "the last was sent";
        EXPECT_EQ(upload.finish(1ms), status::invalid_state);
        expect_end(upload, status::ok);
        EXPECT_EQ(upload.send(last, until_hung()), status::invalid_state) << "the call has ended";
        EXPECT_TRUE(client.all_slots_free());
        EXPECT_EQ(client->statistics().stale, 0U);
    }
}

TEST_P(request_parts, call_begins_only_if_a_slot_is_left_for_a_part) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect(few_slots(2));
    const auto first = client.begin();
    const auto second = client.begin();
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(client.submit(first->id, 1, {.continues = true}), status::again);
    EXPECT_EQ(client.release(second->id), status::ok);
    EXPECT_EQ(client.submit(first->id, 1, {.continues = true}), status::ok);
    exchange open = held.take();
    const auto part = client->begin_part(first->id);
    ASSERT_TRUE(part);
    EXPECT_EQ(client->submit_part(part->id, 1, {.last = true}), status::ok);
    EXPECT_TRUE(open.receive(until_hung()));
    EXPECT_EQ(open.reply(0), status::ok);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, handler_that_knows_of_no_parts_answers_no_piece) {
    region lent;
    std::atomic<std::uint32_t> leases{0};
    rig r(GetParam(), [&](exchange one) {
        if (one.request().size() == 1)
            (void)one.reply(10);
        else if (one.request().size() == 2)
            (void)one.reply(lent.part(0, 10).value(), leases);
        else
            (void)one.fail(status::application_error, 5, "its own");
    });
    lent = r.ctx().allocate(4'096).value();
    auto client = r.connect();
    for (const std::size_t length : {1U, 2U, 3U}) {
        const call_id call = client.send_seed(length, 1, {.continues = true});
        const completion c = client.next();
        EXPECT_EQ(c.call, call);
        EXPECT_EQ(c.status, length < 3 ? status::unsupported : status::application_error);
        const std::string_view text(reinterpret_cast<const char*>(c.response.data()), c.response.size());
        EXPECT_EQ(text, length < 3 ? "this handler takes no requests in parts" : "its own");
    }
    EXPECT_TRUE(eventually([&] { return leases == 0; }));
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, blocking_wait_beside_another_waiter_ends) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    call_in_parts upload = begin(client, {.parts = 1});
    exchange open = held.take();
    noted_part waiter;
    noted_part room_waiter;
    ASSERT_FALSE(open.await_request_part(waiter));
    EXPECT_EQ(open.receive(until_hung()).status(), status::again) << "at once";
    fill(open.part().first(10), 1);
    EXPECT_EQ(open.send(std::size_t{10}), status::ok);
    ASSERT_FALSE(open.await_part(room_waiter));
    EXPECT_TRUE(open.part(until_hung()).empty()) << "at once";
    EXPECT_EQ(waiter.calls, 0);
    EXPECT_EQ(send_seed(upload, 100, 1), status::ok);
    EXPECT_TRUE(waiter.called(1));
    EXPECT_TRUE(open.receive());
    EXPECT_EQ(open.reply(0), status::ok);
    while (upload.next(until_hung()).ok()) continue;
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, session_whose_slots_a_handler_keeps_is_replaced) {
    std::vector<request_part> kept;
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    channel_options options = few_slots(2);
    options.reconnect = true;
    options.quarantine_timeout = 1ms;
    auto client = r.connect(options);
    {
        call_in_parts upload = begin(client);
        exchange open = held.take();
        EXPECT_EQ(send_seed(upload, 100, 1), status::ok);
        kept.push_back(open.receive(until_hung()));
        EXPECT_TRUE(kept.back());
        EXPECT_EQ(open.reply(0), status::ok);
        expect_end(upload, status::ok);
    }
    // One slot is free, which a call with parts does not get on with.
    EXPECT_TRUE(eventually(until_hung(), [&] {
        completion none;
        (void)client.poll({&none, 1});
        const auto call = client.begin();
        if (!call) return false;
        const status sent = client.submit(call->id, 1, {.continues = true});
        if (sent != status::ok) (void)client.release(call->id);
        return sent == status::ok;
    })) << "the server keeps a slot";
    EXPECT_EQ(client->statistics().reconnects, 1U);
    exchange open = held.take();
    EXPECT_EQ(open.fail(status::application_error), status::ok);
    EXPECT_EQ(client.finish(status::application_error), 1U);
    kept.clear();
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, short_parts_do_not_overtake_long_parts) {
    constexpr std::size_t longest = 1 << 20;
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    channel_options options = few_slots(16);
    options.request_bytes = longest;
    auto client = r.connect(options);
    for (int round = 0; round < effort(5); ++round) {
        std::jthread handling([&] {
            exchange open = held.take();
            for (std::uint64_t i = 0; i < 6; ++i) {
                const request_part part = open.receive(until_hung());
                ASSERT_TRUE(part) << to_string(part.status());
                EXPECT_EQ(part.bytes().size(), i % 2 == 0 ? longest - i : i);
                EXPECT_TRUE(matches(part.bytes(), i)) << i;
                EXPECT_FALSE(part.last());
            }
            EXPECT_TRUE(open.receive(until_hung()).last());
            EXPECT_EQ(open.reply(0), status::ok);
        });
        call_in_parts upload = begin(client);
        for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(send_seed(upload, i % 2 == 0 ? longest - i : i, i), status::ok);
        EXPECT_EQ(upload.finish(until_hung()), status::ok);
        expect_end(upload, status::ok);
        ASSERT_TRUE(client.all_slots_free());
    }
}

TEST_P(request_parts, both_directions_go_at_once) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect(few_slots(6));
    const auto count = static_cast<std::uint64_t>(effort(200));
    std::jthread handling([&] {
        exchange open = held.take();
        EXPECT_TRUE(open.continues() && open.in_parts());
        while (const request_part part = open.receive(until_hung())) {
            const std::span<std::byte> room = open.part(until_hung());
            ASSERT_GE(room.size(), part.bytes().size());
            copy(room.first(part.bytes().size()), part.bytes());
            ASSERT_EQ(open.send(part.bytes().size()), status::ok);
        }
        EXPECT_EQ(open.reply(0), status::ok);
    });
    call_in_parts echo = begin(client, {.parts = 2});
    for (std::uint64_t i = 0; i < count; ++i) {
        if (i + 1 < count) {
            ASSERT_EQ(send_seed(echo, i % 500, i), status::ok);
        } else {
            ASSERT_EQ(echo.finish(until_hung()), status::ok);
        }
        if (i < 2) continue;  // two are on their way
        const auto part = echo.next(until_hung());
        ASSERT_TRUE(part) << part.error().message;
        EXPECT_EQ(part->response.size(), (i - 2) % 500);
        EXPECT_TRUE(matches(part->response, i - 2));
    }
    for (bool more = true; more;) {
        const auto part = echo.next(until_hung());
        ASSERT_TRUE(part) << part.error().message;
        more = part->more;
    }
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, a_part_stays_until_its_release_also_after_the_answer) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect(few_slots(4));
    const call_id call = client.send_seed(10, 1, {.continues = true});
    exchange open = held.take();
    EXPECT_EQ(open.receive().status(), status::again);
    ASSERT_EQ(send_all(client, call, 300), 3U) << "the call has a slot of four";
    std::vector<request_part> parts;
    for (std::uint64_t i = 0; i < 3; ++i) {
        parts.push_back(open.receive(until_hung()));
        ASSERT_TRUE(parts.back());
        EXPECT_EQ(parts.back().status(), status::ok);
    }
    EXPECT_EQ(client->begin_part(call).code(), status::again);
    parts[1].release();
    EXPECT_FALSE(parts[1]);
    EXPECT_TRUE(parts[1].bytes().empty());
    ASSERT_TRUE(client.slot_comes_back());
    ASSERT_EQ(send_all(client, call, 300), 1U);
    EXPECT_TRUE(matches(parts[0].bytes(), 0));
    EXPECT_TRUE(matches(parts[2].bytes(), 2));
    EXPECT_EQ(open.reply(0), status::ok);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_TRUE(matches(parts[0].bytes(), 0));
    parts[0] = std::move(parts[2]);
    EXPECT_TRUE(matches(parts[0].bytes(), 2));
    parts.clear();
    EXPECT_TRUE(client.all_slots_free()) << "the part that nobody took is given back, too";
    client.send_seed(10, 1);
    echo(held.take());
    EXPECT_EQ(client.finish(status::ok), 1U);
}

TEST_P(request_parts, an_early_answer_ends_the_request) {
    rig r(GetParam(), [](exchange one) {
        EXPECT_TRUE(one.continues());
        one.fail(status::overloaded, 0, "too much");
    });
    auto client = r.connect(few_slots(3));
    for (int round = 0; round < effort(50); ++round) {
        call_in_parts upload = begin(client);
        const std::vector<std::byte> bytes(100);
        status sent = status::ok;
        while (sent == status::ok) sent = upload.send(bytes, until_hung());
        EXPECT_EQ(sent, status::invalid_state);
        EXPECT_EQ(upload.finish(until_hung()), status::invalid_state);
        EXPECT_NE(client->last_error().find("ended"), std::string_view::npos);
        const auto end = upload.next(until_hung());
        EXPECT_EQ(end.code(), status::overloaded);
        EXPECT_NE(end.error().message.find("too much"), std::string::npos);
    }
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, a_cancelled_call_gives_all_slots_back) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect(few_slots(8));
    std::optional<call_in_parts> upload(begin(client));
    exchange open = held.take();
    for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(send_seed(*upload, 50, i), status::ok);
    std::optional<request_part> kept(open.receive(until_hung()));
    ASSERT_TRUE(*kept);
    (void)upload->part(until_hung());  // and does not send it
    upload.reset();
    EXPECT_TRUE(eventually([&] { return open.cancelled(); }));
    EXPECT_EQ(open.receive(until_hung()).status(), status::cancelled);
    EXPECT_TRUE(matches(kept->bytes(), 0));
    EXPECT_EQ(open.reply(0), status::ok);
    kept.reset();
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, a_wait_for_a_part_ends_with_its_call) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    std::optional<call_in_parts> upload(begin(client));
    exchange open = held.take();
    EXPECT_EQ(open.receive(1ms).status(), status::timed_out);
    auto received = std::async(std::launch::async, [&] { return open.receive(until_hung()).status(); });
    upload.reset();
    EXPECT_EQ(received.get(), status::cancelled);
    EXPECT_EQ(open.reply(0), status::ok);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, a_deadline_ends_the_request) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    const call_id call = client.send_seed(10, 1, {.timeout = patience(200ms), .continues = true});
    if (reaches_its_handler(r, held)) {
        exchange open = held.take();
        (void)send_all(client, call, 10);
        EXPECT_EQ(client.finish(status::timed_out), 1U);
        request_part part = open.receive();
        while (part) part = open.receive(until_hung());
        EXPECT_EQ(part.status(), status::cancelled);
        EXPECT_EQ(client->begin_part(call).code(), status::invalid_state);
        EXPECT_EQ(open.reply(0), status::ok);
    } else {
        EXPECT_EQ(client.finish(status::timed_out), 1U);
    }
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, a_client_that_leaves_ends_the_wait) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    std::optional<exchange> open;
    request_part part;
    noted_part waiter;
    {
        auto client = r.connect();
        const call_id call = client.send_seed(10, 1, {.continues = true});
        open = held.take();
        const auto first = client->begin_part(call);
        ASSERT_TRUE(first);
        fill(first->request.first(400), 7);
        ASSERT_EQ(client->submit_part(first->id, 400), status::ok);
        part = open->receive(until_hung());
        ASSERT_TRUE(part);
        EXPECT_FALSE(open->await_request_part(waiter));
        client.forget();
    }
    EXPECT_TRUE(waiter.called(1));
    EXPECT_TRUE(eventually([&] { return open->receive(1ms).status() == status::peer_lost; }));
    EXPECT_TRUE(matches(part.bytes(), 7));
    EXPECT_EQ(open->reply(0), status::peer_lost);
    open.reset();
    EXPECT_TRUE(matches(part.bytes(), 7)) << "until its release";
    EXPECT_TRUE(eventually([&] { return r.served().statistics().sessions == 0; }));
    part.release();
    EXPECT_TRUE(eventually([&] { return r.served().statistics().memory_bytes == 0; }));
}

TEST_P(request_parts, a_client_that_leaves_during_an_upload_is_not_counted_as_hostile) {
    std::atomic<int> complaints{0};
    const auto note = [&](log_level, std::string_view line) {
        complaints += line.find("no correct client sends") != std::string_view::npos;
    };
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    {
        const context logging = context::open({.log = log_level::warning, .log_sink = note}).value();
        for (int round = 0; round < effort(24); ++round) {
            std::optional<exchange> open;
            std::vector<request_part> taken;
            {
                auto client = r.connect(few_slots(8));
                const call_id call = client.send_seed(10, 1, {.continues = true});
                if (round % 2 == 0) open = held.take();
                EXPECT_EQ(send_all(client, call, 100), 7U);
                for (int i = 0; open && i < round % 4; ++i) taken.push_back(open->receive(until_hung()));
                if (round % 3 == 0) {
                    EXPECT_EQ(client->cancel(call), status::ok);
                }
                client.forget();
            }
            ASSERT_TRUE(eventually([&] { return r.served().statistics().sessions == 0; }));
            if (open) {
                EXPECT_EQ(open->reply(0), status::peer_lost);
            }
            held.clear();
        }
    }
    EXPECT_EQ(complaints, 0);
}

TEST_P(request_parts, a_part_outlasts_its_server) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    request_part part;
    {
        auto client = r.connect();
        const call_id call = client.send_seed(10, 1, {.continues = true});
        exchange open = held.take();
        EXPECT_EQ(client->submit_part(client->begin_part(call)->id, 0), status::ok);
        part = open.receive(until_hung());
        EXPECT_TRUE(part);
        EXPECT_EQ(open.reply(0), status::ok);
        EXPECT_EQ(client.finish(status::ok), 1U);
    }
    r.destroy_server();
    part.release();
}

TEST_P(request_parts, a_refused_call_gives_all_slots_back) {
    rig r(GetParam());
    ASSERT_TRUE(r.served().add_target("one", echo));
    auto client = r.connect(few_slots(8));
    const auto to = client->resolve("one");
    ASSERT_TRUE(to) << to.error().message;
    ASSERT_TRUE(r.served().remove_target("one"));
    for (int round = 0; round < effort(20); ++round) {
        const call_id call = client.send_seed(10, 1, {.target = *to, .continues = true});
        (void)send_all(client, call, 10);
        EXPECT_EQ(client.finish(status::not_found), 1U);
        ASSERT_TRUE(client.all_slots_free());
    }
}

TEST_P(request_parts, a_waiter_is_called_for_the_next_part) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    call_in_parts upload = begin(client);
    exchange open = held.take();
    noted_part waiter;
    ASSERT_FALSE(open.await_request_part(waiter));
    ASSERT_EQ(send_seed(upload, 20, 1), status::ok);
    EXPECT_TRUE(waiter.called(1));
    EXPECT_TRUE(open.await_request_part(waiter)) << "it is there";
    EXPECT_TRUE(matches(open.receive().bytes(), 1));
    EXPECT_EQ(upload.finish(until_hung()), status::ok);
    EXPECT_TRUE(open.receive(until_hung()).last());
    EXPECT_TRUE(open.await_request_part(waiter)) << "nothing will come";
    EXPECT_EQ(open.reply(0), status::ok);
    EXPECT_EQ(waiter.calls, 1);
}

coro::detached await_parts(exchange open, coro::gate& gate, std::uint64_t& count, bool& ended) {
    for (bool more = true; more; ++count) {
        const request_part part = co_await coro::next_request_part(open, gate);
        EXPECT_TRUE(part) << to_string(part.status());
        EXPECT_TRUE(matches(part.bytes(), count)) << count;
        more = part && !part.last();
    }
    EXPECT_EQ((co_await coro::next_request_part(open, gate)).status(), status::invalid_state);
    EXPECT_EQ(open.reply(0), status::ok);
    ended = true;
}

TEST_P(request_parts, a_coroutine_awaits_each_part) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect(few_slots(3));
    const auto count = static_cast<std::uint64_t>(effort(1'000));
    call_in_parts upload = begin(client);
    std::jthread handling([&] {
        coro::gate gate{[] {}};
        std::uint64_t taken = 0;
        bool ended = false;
        await_parts(held.take(), gate, taken, ended);
        const auto run = [&] {
            (void)gate.run();
            return ended;
        };
        EXPECT_TRUE(within(until_hung(), run, 50us));
        EXPECT_EQ(taken, count);
    });
    for (std::uint64_t i = 0; i + 1 < count; ++i) ASSERT_EQ(send_seed(upload, i % 700, i), status::ok) << i;
    std::vector<std::byte> last(100);
    fill(last, count - 1);
    EXPECT_EQ(upload.finish(last, until_hung()), status::ok);
    expect_end(upload, status::ok);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, a_whole_request_has_no_further_part) {
    rig r(GetParam(), [](exchange one) {
        EXPECT_FALSE(one.continues());
        EXPECT_EQ(one.receive().status(), status::invalid_state);
        EXPECT_EQ(one.receive(until_hung()).status(), status::invalid_state);
        noted_part waiter;
        EXPECT_TRUE(one.await_request_part(waiter));
        echo(std::move(one));
    });
    auto client = r.connect(few_slots(3));
    const call_id call = client.send_seed(10, 1);
    EXPECT_EQ(client->begin_part(call).code(), status::invalid_state);
    EXPECT_EQ(client.finish(status::ok), 1U);

    EXPECT_EQ(client->call({}, {.continues = true}).code(), status::invalid_argument);
    EXPECT_EQ(client->call_parts({}, {.continues = true, .parts = 2}).code(), status::invalid_argument);
    const auto begun = client.begin();
    ASSERT_EQ(begun.code(), status::ok);
    EXPECT_EQ(client.submit(begun->id, 1, {.continues = true, .parts = 2}), status::invalid_argument)
        << "no slot is left for a part";
    EXPECT_EQ(client->submit_part(begun->id, 1), status::invalid_state) << "it was begun as a call";
    EXPECT_EQ(client->begin_part(begun->id).code(), status::invalid_state) << "it was not submitted";
    EXPECT_EQ(client.release(begun->id), status::ok);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, what_was_begun_for_a_part_is_no_call) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect(few_slots(4));
    const call_id call = client.send_seed(10, 1, {.continues = true});
    exchange open = held.take();
    EXPECT_TRUE(open.continues());
    const auto part = client->begin_part(call);
    ASSERT_TRUE(part);
    EXPECT_EQ(client->submit(part->id, 1), status::invalid_state);
    EXPECT_EQ(client->cancel(part->id), status::invalid_state);
    EXPECT_EQ(client->submit_part(part->id, part->request.size() + 1), status::message_too_large);
    EXPECT_EQ(open.reply(0), status::ok);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_EQ(client->submit_part(part->id, 1), status::invalid_state) << "the call has ended";
    EXPECT_EQ(client.release(part->id), status::ok);
    EXPECT_EQ(client.release(part->id), status::invalid_state);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, the_first_piece_may_be_lent) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    const region memory = r.ctx().allocate(5'000).value();
    fill(memory.whole().bytes(), 5);
    const auto begun = client.begin();
    ASSERT_EQ(begun.code(), status::ok);
    ASSERT_EQ(client.submit(begun->id, memory.whole(), {.continues = true}), status::ok);
    ASSERT_GT(send_all(client, begun->id, 30), 0U);
    exchange open = held.take();
    EXPECT_TRUE(matches(open.request(), 5));
    EXPECT_TRUE(matches(open.receive(until_hung()).bytes(), 0));
    EXPECT_EQ(open.reply(0), status::ok);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(request_parts, a_draining_server_takes_the_rest_of_a_request) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    call_in_parts upload = begin(client);
    exchange open = held.take();
    EXPECT_EQ(r.served().drain(1ms), status::timed_out);
    EXPECT_TRUE(eventually([&] {
        completion none;
        (void)client.poll({&none, 1});
        return !client->connected();
    })) << "no other call can be begun";
    ASSERT_EQ(send_seed(upload, 100, 3), status::ok);
    EXPECT_EQ(upload.finish(until_hung()), status::ok);
    EXPECT_TRUE(matches(open.receive(until_hung()).bytes(), 3));
    EXPECT_TRUE(open.receive(until_hung()).last());
    EXPECT_EQ(open.reply(0), status::ok);
    expect_end(upload, status::ok);
    EXPECT_EQ(r.served().drain(until_hung()), status::ok);
}

TEST_P(request_parts, a_thread_that_serves_the_client_does_not_wait_for_its_parts) {
    std::atomic<int> tried{0};
    rig r(GetParam(), [&](exchange one) {
        EXPECT_EQ(one.receive(until_hung()).status(), status::again) << "in the handler";
        ++tried;
        (void)one.reply(0);
    });
    auto client = r.connect();
    client.send_seed(10, 1, {.continues = true});
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_EQ(tried, 1);
}

ACCEL_INSTANTIATE(request_parts, all_backends);

}  // namespace
}  // namespace accel::tests
