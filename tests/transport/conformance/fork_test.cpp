// SPDX-License-Identifier: Apache-2.0
// fork(): a child can neither use nor disturb what its parent has made, and makes its own.
#include "child_process.hpp"
#include "rig.hpp"
#include "sanitizers.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

constexpr std::size_t message_bytes = 5000;

class forking : public on_every_backend {
  protected:
    void SetUp() override {
        if (thread_sanitizer || address_sanitizer)
            GTEST_SKIP() << "ThreadSanitizer starts no threads in a forked child, and AddressSanitizer "
                            "leaves its allocator locked there if a thread of the parent held it";
    }
};

// ---- what a child does; handlers have their bytes on the host there, as a GPU is its parent's

void echo_on_host(exchange one) {
    const std::size_t length = std::min(one.request().size(), one.response().size());
    std::memcpy(one.response().data(), one.request().data(), length);
    (void)one.reply(length);
}

/// Its bytes are all on the host, where no lock of a stand-in for a GPU has to be asked.
template <class Body>
auto on_host(Body body) {
    return [body = std::move(body)] {
        elsewhere = {};
        body();
    };
}

void call_in_child(channel& client, int count) {
    std::vector<std::byte> request(message_bytes);
    for (int i = 0; i < count; ++i) {
        fill(request, static_cast<std::uint64_t>(i));
        const auto answer = client.call(request);
        CHILD_EXPECT(answer.ok());
        CHILD_EXPECT(matches(answer->response, static_cast<std::uint64_t>(i)));
    }
}

/// A context, a server and a channel of the child's own, used and ended as usual.
void serve_itself(const backend_case& backend, int calls) {
    auto ctx = context::open({.log = log_level::off});
    CHILD_EXPECT(ctx.ok());
    server_options options = calm_server();
    options.memory = memory_kind::host();
    auto served = server::listen(*ctx, {without_gpu(backend.listen_uri())}, echo_on_host, options);
    if (!served) ::dprintf(STDERR_FILENO, "%s\n", served.error().message.c_str());
    CHILD_EXPECT(served.ok());
    auto client = channel::connect(*ctx, served->endpoints().at(0), calm_client());
    if (!client) ::dprintf(STDERR_FILENO, "%s\n", client.error().message.c_str());
    CHILD_EXPECT(client.ok());
    call_in_child(*client, calls);
    CHILD_EXPECT(served->statistics().sessions_lost == 0);
    client->close();
    served->stop();
}

bool says_so(const error& failure) {
    return failure.code == status::invalid_state && failure.message.find("fork()") != std::string::npos;
}

void cannot_use(channel& client, call_id begun, call_id taken) {
    CHILD_EXPECT(client.begin().code() == status::invalid_state);
    CHILD_EXPECT(client.submit(begun, 10) == status::invalid_state);
    CHILD_EXPECT(client.cancel(begun) == status::invalid_state);
    CHILD_EXPECT(client.release(begun) == status::invalid_state);
    CHILD_EXPECT(client.release(taken) == status::invalid_state);
    std::array<completion, 4> done;
    CHILD_EXPECT(client.poll(done) == 0);
    const auto start = std::chrono::steady_clock::now();
    CHILD_EXPECT(client.wait(done, 1h) == 0);
    CHILD_EXPECT(std::chrono::steady_clock::now() - start < patience(5s));
    const std::array<std::byte, 3> request{};
    const auto answer = client.call(request);
    CHILD_EXPECT(!answer.ok() && says_so(answer.error()));
    CHILD_EXPECT(client.event_fd() == -1);
    CHILD_EXPECT(client.arm());
    CHILD_EXPECT(!client.connected());
    CHILD_EXPECT(client.statistics().submitted == 0);
    client.close();
}

void cannot_use(context& ctx, const std::string& uri) {
    std::array<std::byte, 64> memory{};
    const auto allocated = ctx.allocate(4096);
    CHILD_EXPECT(!allocated.ok() && says_so(allocated.error()));
    const auto registered = ctx.register_memory(memory.data(), memory.size());
    CHILD_EXPECT(!registered.ok() && says_so(registered.error()));
    const auto client = channel::connect(ctx, uri, calm_client());
    CHILD_EXPECT(!client.ok() && says_so(client.error()));
    const auto served = server::listen(ctx, {uri}, echo_on_host, calm_server());
    CHILD_EXPECT(!served.ok() && says_so(served.error()));
    for (const scheme_report& each : ctx.schemes()) CHILD_EXPECT(!each.usable);
}

