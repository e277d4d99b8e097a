// SPDX-License-Identifier: Apache-2.0
// Every way a handler can answer, or not.
#include "rig.hpp"

#include <array>
#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

class answers : public on_every_backend {};

std::string_view text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_P(answers, answers_may_come_in_any_order) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    for (int round = 0; round < effort(50); ++round) {
        for (std::uint64_t i = 0; i < 8; ++i) client.send_seed(100 + i, i);
        ASSERT_TRUE(held.wait_for(8));
        for (std::uint64_t i = 8; i-- > 0;) {
            echo(held.take_last());
            const completion c = client.next();
            EXPECT_EQ(c.trace_id, i);
            EXPECT_EQ(c.response.size(), 100 + i);
            EXPECT_TRUE(matches(c.response, i));
            EXPECT_EQ(client.release(c.id), status::ok);
        }
    }
}

TEST_P(answers, other_threads_may_answer) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    const auto rounds = static_cast<std::uint64_t>(effort(2000));
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 3; ++t)
        threads.emplace_back([&held, rounds] {
            for (std::uint64_t i = 0; i < rounds; ++i) echo(held.take(patience(30s)));
        });
    auto client = r.connect();
    for (std::uint64_t sent = 0, done = 0; done < 3 * rounds;) {
        while (sent < 3 * rounds && client.open_calls() < 8) client.send_seed(mix(sent) % 3000, sent), ++sent;
        const completion c = client.next();
        ASSERT_EQ(c.status, status::ok);
        ASSERT_TRUE(matches(c.response, c.trace_id));
        ASSERT_EQ(client.release(c.id), status::ok);
        ++done;
    }
    for (std::thread& t : threads) t.join();
}

