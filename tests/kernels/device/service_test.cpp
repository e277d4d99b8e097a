// SPDX-License-Identifier: Apache-2.0
// A GPU-resident service, with threads of the host in its kernels' place: what needs several threads, stops and
// refusals. What becomes of single requests is in service_sequences_test.cpp. `fake`: slots in the memory of a stand-in
// for a GPU, with headers and payloads written apart; `host`: all of it the host's. `direct`: kernels drive the
// device's queues; `proxy`: the library's thread posts for them. `owned`: sessions have one owner each.
#include "conformance/payload.hpp"
#include "device/calls.hpp"
#include "device/service_rig.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace accel::tests {
namespace {

class device_service : public ::testing::TestWithParam<service_setting> {
  protected:
    void SetUp() override {
        if (!has(GetParam().engine)) GTEST_SKIP() << "this device has no queues to drive";
    }
    static call_id submit(channel& through, std::size_t bytes, nanoseconds timeout = {}) {
        const auto call = through.begin();
        EXPECT_EQ(call.code(), status::ok);
        EXPECT_EQ(through.submit(call->id, bytes, {.timeout = timeout}), status::ok);
        return call->id;
    }
    [[nodiscard]] static completion next(channel& from) {
        completion out;
        EXPECT_EQ(from.wait({&out, 1}, until_hung()), 1U);
        return out;
    }
};
class shared_device_service : public device_service {};
class owned_device_service : public device_service {};

TEST_P(device_service, serves_many_sessions_with_many_threads) {
    service_rig rig(GetParam());
    rig.listen();
    rig.serve(echo, 3);
    const auto calls = static_cast<std::uint64_t>(effort(2000));
    constexpr int clients = 7;
    std::atomic<std::uint64_t> right{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < clients; ++i) {
        threads.emplace_back([&, i] {
            channel client = rig.connect();
            right.fetch_add(run_calls(client, calls, static_cast<std::uint64_t>(i) * 1'000'003));
        });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(right.load(), calls * clients);
    EXPECT_TRUE(eventually([&] { return rig.service->statistics().sessions == 0; }));
    rig.stop();
    EXPECT_EQ(rig.service->statistics().replies, calls * clients);
}

TEST_P(device_service, a_late_request_is_not_handed_over) {
    service_rig rig(GetParam());
    rig.listen();
    std::atomic<int> served{0};
    rig.serve([&](const taken_request& request) {
        ++served;
        echo(request);
    });
    channel client = rig.connect();
    // The kernel does not know the host's clock at first.
    std::uint64_t late = 0;
    EXPECT_TRUE(eventually([&] {
        const auto call = client.begin();
        if (!call) {
            (void)client.poll({});  // the late answers of all slots are on their way
            return false;
        }
        EXPECT_EQ(client.submit(call->id, 10, {.timeout = 1ns}), status::ok);
        ++late;
        const status ended = next(client).status;  // `ok`: the answer was there before the client looked at its clock
        EXPECT_TRUE(ended == status::timed_out || ended == status::ok) << to_string(ended);
        return rig.service->statistics().expired > 0;
    }));
    EXPECT_EQ(run_calls(client, 10, 3), 10U);
    rig.stop();
    const auto seen = rig.service->statistics();
    EXPECT_EQ(seen.requests, static_cast<std::uint64_t>(served));
    EXPECT_EQ(seen.requests + seen.expired, late + 10);
}

/// Requests of one byte are worked on until nobody waits for them.
TEST_P(device_service, a_passed_deadline_stops_the_work) {
    std::atomic<int> begun{0};
    std::atomic<int> heard{0};
    std::atomic<bool> gives_up{false};
    service_rig rig(GetParam());
    rig.listen();
    rig.serve([&](const taken_request& request) {
        if (request.exchange.request_bytes != 1) return echo(request);
        ++begun;
        while (!gives_up && !request.cancelled()) std::this_thread::sleep_for(100us);
        ++heard;
        (void)request.reply(0);
    });
    channel client = rig.connect();
    (void)submit(client, 100);
    EXPECT_EQ(next(client).status, status::ok);
    std::this_thread::sleep_for(patience(50ms));  // until the kernels have heard the host's clock
    with_enough_time(200ms, [&](nanoseconds timeout) {
        const int before = begun;
        const auto start = std::chrono::steady_clock::now();
        (void)submit(client, 1, timeout);
        const status ended = next(client).status;
        // The kernel's answer may be there when the client looks at its clock.
        EXPECT_TRUE(ended == status::timed_out || ended == status::ok) << to_string(ended);
        EXPECT_GT(std::chrono::steady_clock::now() - start, timeout * 3 / 4);
        return begun > before;
    });
    EXPECT_TRUE(eventually([&] { return heard == begun; }));
    gives_up = true;
}

TEST_P(device_service, stops_under_endless_load) {
    service_rig rig(GetParam());
    rig.listen();
    rig.serve(
        [](const taken_request& request) {
            std::this_thread::sleep_for(1ms);
            echo(request);
        },
        2);
    std::vector<std::thread> clients;
    for (int i = 0; i < 3; ++i) {
        clients.emplace_back([&, i] {
            channel client = rig.connect();
            (void)run_calls(client, 100'000, static_cast<std::uint64_t>(i));
        });
    }
    EXPECT_TRUE(eventually([&] {
        const auto seen = rig.service->statistics();
        return seen.sessions == 3 && seen.replies > 20;
    }));
    const auto begin = std::chrono::steady_clock::now();
    rig.end_kernels();
    EXPECT_EQ(rig.closed_kernels.load(), 2);
    rig.stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, until_hung());
    for (std::thread& each : clients) each.join();
    const auto seen = rig.service->statistics();
    EXPECT_EQ(seen.requests, seen.replies + seen.dropped);
}

TEST_P(device_service, a_stop_disconnects_clients_and_answers_requests_in_flight) {
    std::atomic<bool> taken{false};
    std::atomic<bool> answers{false};
    service_rig rig(GetParam());
    rig.listen();
    rig.serve([&](const taken_request& request) {
        taken = true;
        while (!answers) std::this_thread::sleep_for(100us);
        echo(request);
    });
    channel client = rig.connect();
    (void)submit(client, 10);
    ASSERT_TRUE(eventually([&] { return taken.load(); }));
    rig.service->request_stop();
    EXPECT_TRUE(eventually([&] { return client.poll({}) == 0 && !client.connected(); }));
    const auto none = client.begin();
    EXPECT_EQ(none.code(), status::closed);
    const auto refused = rig.try_connect();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, status::overloaded);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("draining"));
    answers = true;
    rig.stop();
    EXPECT_EQ(next(client).status, status::ok);
    EXPECT_EQ(rig.service->statistics().replies, 1U);
    EXPECT_EQ(rig.service->statistics().sessions_lost, 0U);
}

