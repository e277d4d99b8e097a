// SPDX-License-Identifier: Apache-2.0
// What a gateway keeps of a request and its answer, and how it chooses among servers.
#include "error_output.hpp"
#include "gateway_rig.hpp"
#include "held_exchanges.hpp"
#include "payload.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

class forwarded : public ::testing::Test {
  protected:
    forwarded() : ctx_(std::move(context::open({.log = log_level::off})).value()) {}

    [[nodiscard]] server serve(handler service) { return listen(ctx_, any_uri("tcp"), std::move(service)); }
    [[nodiscard]] static std::string at(const server& one) { return client_uri(one.endpoints().at(0)); }
    [[nodiscard]] channel client(const gateway_process& of, std::uint32_t slots = 8) {
        channel_options options;
        options.slots = slots;
        options.request_bytes = options.response_bytes = 64 << 10;
        return connect(ctx_, of.uri(), options);
    }
    /// Submits `bytes` bytes of a seed.
    static call_id send(channel& to, const submit_options& options = {}, std::size_t bytes = 100) {
        const auto call = to.begin();
        EXPECT_EQ(call.code(), status::ok);
        fill(call->request.first(bytes), options.tag);
        EXPECT_EQ(to.submit(call->id, bytes, options), status::ok);
        return call->id;
    }
    static completion next(channel& of) {
        completion c;
        EXPECT_EQ(of.wait({&c, 1}, until_hung()), 1U);
        return c;
    }
    static status call(channel& to, std::uint64_t tag = 0) {
        (void)send(to, {.tag = tag});
        completion c = next(to);
        return c.status;
    }

    context ctx_;
};

TEST_F(forwarded, an_unknown_model_is_not_found_also_at_the_start) {
    server behind = listen(ctx_, any_uri("tcp"), service_table{{{"known", answer_changed}}, {}});
    gateway_process between({"--listen", any_uri("tcp"), "--to", "known=" + at(behind)});
    channel to = client(between);
    EXPECT_EQ(to.resolve("other").code(), status::not_found);
    const auto known = to.resolve("known");
    ASSERT_TRUE(known);
    (void)send(to, {.target = target{known.value().number + 1}});
    EXPECT_EQ(next(to).status, status::not_found);
    EXPECT_EQ(call(to), status::not_found) << "a request without a target";
    EXPECT_ANY_THROW(
        gateway_process({"--listen", any_uri("tcp"), "--to", "unknown=" + at(behind), "--patience", "1s"}));
}

TEST_F(forwarded, the_gateway_goes_on_after_sighup) {
    server behind = serve(answer_changed);
    const error_output said;
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(behind)});
    between.send_signal(SIGHUP);
    EXPECT_TRUE(eventually([&] { return said.count("SIGHUP: no URI has keys") == 1; })) << said.text();
    channel to = client(between);
    EXPECT_EQ(call(to), status::ok);
    EXPECT_EQ(between.stop().at("answers"), 1);
}

TEST_F(forwarded, tensors_trace_and_stages_arrive) {
    trace_context seen;
    server behind = serve([&](exchange one) {
        std::array<tensor, 4> list{};
        EXPECT_EQ(one.tensors(list)->size(), 1U);
        EXPECT_EQ(list[0].shape[0], 25U);
        EXPECT_EQ(one.trace_id(), 77U);
        seen = *one.trace();
        std::array<char, max_baggage_bytes> baggage{};
        EXPECT_EQ(*one.baggage(baggage), "a=1");
        one.record(stage::inference, 3ms);
        list[0].shape[0] = 5;
        std::memset(one.response().data(), 1, 20);
        EXPECT_EQ(one.describe(20, std::span{list}.first(1)), status::ok);
        (void)one.reply(20);
    });
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(behind)});
    channel to = client(between);
    tensor one;
    one.type = {type_code::floating, 32, 1};
    one.rank = 1;
    one.shape[0] = 25;
    const auto trace = trace_context::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    ASSERT_TRUE(trace);
    (void)send(to, {.trace_id = 77, .trace = *trace, .baggage = "a=1", .tensors = {&one, 1}});
    const completion c = next(to);
    ASSERT_EQ(c.status, status::ok) << to_string(c.status);
    std::array<tensor, 4> list{};
    EXPECT_EQ(c.tensors(list).code(), status::ok);
    EXPECT_EQ(list[0].shape[0], 5U);
    EXPECT_GE(c.timeline.inference, 3ms);
    EXPECT_EQ(c.trace_id, 77U);
    EXPECT_EQ(seen, *trace);
}