TEST_P(answers, dropped_exchange_is_abandoned) {
    rig r(GetParam(), [](exchange) {});
    auto client = r.connect();
    for (std::uint64_t i = 0; i < 20; ++i) {
        client.send_seed(10, i);
        EXPECT_EQ(client.finish(status::abandoned), 1U);
    }
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(answers, an_exception_of_a_handler_is_the_answer) {
    std::atomic<int> requests{0};
    rig r(GetParam(), [&](exchange one) {
        switch (requests++ % 4) {
            case 0:
                throw std::runtime_error("no such model");
            case 1:
                throw 1;
            case 2: {
                const exchange kept = std::move(one);
                throw std::runtime_error(std::string(100'000, 'x'));
            }
            default:
                echo(std::move(one));
                throw std::runtime_error("after the answer");
        }
    });
    auto client = r.connect();
    auto other = r.connect();
    for (int i = 0; i < 40; ++i) {
        client.send_seed(100, 7);
        const completion c = client.next();
        if (i % 4 == 3) {
            EXPECT_EQ(c.status, status::ok);
            EXPECT_TRUE(matches(c.response, c.trace_id));
        } else {
            EXPECT_EQ(c.status, status::application_error);
        }
        const bool is_known = i % 4 == 0;
        EXPECT_EQ(text(c.response) == "no such model", is_known);
        const bool is_unknown = i % 4 == 1;
        EXPECT_EQ(text(c.response).find("not derived from std::exception") != std::string::npos, is_unknown);
        EXPECT_EQ(client.release(c.id), status::ok);
    }
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_TRUE(other->connected());
    EXPECT_EQ(r.served().statistics().sessions, 2U);
}

TEST_P(answers, an_exchange_dropped_by_a_caught_exception_is_abandoned) {
    rig r(GetParam(), [](exchange one) {
        try {
            const exchange dropped = std::move(one);
            throw std::runtime_error("caught");
        } catch (const std::runtime_error&) {
        }
    });
    auto client = r.connect();
    for (std::uint64_t i = 0; i < 20; ++i) {
        client.send_seed(10, i);
        EXPECT_EQ(client.finish(status::abandoned), 1U);
    }
}

TEST_P(answers, an_unknown_status_becomes_an_application_error) {
    rig r(GetParam(), [](exchange one) { (void)one.fail(static_cast<status>(500), 17, "teapot"); });
    auto client = r.connect();
    for (int i = 0; i < 3; ++i) {
        client.send_seed(10, 1);
        const completion c = client.next();
        EXPECT_EQ(c.status, status::application_error);
        EXPECT_EQ(c.code, 17U);
        EXPECT_EQ(text(c.response), "teapot");
        EXPECT_EQ(client.release(c.id), status::ok);
    }
    EXPECT_TRUE(client->connected());
}

TEST_P(answers, assigning_over_an_exchange_abandons_it) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    client.send_seed(10, 1);
    client.send_seed(10, 2);
    ASSERT_TRUE(held.wait_for(2));
    exchange first = held.take();
    first = held.take();
    const completion c = client.next();
    EXPECT_EQ(c.status, status::abandoned);
    EXPECT_EQ(c.trace_id, 1U);
    EXPECT_EQ(client.release(c.id), status::ok);
    echo(std::move(first));
    EXPECT_EQ(client.finish(status::ok), 1U);
}

TEST_P(answers, a_failure_carries_its_code_and_message) {
    rig r(GetParam(), [](exchange one) {
        EXPECT_EQ(one.fail(status::application_error, 4711, "the model is not loaded"), status::ok);
    });
    auto client = r.connect();
    client.send_seed(10, 1);
    const completion c = client.next();
    EXPECT_EQ(c.status, status::application_error);
    EXPECT_EQ(c.code, 4711U);
    EXPECT_EQ(text(c.response), "the model is not loaded");
    EXPECT_EQ(client.release(c.id), status::ok);
}

TEST_P(answers, every_typed_failure_arrives_as_itself) {
    rig r(GetParam(), [](exchange one) {
        (void)one.fail(static_cast<status>(one.trace_id()), static_cast<std::uint32_t>(one.trace_id()) + 100);
    });
    auto client = r.connect();
    for (std::uint16_t s = 1; s < status_count; ++s) {
        call_view call;
        ASSERT_EQ(client.begin(call), status::ok);
        ASSERT_EQ(client.submit(call.id, 0, {.trace_id = s}), status::ok);
        const completion c = client.next();
        EXPECT_EQ(c.status, static_cast<status>(s));
        EXPECT_EQ(c.code, s + 100U);
        EXPECT_TRUE(c.response.empty());
        EXPECT_EQ(client.release(c.id), status::ok);
    }
    EXPECT_TRUE(client->connected());
}

TEST_P(answers, a_message_longer_than_the_room_is_cut) {
    const std::string long_message(10'000, 'x');
    rig r(GetParam(), [&](exchange one) { (void)one.fail(status::application_error, 1, long_message); });
    channel_options options = calm_client();
    options.response_bytes = 16;
    auto client = r.connect(options);
    client.send({});
    const completion c = client.next();
    EXPECT_EQ(c.status, status::application_error);
    EXPECT_EQ(c.code, 1U);
    EXPECT_LE(c.response.size(), 16U);
    EXPECT_EQ(text(c.response), long_message.substr(0, c.response.size()));
    EXPECT_EQ(client.release(c.id), status::ok);
}

TEST_P(answers, too_large_leaves_the_exchange_open) {
    rig r(GetParam(), [](exchange one) {
        EXPECT_EQ(one.reply(one.response().size() + 1), status::message_too_large);
        EXPECT_EQ(one.reply(~std::size_t{0}), status::message_too_large);
        EXPECT_EQ(one.reply(1), status::ok);
    });
    auto client = r.connect();
    client.send({});
    EXPECT_EQ(client.finish(status::ok), 1U);
}

TEST_P(answers, a_reply_may_come_from_lent_memory) {
    std::atomic<std::uint32_t> leases{0};
    region memory;
    std::atomic<bool> made{false};  // ThreadSanitizer does not see that a request orders what was written before it
    std::atomic<unsigned> too_large{0};
    rig r(GetParam(), [&](exchange one) {
        ASSERT_TRUE(made);
        if (one.reply(memory.whole(), leases) == status::message_too_large) ++too_large;
        const auto length = static_cast<std::size_t>(one.trace_id());
        EXPECT_EQ(one.reply(memory.part(0, length).value(), leases), status::ok);
    });
    memory = r.ctx().allocate(128 << 10).value();
    fill(memory.whole().bytes(), 42);
    made = true;
    auto client = r.connect();
    auto target = r.ctx().allocate(64 << 10);
    ASSERT_TRUE(target);
    for (const std::size_t length : {0U, 1U, 100U, 4097U, 65535U, 65536U}) {
        for (const bool directed : {false, true}) {
            call_view call;
            ASSERT_EQ(client.begin(call), status::ok);
            ASSERT_EQ(
                client.submit(call.id, 0, {.trace_id = length, .response_into = directed ? target->whole() : slice{}}),
                status::ok);
            const completion c = client.next();
            ASSERT_EQ(c.status, status::ok);
            ASSERT_EQ(c.response.size(), length);
            ASSERT_TRUE(matches(c.response, 42));
            if (directed && length > 0) {
                ASSERT_EQ(c.response.data(), target->whole().data()) << "its client wants it there";
            }
            ASSERT_EQ(client.release(c.id), status::ok);
        }
    }
    EXPECT_EQ(too_large, 12U);
    EXPECT_TRUE(eventually(patience(5s), [&] { return leases == 0; })) << leases << " leases were not given back";
}

TEST_P(answers, leases_end_when_the_client_is_gone) {
    std::atomic<std::uint32_t> leases{0};
    held_exchanges held;
    region memory;
    rig r(GetParam(), held.keeper());
    memory = r.ctx().allocate(1 << 20).value();
    {
        channel_options options = calm_client();
        options.response_bytes = 1 << 20;
        auto client = r.connect(options);
        for (std::uint64_t i = 0; i < 8; ++i) client.send_seed(10, i);
        ASSERT_TRUE(held.wait_for(8));
        for (int i = 0; i < 6; ++i) EXPECT_EQ(held.take().reply(memory.whole(), leases), status::ok);
        client.forget();
    }
    EXPECT_TRUE(eventually(patience(5s), [&] { return r.served().statistics().sessions == 0; }));
    EXPECT_EQ(held.take().reply(memory.whole(), leases), status::peer_lost);
    EXPECT_TRUE(eventually(patience(5s), [&] { return leases == 0; })) << leases << " leases were not given back";
}

TEST_P(answers, leases_of_answers_that_were_read_end_with_their_channel) {
    std::atomic<std::uint32_t> leases{0};
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    const region memory = r.ctx().allocate(64 << 10).value();
    {
        auto client = r.connect();
        for (std::uint64_t i = 0; i < 3; ++i) client.send_seed(10, i);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(held.take().reply(memory.whole(), leases), status::ok);
        for (int i = 0; i < 2; ++i) EXPECT_EQ(client.next().status, status::ok);  // the third is unread
        client.forget();
    }
    EXPECT_TRUE(eventually([&] { return leases == 0; })) << leases << " leases were not given back";
}

TEST_P(answers, leases_of_answers_to_a_stopped_server_end) {
    std::atomic<std::uint32_t> leases{0};
    held_exchanges held;
    server_options options = calm_server();
    options.drain_timeout = 1ms;
    rig r(GetParam(), held.keeper(), options);
    const region memory = r.ctx().allocate(64 << 10).value();
    auto client = r.connect();
    for (std::uint64_t i = 0; i < 3; ++i) client.send_seed(10, i);
    ASSERT_TRUE(held.wait_for(3));
    r.served().stop();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(held.take().reply(memory.whole(), leases), status::peer_lost);
    EXPECT_TRUE(eventually([&] { return leases == 0; })) << leases << " leases were not given back";
    client.forget();
}

/// Over `local` the client reads the lent memory itself: as long as it likes, also while it calls the next server.
TEST_P(answers, lent_answers_outlive_their_server_until_they_are_released) {
    std::atomic<std::uint32_t> leases{0};
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    const region memory = r.ctx().allocate(64 << 10).value();
    fill(memory.whole().bytes(), 42);
    const bool in_place = GetParam().scheme == "local";
    const auto expect_leases = [&](std::uint32_t wanted) {
        EXPECT_TRUE(eventually([&] { return leases == (in_place ? wanted : 0); })) << leases << ", not " << wanted;
    };
    std::optional<server> next;
    channel_options options = calm_client();
    options.reconnect = true;
    options.backoff_min = options.backoff_max = 1ms;
    {
        auto client = r.connect(options);
        for (std::uint64_t i = 0; i < 3; ++i) client.send_seed(10, i);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(held.take().reply(memory.whole(), leases), status::ok);
        std::array<completion, 3> got{client.next()};
        r.destroy_server();
        for (std::size_t i = 1; i < 3; ++i) got[i] = client.next();
        for (const completion& each : got) {
            EXPECT_TRUE(each.status == status::ok || (!in_place && each.status == status::peer_lost));
            EXPECT_TRUE(each.status != status::ok || matches(each.response, 42));
        }
        expect_leases(3);
        EXPECT_EQ(client.release(got[0].id), status::ok);
        expect_leases(2);
        next.emplace(server::listen(r.ctx(), {r.uri()}, echo, calm_server()).value());
        EXPECT_TRUE(eventually([&] { return client.poll({}) == 0 && client->connected(); }));
        EXPECT_TRUE(got[1].status != status::ok || matches(got[1].response, 42));
        EXPECT_EQ(client.release(got[1].id), status::ok);
        expect_leases(1);
    }
    EXPECT_EQ(leases, 0U);
}

TEST_P(answers, an_exchange_knows_its_call_session_and_scheme) {
    std::atomic<std::uint64_t> session{0};
    rig r(GetParam(), [&](exchange one) {
        EXPECT_EQ(one.scheme(), GetParam().scheme);
        EXPECT_EQ(one.trace_id(), 0xfedcba9876543210U);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one.request().data()) % 8, 0U);
        session = one.session_id();
        (void)one.reply(0);
    });
    std::array<std::uint64_t, 2> ids{};
    auto first = r.connect();
    auto second = r.connect();
    first.send({}, {.trace_id = 0xfedcba9876543210U});
    EXPECT_EQ(first.finish(status::ok), 1U);
    ids[0] = session;
    second.send({}, {.trace_id = 0xfedcba9876543210U});
    EXPECT_EQ(second.finish(status::ok), 1U);
    ids[1] = session;
    EXPECT_NE(ids[0], ids[1]);
}

TEST_P(answers, answering_twice_ends_the_process) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            held_exchanges held;
            rig r(GetParam(), held.keeper());
            auto client = r.connect();
            client.send({});
            exchange one = held.take();
            (void)one.reply(0);
            (void)one.reply(0);
        },
        "exchange");
}

ACCEL_INSTANTIATE(answers, all_backends);

}  // namespace
}  // namespace accel::tests