TEST_P(device_service, untaken_requests_end_as_unseen) {
    service_rig rig(GetParam());
    rig.listen();
    channel client = rig.connect();
    (void)submit(client, 10);
    rig.stop();
    const completion ended = next(client);
    EXPECT_EQ(ended.status, status::closed);
    EXPECT_TRUE(ended.unseen());
}

/// A kernel that serves two models compares the number that a request names.
TEST_P(device_service, kernels_serve_targets) {
    service_rig rig(GetParam());
    rig.listen();
    ASSERT_TRUE(rig.service->set_targets({"first", "second"}).ok());
    rig.serve([](const taken_request& request) {
        const std::uint32_t number = request.exchange.target_number;
        if (number == target_of("first").number) return (void)request.fail(status::application_error, 1);
        if (number == target_of("second").number) return (void)request.fail(status::application_error, 2);
        (void)request.fail(status::not_found, 3);
    });
    channel client = rig.connect();
    const std::vector<std::byte> request(10);
    const auto outcome = [&](target named) { return client.call(request, {.target = named}).error(); };
    EXPECT_EQ(outcome(client.resolve("first").value()).native, 1);
    EXPECT_EQ(outcome(client.resolve("second").value()).native, 2);
    EXPECT_EQ(client.resolve("third").code(), status::not_found);
    EXPECT_EQ(outcome(target_of("third")).code, status::not_found);
    EXPECT_EQ(outcome({}).code, status::not_found);
    EXPECT_EQ(rig.service->set_targets({"two words"}).code(), status::invalid_argument);
    EXPECT_TRUE(client.resolve("first").ok()) << "what was wrong has changed nothing";
    ASSERT_TRUE(rig.service->set_targets({"third"}).ok());
    EXPECT_EQ(client.resolve("first").code(), status::not_found);
    EXPECT_TRUE(client.resolve("third").ok());
}