/// Beside the header, and after a payload that the gateway would lend otherwise.
TEST_F(forwarded, metadata_of_requests_and_answers_arrives) {
    std::atomic<std::size_t> heard{0};
    server behind = serve([&](exchange one) {
        metadata_room room;
        const auto got = one.metadata(room);
        heard = got ? got->size() : 0;
        EXPECT_EQ(one.request().size(), 100U) << "metadata is not part of it";
        std::memset(one.response().data(), 1, 20);
        EXPECT_EQ(got ? one.reply(20, *got) : one.reply(20), status::ok);
    });
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(behind)});
    channel to = client(between);
    for (const std::size_t bytes : {std::size_t{10}, std::size_t{3'000}, std::size_t{0}}) {
        const std::string value(bytes, 'v');
        const std::array sent{metadata_entry{"request-id", "7"}, metadata_entry{"token-bin", value}};
        const auto call = to.begin();
        ASSERT_EQ(call.code(), status::ok);
        ASSERT_EQ(to.submit(call->id, 100, {.metadata = sent}), status::ok);
        const completion c = next(to);
        ASSERT_EQ(c.status, status::ok) << to_string(c.status);
        EXPECT_EQ(heard.load(), 2U);
        EXPECT_EQ(c.response.size(), 20U);
        metadata_room room;
        const auto back = c.metadata(room);
        ASSERT_TRUE(back);
        EXPECT_TRUE(std::ranges::equal(*back, sent)) << bytes;
    }
    EXPECT_EQ(between.stop().at("answers"), 3);
}

/// At the client it fits beside the header, where the gateway also says where the response goes.
TEST_F(forwarded, metadata_of_a_request_of_full_length_arrives) {
    std::atomic<std::size_t> heard{0};
    server behind = serve([&](exchange one) {
        metadata_room room;
        const auto got = one.metadata(room);
        if (got) heard = got->front().value.size();
        EXPECT_EQ(one.reply(one.request().size()), status::ok);
    });
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(behind)});
    channel to = client(between);
    const std::string value(150, 'v');
    const std::array sent{metadata_entry{"authorization", value}};
    const auto call = to.begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(to.submit(call->id, to.max_request_bytes(), {.metadata = sent}), status::ok);
    const completion c = next(to);
    EXPECT_EQ(c.status, status::ok) << to_string(c.status);
    EXPECT_EQ(c.response.size(), to.max_request_bytes());
    EXPECT_EQ(heard.load(), value.size());
}

/// A table at the payload's head that has more tensors than there are bytes.
void write_senseless_table(std::span<std::byte> payload) {
    detail::tensor_table_head head;
    head.count = 9;
    std::memcpy(payload.data(), &head, sizeof head);
}

TEST_F(forwarded, a_request_that_cannot_be_forwarded_is_refused_and_others_go_on) {
    std::atomic<int> seen{0};
    server behind = serve([&](exchange one) {
        ++seen;
        answer_changed(std::move(one));
    });
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(behind)});
    channel to = client(between);
    for (int i = 0; i < 3; ++i) {
        const auto call = to.begin();
        ASSERT_EQ(call.code(), status::ok);
        write_senseless_table(call->request);
        ASSERT_EQ(to.submit(call->id, 100), status::ok);
        const auto expect_refusal = [&](status wanted) {
            const completion c = next(to);
            EXPECT_EQ(c.status, wanted) << to_string(c.status);
            EXPECT_FALSE(c.response.empty()) << "it has a sentence";
        };
        expect_refusal(status::protocol_error);
        (void)send(to, {.parts = 2});
        expect_refusal(status::unsupported);
        (void)send(to, {.continues = true});
        expect_refusal(status::unsupported);
        EXPECT_EQ(seen, i);
        EXPECT_EQ(this->call(to, 1), status::ok);
    }
}

TEST_F(forwarded, a_failure_reaches_the_client_with_its_code_and_text) {
    server behind = serve([](exchange one) {
        if (one.request().size() == 7) return (void)one.fail(status::application_error, 42, "the model is tired");
        write_senseless_table(one.response());
        (void)one.reply(100);
    });
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(behind)});
    channel to = client(between);
    for (int i = 0; i < 2; ++i) {
        (void)send(to, {}, 7);
        completion c = next(to);
        EXPECT_EQ(c.status, status::application_error);
        EXPECT_EQ(c.code, 42U);
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(c.response.data()), c.response.size()),
                  "the model is tired");
        c.release();
        EXPECT_EQ(call(to), status::protocol_error) << "the answer's description makes no sense";
    }
}