void cannot_use(server& served) {
    CHILD_EXPECT(served.poll() == 0);
    CHILD_EXPECT(served.drain(1h) == status::invalid_state);
    CHILD_EXPECT(served.statistics().sessions == 0);
    served.stop();
}

/// Calls of the parent's go on until its child has ended.
void expect_calls_until_ended(checked_channel& client, child_process& child) {
    std::uint64_t seed = 0;
    const bool ended = eventually(patience(30s), [&] {
        client.send_seed(message_bytes, ++seed);
        EXPECT_EQ(client.finish(status::ok), 1U);
        return child.ended();
    });
    EXPECT_TRUE(ended) << "the child hangs";
    for (int i = 0; i < 20; ++i) client.send_seed(message_bytes, ++seed), (void)client.finish(status::ok);
}

TEST_P(forking, child_cannot_use_or_disturb_what_its_parent_made) {
    held_exchanges held;
    std::atomic<bool> holding{true};
    rig r(GetParam(), [&](exchange one) { holding ? held.keep(std::move(one)) : echo(std::move(one)); });
    checked_channel client = r.connect();
    auto own = r.ctx().allocate(64 << 10);
    ASSERT_TRUE(own);
    // Of each kind one: begun; taken, but not released; with an answer that was not polled; held by a
    // handler.
    const auto begun = client.begin();
    ASSERT_EQ(begun.code(), status::ok);
    client.send_seed(message_bytes, 1);
    echo(held.take());
    completion taken = client.next();
    client.send_seed(message_bytes, 2);
    echo(held.take());
    client.send_seed(message_bytes, 3);
    client.send_seed(message_bytes, 4);
    std::optional<exchange> answered = held.take();
    std::optional<exchange> dropped = held.take();
    holding = false;
    checked_channel second = r.connect();

    child_process child(on_host([&] {
        cannot_use(client.raw(), begun->id, taken.id);
        cannot_use(r.ctx(), r.uri());
        cannot_use(r.served());
        CHILD_EXPECT(!own->part(0, 10).ok());
        CHILD_EXPECT(answered->reply(10) == status::invalid_state);
        answered.reset();
        dropped.reset();
        { const channel gone = std::move(client.raw()); }
        { const region gone = std::move(*own); }
        { const context gone = std::move(r.ctx()); }
        r.destroy_server();
    }));
    expect_calls_until_ended(second, child);

    EXPECT_TRUE(client->connected());
    EXPECT_EQ(r.served().statistics().sessions_lost, 0U);
    EXPECT_EQ(r.served().statistics().sessions, 2U);
    taken.release();
    EXPECT_EQ(client.release(begun->id), status::ok);
    echo(std::move(*answered));
    echo(std::move(*dropped));
    EXPECT_EQ(client.finish(status::ok), 3U);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(forking, a_child_makes_its_own_server_and_channel) {
    rig r(GetParam());
    checked_channel client = r.connect();
    client.send_seed(message_bytes, 1);
    EXPECT_EQ(client.finish(status::ok), 1U);
    child_process child(on_host([&] {
        serve_itself(GetParam(), effort(50));
        serve_itself(GetParam(), 1);
    }));
    expect_calls_until_ended(client, child);
    EXPECT_TRUE(client->connected());
    EXPECT_EQ(r.served().statistics().sessions_lost, 0U);
}

TEST_P(forking, child_of_a_handler_cannot_answer) {
    std::optional<child_process> child;
    rig r(GetParam(), [&](exchange one) {
        if (!child.has_value())
            child.emplace(on_host([&] {
                CHILD_EXPECT(one.reply(10) == status::invalid_state);
                serve_itself(GetParam(), 1);
            }));
        echo(std::move(one));
    });
    checked_channel client = r.connect();
    client.send_seed(message_bytes, 1);
    EXPECT_EQ(client.finish(status::ok), 1U);
    expect_calls_until_ended(client, *child);
    EXPECT_EQ(r.served().statistics().sessions_lost, 0U);
}

TEST_P(forking, child_reaches_its_parents_server_over_a_network_only) {
    rig r(GetParam());
    child_process child(on_host([&] {
        auto ctx = context::open({.log = log_level::off});
        CHILD_EXPECT(ctx.ok());
        auto client = channel::connect(*ctx, without_gpu(r.uri()), calm_client());
        if (!GetParam().network) {
            CHILD_EXPECT(!client.ok() && client.error().code == status::peer_lost);
            return;
        }
        CHILD_EXPECT(client.ok());
        call_in_child(*client, 10);
    }));
    EXPECT_TRUE(eventually(patience(30s), [&] { return child.ended(); })) << "the child hangs";
    EXPECT_EQ(r.served().statistics().sessions_lost, 0U);
}

TEST_P(forking, child_lends_no_memory_of_its_parent) {
    rig r(GetParam());
    auto parents = r.ctx().allocate(message_bytes);
    ASSERT_TRUE(parents);
    child_process child(on_host([&] {
        auto ctx = context::open({.log = log_level::off});
        CHILD_EXPECT(ctx.ok());
        server_options options = calm_server();
        options.memory = memory_kind::host();
        auto served = server::listen(*ctx, {without_gpu(GetParam().listen_uri())}, echo_on_host, options);
        CHILD_EXPECT(served.ok());
        auto client = channel::connect(*ctx, served->endpoints().at(0), calm_client());
        CHILD_EXPECT(client.ok());
        const auto call = client->begin();
        CHILD_EXPECT(call.ok());
        CHILD_EXPECT(client->submit(call->id, parents->whole()) == status::invalid_state);
        CHILD_EXPECT(client->submit(call->id, 10, {.response_into = parents->whole()}) == status::invalid_state);
        CHILD_EXPECT(client->release(call->id) == status::ok);
    }));
    EXPECT_TRUE(eventually(patience(30s), [&] { return child.ended(); })) << "the child hangs";
}

TEST_P(forking, channels_and_servers_end_while_a_child_lives) {
    rig r(GetParam());
    auto leaving = std::make_unique<checked_channel>(r.connect());
    checked_channel staying = r.connect();
    leaving->send_seed(message_bytes, 1);
    EXPECT_EQ(leaving->finish(status::ok), 1U);
    child_process child([] { std::this_thread::sleep_for(1h); });
    leaving.reset();
    EXPECT_TRUE(eventually(patience(5s), [&] { return r.served().statistics().sessions == 1; }));
    EXPECT_EQ(r.served().statistics().sessions_lost, 0U);
    checked_channel coming = r.connect();
    for (checked_channel* each : {&staying, &coming}) {
        each->send_seed(message_bytes, 2);
        EXPECT_EQ(each->finish(status::ok), 1U);
    }
    r.destroy_server();
    completion none;
    EXPECT_EQ(staying.wait({&none, 1}, patience(5s)), 0U);
    EXPECT_FALSE(staying->connected());
    EXPECT_FALSE(child.ended());
}

TEST_P(forking, calls_go_on_while_a_process_forks_twenty_times) {
    rig r(GetParam());
    std::atomic<bool> stop{false};
    std::vector<checked_channel> clients;
    for (int i = 0; i < 2; ++i) clients.push_back(r.connect());
    std::vector<std::thread> threads;
    for (checked_channel& client : clients) {
        threads.emplace_back([&] {
            for (std::uint64_t seed = 0; !stop; ++seed) {
                client.send_seed(message_bytes, seed);
                EXPECT_EQ(client.finish(status::ok), 1U);
            }
        });
    }
    for (int i = 0; i < 20; ++i) {
        child_process child(on_host([&] {
            CHILD_EXPECT(clients[0].begin().code() == status::invalid_state);
            { const channel gone = std::move(clients[0].raw()); }
            r.destroy_server();
            serve_itself(GetParam(), 3);
        }));
        EXPECT_TRUE(eventually(patience(30s), [&] { return child.ended(); })) << "the child hangs";
    }
    stop = true;
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(r.served().statistics().sessions_lost, 0U);
    EXPECT_EQ(r.served().statistics().sessions, 2U);
}

ACCEL_INSTANTIATE(forking, all_backends);

}  // namespace
}  // namespace accel::tests