INSTANTIATE_TEST_SUITE_P(on, device_service, service_settings(),
                         [](const auto& setting) { return name_of(setting.param); });
INSTANTIATE_TEST_SUITE_P(by_owners, device_service, owned_service_settings(),
                         [](const auto& setting) { return name_of(setting.param); });

TEST_P(device_service, a_request_in_parts_is_refused) {
    service_rig rig(GetParam());
    rig.listen();
    std::atomic<int> served{0};
    rig.serve([&](const taken_request& request) {
        ++served;
        echo(request);
    });
    channel client = rig.connect();
    const auto calls = static_cast<std::uint32_t>(effort(50));
    for (std::uint32_t i = 0; i < calls; ++i) {
        const auto call = client.begin();
        ASSERT_EQ(call.code(), status::ok);
        ASSERT_EQ(client.submit(call->id, i, {.continues = true, .parts = i % 3}), status::ok);
        for (auto part = client.begin_part(call->id); part; part = client.begin_part(call->id))
            EXPECT_EQ(client.submit_part(part->id, i), status::ok);
        EXPECT_EQ(next(client).status, status::unsupported);
        EXPECT_TRUE(eventually([&] {
            (void)client.poll({});
            std::vector<call_id> begun;
            while (const auto free = client.begin()) begun.push_back(free->id);
            for (const call_id each : begun) EXPECT_EQ(client.release(each), status::ok);
            return begun.size() == client.slots();
        })) << "every slot comes back";
    }
    EXPECT_EQ(served, 0);
    EXPECT_EQ(run_calls(client, 10, 4), 10U);
    EXPECT_EQ(rig.service->statistics().sessions_lost, 0U);
}

// Services whose sessions are shared.

TEST_P(shared_device_service, slots_may_lie_on_the_host) {
    service_rig rig(GetParam());
    rig.options.kernels.host_slots = true;
    rig.listen();
    rig.serve(echo, 2);
    channel client = rig.connect();
    EXPECT_EQ(run_calls(client, 100, 4), 100U);
    if (!GetParam().on_gpu) return;
    const std::size_t of_slots = rig.options.max_sessions * rig.options.max_slots * rig.options.max_request_bytes;
    EXPECT_LT(rig.gpus().device().allocated(), of_slots);
}

/// While a kernel looks for room for its parts, it finds requests, which it takes later. An owner takes requests in the
/// order of their slots.
TEST_P(shared_device_service, requests_that_wait_keep_their_order) {
    service_rig rig(GetParam());
    rig.listen();
    rig.serve([](const taken_request& request) {
        if (!device::in_parts(request.exchange)) return echo(request);
        for (int i = 0; i < 40; ++i) {
            std::span<std::byte> part;
            while (request.next_part(part) == status::again) std::this_thread::sleep_for(100us);
            EXPECT_EQ(request.send(10), status::ok);
        }
        (void)request.reply(0);
    });
    channel client = rig.connect();
    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(client.submit(call->id, 8, {.parts = 1}), status::ok);
    std::vector<call_id> waiting;
    for (std::size_t i = 0; i < 4; ++i) waiting.push_back(submit(client, i + 1));
    for (int i = 0; i < 40; ++i) EXPECT_TRUE(next(client).more);
    EXPECT_EQ(next(client).id, call->id);
    for (const call_id& each : waiting) EXPECT_EQ(next(client).id, each);
}