TEST_F(forwarded, a_deadline_is_passed_on) {
    held_exchanges held;
    server behind = serve(held.keeper());
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(behind)});
    channel to = client(between);
    with_enough_time(400ms, [&](nanoseconds timeout) {
        held.clear();
        (void)send(to, {.timeout = timeout});
        std::optional<exchange> one;
        if (held.wait_for(1, timeout)) one = held.take();
        const nanoseconds left = one ? one->time_left() : 0ns;
        EXPECT_LE(left, timeout);
        completion c;
        EXPECT_EQ(to.wait({&c, 1}, timeout + until_hung()), 1U);
        EXPECT_EQ(c.status, status::timed_out);
        c.release();
        EXPECT_TRUE(!one || eventually(until_hung(), [&] { return one->time_left() == 0ns; }));
        return left > 0ns;
    });
}

TEST_F(forwarded, a_cancel_and_a_client_that_leaves_cancel_their_calls_and_no_others) {
    held_exchanges held;
    server behind = serve(held.keeper());
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(behind)});
    std::optional<channel> leaves = client(between);
    channel stays = client(between);
    (void)send(*leaves, {.timeout = patience(60s), .tag = 1, .trace_id = 1});
    (void)send(stays, {.timeout = patience(60s), .tag = 2, .trace_id = 2});
    const call_id cancelled = send(stays, {.timeout = patience(60s), .tag = 3, .trace_id = 3});
    std::map<std::uint64_t, exchange> calls;
    for (int i = 0; i < 3; ++i) {
        exchange one = held.take();
        EXPECT_FALSE(one.cancelled());
        const std::uint64_t number = one.trace_id();
        calls.emplace(number, std::move(one));
    }
    EXPECT_EQ(stays.cancel(cancelled), status::ok);
    EXPECT_TRUE(eventually([&] { return calls.at(3).cancelled(); }));
    EXPECT_FALSE(calls.at(1).cancelled());
    leaves.reset();
    EXPECT_TRUE(eventually([&] { return calls.at(1).cancelled(); }));
    EXPECT_FALSE(calls.at(2).cancelled());
    for (auto& [number, each] : calls)
        number == 2 ? answer_changed(std::move(each)) : (void)each.fail(status::cancelled);
    EXPECT_EQ(next(stays).status, status::cancelled);
    EXPECT_EQ(next(stays).status, status::ok);
}

TEST_F(forwarded, unanswered_calls_do_not_delay_others) {
    held_exchanges held;
    server behind = serve(
        [&](exchange one) { one.request().size() == 7 ? held.keep(std::move(one)) : answer_changed(std::move(one)); });
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(behind), "--slots", "16"});
    channel slow = client(between);
    for (int i = 0; i < 8; ++i) (void)send(slow, {.timeout = patience(60s)}, 7);
    ASSERT_TRUE(held.wait_for(8));
    channel quick = client(between);
    for (std::uint64_t i = 0; i < 200; ++i) ASSERT_EQ(call(quick, i), status::ok);
    held.clear();
}

/// Two slots, and a queue of three: of eight requests, three are refused. The ninth has room in the queue, but no time.
TEST_F(forwarded, requests_without_a_slot_wait_until_their_deadline_or_the_queue_is_full) {
    held_exchanges held;
    server behind = serve(held.keeper());
    gateway_process between(
        {"--listen", any_uri("tcp"), "--to", at(behind), "--channels", "1", "--slots", "2", "--queue", "3"});
    channel to = client(between);
    for (std::uint64_t i = 0; i < 8; ++i) (void)send(to, {.timeout = patience(60s), .tag = i});
    const auto expect = [&](status wanted) {
        const completion c = next(to);
        EXPECT_EQ(c.status, wanted) << to_string(c.status);
        EXPECT_EQ(c.tag >= 5 && c.tag < 8, wanted == status::overloaded) << "the queue keeps those that came first";
        EXPECT_EQ(c.tag == 8, wanted == status::timed_out);
    };
    for (int i = 0; i < 3; ++i) expect(status::overloaded);
    for (int i = 0; i < 5; ++i) {
        answer_changed(held.take());
        expect(status::ok);
        if (i > 0) continue;
        (void)send(to, {.timeout = patience(50ms), .tag = 8});
        expect(status::timed_out);
    }
    const auto seen = between.stop();
    EXPECT_GE(seen.at("queued"), 3);
    EXPECT_EQ(seen.at("errors").at("overloaded"), 3);
}

/// How many requests each of two servers got, of 40 that one client sends one after another.
struct shares {
    std::array<std::atomic<int>, 2> of{};
    handler counter(std::size_t i) {
        return [this, i](exchange one) {
            ++of[i];
            answer_changed(std::move(one));
        };
    }
};

TEST_F(forwarded, round_robin_gives_each_server_its_share) {
    shares got;
    server first = serve(got.counter(0));
    server second = serve(got.counter(1));
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(first), "--to", at(second)});
    channel to = client(between);
    EXPECT_TRUE(eventually(patience(10s), [&] {
        EXPECT_EQ(call(to), status::ok);
        return got.of[0] > 0 && got.of[1] > 0;
    })) << "one of them was never reached";
    const int before = got.of[0];
    for (int i = 0; i < 40; ++i) ASSERT_EQ(call(to), status::ok);
    EXPECT_EQ(got.of[0] - before, 20);
}

TEST_F(forwarded, least_loaded_avoids_a_busy_server) {
    held_exchanges held;
    shares got;
    server busy = serve(held.keeper());
    server idle = serve(got.counter(1));
    gateway_process between(
        {"--listen", any_uri("tcp"), "--to", at(busy), "--to", at(idle), "--balance", "least-loaded"});
    channel to = client(between);
    // Of the first ones some may be held; then the other server has fewer.
    while (held.size() == 0) {
        (void)send(to, {.timeout = patience(60s), .tag = 99});
        EXPECT_TRUE(eventually(until_hung(), [&] {
            completion c;
            if (to.poll({&c, 1}) == 0) return held.size() > 0;
            return true;
        }));
    }
    for (std::uint64_t i = 0; i < 40; ++i) ASSERT_EQ(call(to, i), status::ok);
    EXPECT_EQ(held.size(), 1U);
    held.clear();
}

/// Servers that answer nothing yet: each gets as many as the others, and the one that has answered gets the next.
TEST_F(forwarded, least_loaded_gives_each_server_the_same_number_of_calls) {
    std::array<held_exchanges, 3> held;
    std::array<server, 3> behind{serve(held[0].keeper()), serve(held[1].keeper()), serve(held[2].keeper())};
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(behind[0]), "--to", at(behind[1]), "--to",
                             at(behind[2]), "--balance", "least-loaded"});
    channel to = client(between, 16);
    for (std::uint64_t i = 0; i < 9; ++i) (void)send(to, {.timeout = patience(60s), .tag = i});
    for (held_exchanges& each : held) EXPECT_TRUE(each.wait_for(3));
    for (int i = 0; i < 3; ++i) answer_changed(held[1].take());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(next(to).status, status::ok);
    for (std::uint64_t i = 0; i < 3; ++i) (void)send(to, {.timeout = patience(60s), .tag = i});
    EXPECT_TRUE(held[1].wait_for(3));
    for (held_exchanges& each : held) EXPECT_EQ(each.size(), 3U);
    for (held_exchanges& each : held) each.clear();
}

/// Of several clients. A request without the key stays with its session's server.
TEST_F(forwarded, sticky_keeps_a_value_of_metadata_with_its_server) {
    shares got;
    server first = serve(got.counter(0));
    server second = serve(got.counter(1));
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(first), "--to", at(second), "--balance", "sticky",
                             "--key", "metadata:user"});
    std::vector<channel> clients;
    for (int i = 0; i < 3; ++i) clients.push_back(client(between));
    const auto server_of = [&](channel& by, const std::string& user) {
        const std::array sent{metadata_entry{"other", "x"}, metadata_entry{"user", user}};
        const int before = got.of[0];
        (void)send(by, {.metadata = std::span{sent}.first(user.empty() ? 1 : 2)});
        EXPECT_EQ(next(by).status, status::ok);
        return got.of[0] > before ? 0 : 1;
    };
    std::array<int, 2> users{};
    for (int user = 0; user < 40; ++user) {
        const int at_first = server_of(clients[0], std::to_string(user));
        for (channel& each : clients) EXPECT_EQ(server_of(each, std::to_string(user)), at_first);
        ++users.at(static_cast<std::size_t>(at_first));
    }
    EXPECT_GT(users[0], 0);
    EXPECT_GT(users[1], 0);
    for (channel& each : clients) {
        const int at_first = server_of(each, "");
        for (int i = 0; i < 5; ++i) EXPECT_EQ(server_of(each, ""), at_first);
    }
}

TEST_F(forwarded, sticky_keeps_a_session_with_its_server) {
    shares got;
    server first = serve(got.counter(0));
    server second = serve(got.counter(1));
    gateway_process between({"--listen", any_uri("tcp"), "--to", at(first), "--to", at(second), "--balance", "sticky"});
    EXPECT_TRUE(eventually(until_hung(), [&] {
        channel to = client(between);
        EXPECT_EQ(call(to), status::ok);
        return got.of[0] > 0 && got.of[1] > 0;
    })) << "one of them was never reached";
    for (int session = 0; session < 8; ++session) {
        channel to = client(between);
        const int before = got.of[0];
        for (int i = 0; i < 10; ++i) ASSERT_EQ(call(to), status::ok);
        const int share = got.of[0] - before;
        EXPECT_TRUE(share == 0 || share == 10) << share;
    }
}

}  // namespace
}  // namespace accel::tests