INSTANTIATE_TEST_SUITE_P(on, shared_device_service, service_settings(),
                         [](const auto& setting) { return name_of(setting.param); });

// Services whose sessions have one owner each.

TEST_P(owned_device_service, a_request_of_an_ended_session_is_not_handed_over) {
    service_rig rig(GetParam());
    rig.listen();
    channel client = rig.connect();
    device::owned_sessions mine;
    ASSERT_EQ(device::own(rig.service->ref(), 0, 1, mine), status::ok);
    for (int i = 0; i < 2; ++i) (void)submit(client, 10);
    device::exchange_ref held;
    ASSERT_EQ(device::wait(mine, held, 5'000'000'000), status::ok);
    const auto another = [&] {
        return device::detail::find_in_rounds<device::thread_scope>(mine) != device::detail::no_slot;
    };
    ASSERT_TRUE(eventually(another));
    client.close();
    const auto ordered = [&] { return mlx5::load_flag(&mine.orders->commands) != mine.orders_seen; };
    ASSERT_TRUE(eventually(ordered));
    mine.orders_due = device::clock_ns() - 2 * device::detail::latest_orders_ns;
    device::exchange_ref none;
    EXPECT_EQ(device::take(mine, none), status::again);
    EXPECT_EQ(device::reply(mine, held, 0), status::peer_lost);
    EXPECT_TRUE(eventually([&] {
        (void)device::take(mine, none);
        return rig.service->statistics().sessions == 0;
    }));
}

TEST_P(owned_device_service, busy_session_does_not_keep_another_waiting) {
    service_rig rig(GetParam());
    rig.listen();
    auto wanted = service_rig::small();
    wanted.slots = 1;
    std::array<channel, 2> clients{rig.connect(wanted), rig.connect(wanted)};
    device::owned_sessions mine;
    device::exchange_ref exchange;
    ASSERT_EQ(device::own(rig.service->ref(), 0, 1, mine), status::ok);
    ASSERT_EQ(device::wait(mine, exchange, 1'000'000), status::timed_out) << "it opens the sessions";
    const auto ask = [&](std::size_t which) {
        const auto call = clients[which].begin();
        ASSERT_EQ(call.code(), status::ok);
        call->request[0] = static_cast<std::byte>(which);
        ASSERT_EQ(clients[which].submit(call->id, 1), status::ok);
    };
    const auto both_wait = [&] {
        int waiting = 0;
        for (std::uint32_t i = 0; i < mine.places; ++i) waiting += device::detail::is_new_at(mine, i) ? 1 : 0;
        return waiting == 2;
    };
    ask(0);
    ask(1);
    std::array<int, 2> served{};
    for (int i = 0; i < 6; ++i) {
        ASSERT_TRUE(eventually(both_wait));
        ASSERT_EQ(device::wait(mine, exchange, 5'000'000'000), status::ok);
        const auto who = std::to_integer<std::size_t>(exchange.request[0]);
        ASSERT_LT(who, 2U);
        ++served[who];
        EXPECT_EQ(device::reply(mine, exchange, 0), status::ok);
        (void)next(clients[who]);
        ask(who);
    }
    EXPECT_EQ(served[0], 3);
    EXPECT_EQ(served[1], 3);
}

TEST_P(owned_device_service, functions_for_the_other_sharing_are_refused) {
    service_rig rig(GetParam());
    rig.listen();
    device::exchange_ref exchange;
    EXPECT_EQ(device::take(rig.service->ref(), exchange), status::unsupported);
    EXPECT_EQ(device::wait(rig.service->ref(), exchange, 1), status::unsupported);
    device::owned_sessions mine;
    EXPECT_EQ(device::own(rig.service->ref(), 2, 2, mine), status::invalid_argument);
    device::service_ref stale = rig.service->ref();
    ++stale.layout.version;
    stale.layout.kernel_version = nullptr;
    EXPECT_EQ(device::own(stale, 0, 1, mine), status::unsupported);
    service_rig shared({GetParam().on_gpu, GetParam().engine});
    shared.listen();
    EXPECT_EQ(device::own(shared.service->ref(), 0, 1, mine), status::unsupported);
}

INSTANTIATE_TEST_SUITE_P(on, owned_device_service, owned_service_settings(),
                         [](const auto& setting) { return name_of(setting.param); });

// Refusals, and handlers in a kernel's stead.

TEST(device_service_options, clients_that_want_more_than_the_limits_are_refused) {
    service_rig rig({false, gpu_engine::proxy});
    rig.options.max_request_bytes = 1000;
    rig.options.max_response_bytes = 500;
    rig.listen();
    auto asks = service_rig::small();
    asks.request_bytes = 1000;
    asks.response_bytes = 500;
    asks.slots = 16;
    EXPECT_TRUE(rig.try_connect(asks).ok());
    asks.slots = 17;
    EXPECT_EQ(rig.try_connect(asks).error().code, status::overloaded);
    asks.slots = 16;
    asks.request_bytes = 1001;
    EXPECT_EQ(rig.try_connect(asks).error().code, status::message_too_large);
    asks.request_bytes = 1000;
    asks.response_bytes = 501;
    EXPECT_EQ(rig.try_connect(asks).error().code, status::message_too_large);
}

TEST(device_service_options, options_that_no_service_can_have_are_refused) {
    service_rig rig({false, gpu_engine::proxy});
    for (const std::uint32_t sessions : {0U, 1U << 31}) {
        rig.options.max_sessions = sessions;
        EXPECT_EQ(rig.try_listen().code(), status::invalid_argument) << sessions;
    }
    rig.options.max_sessions = 16;
    rig.options.interceptors = {std::make_shared<server_interceptor>()};
    EXPECT_EQ(rig.try_listen().code(), status::unsupported);
    rig.options.interceptors.clear();
    for (const char* query : {"?proxy_threads=65", "?engine=direct&direct=false", "?engine=magic"}) {
        rig.query = query;
        EXPECT_EQ(rig.try_listen().code(), status::invalid_argument) << query;
    }
    rig.query = "?sharing=exclusive&queues=gpu&engine=proxy";
    const auto queues = rig.try_listen();
    ASSERT_FALSE(queues.ok());
    EXPECT_EQ(queues.error().code, status::invalid_argument);
    EXPECT_THAT(queues.error().message, ::testing::HasSubstr("option queues must be auto or host with engine=proxy"));
    const auto scheme = gpu_service::listen(rig.server_context, "rdma://" + own_loopback() + ":0", rig.options);
    EXPECT_EQ(scheme.code(), status::invalid_argument) << "only gpu has services";
}

// The rdma backend serves them.
TEST(device_service_options, handlers_of_the_host_serve_the_same_clients) {
    service_rig rig({true, gpu_engine::proxy});
    server_options options;
    options.security.insecure = true;
    auto served = server::listen(
        rig.server_context, {"gpu://" + own_loopback() + ":0"},
        [](exchange request) {
            std::memcpy(request.response().data(), request.request().data(), request.request().size());
            (void)request.reply(request.request().size());
        },
        options);
    ASSERT_TRUE(served.ok()) << served.error().message;
    const std::string there = served->endpoints().front();
    const std::vector<std::byte> sent(100, std::byte{7});
    for (const std::string scheme : {"gpu", "rdma", "auto"}) {
        channel_options wanted = service_rig::small();
        wanted.security.insecure = true;
        auto client = channel::connect(rig.client_context, scheme + there.substr(there.find(':')), wanted);
        ASSERT_TRUE(client.ok()) << scheme << ": " << client.error().message;
        auto answer = client->call(sent);
        ASSERT_TRUE(answer.ok()) << scheme << ": " << answer.error().message;
        EXPECT_TRUE(std::equal(sent.begin(), sent.end(), answer->response.begin(), answer->response.end()));
    }
    EXPECT_EQ(served->statistics().requests, 3U);
}

}  // namespace
}  // namespace accel::tests
