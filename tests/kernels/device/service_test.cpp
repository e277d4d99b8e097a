// SPDX-License-Identifier: Apache-2.0
// A GPU-resident service, with threads of the host in its kernels' place. `fake`: slots in the memory
// of a stand-in for a GPU, with headers and payloads written apart; `host`: all of it the host's. `direct`:
// they drive the device's queues; `proxy`: the library's thread posts for them.
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
};

TEST_P(device_service, echoes_every_size) {
    service_rig rig(GetParam());
    rig.listen();
    rig.serve(echo);
    channel client = rig.connect();
    for (const std::size_t size : {0U, 1U, 7U, 64U, 65U, 255U, 1000U, 4095U, 4096U}) {
        const auto request = bytes_of(size, size);
        auto answer = client.call(request);
        ASSERT_TRUE(answer.ok()) << size << ": " << answer.error().message;
        EXPECT_EQ(answer->bytes().size(), size);
        EXPECT_TRUE(matches(answer->bytes(), size)) << size;
    }
    EXPECT_TRUE(eventually(patience(2s), [&] { return rig.service->statistics().replies == 9; }));
    EXPECT_EQ(rig.service->statistics().requests, 9U);
    EXPECT_EQ(rig.service->memory(), rig.options.memory);
    EXPECT_EQ(rig.service->statistics().dropped, 0U);
}

TEST_P(device_service, serves_many_sessions_with_many_threads) {
    service_rig rig(GetParam());
    rig.listen();
    rig.serve(echo, 3);
    const auto calls = static_cast<std::uint64_t>(effort(2000));
    constexpr int clients = 6;
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
    EXPECT_TRUE(eventually(patience(5s), [&] { return rig.service->statistics().sessions == 0; }));
}

TEST_P(device_service, sessions_come_and_go_while_the_service_runs) {
    service_rig rig(GetParam());
    rig.options.max_sessions = 3;
    rig.listen();
    rig.serve(echo, 2);
    channel stays = rig.connect();
    for (int i = 0; i < effort(60); ++i) {
        // Places are used again as soon as the kernels have released them.
        result<channel> comes = rig.try_connect();
        ASSERT_TRUE(eventually(patience(5s), [&] {
            if (!comes) comes = rig.try_connect();
            return comes.ok();
        })) << comes.error().message;
        EXPECT_EQ(run_calls(*comes, 20, static_cast<std::uint64_t>(i)), 20U);
        EXPECT_EQ(run_calls(stays, 5, static_cast<std::uint64_t>(i)), 5U);
    }
}

TEST_P(device_service, full_service_refuses) {
    service_rig rig(GetParam());
    rig.options.max_sessions = 1;
    rig.listen();
    rig.serve(echo);
    channel first = rig.connect();
    auto second = rig.try_connect();
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, status::overloaded);
    EXPECT_EQ(run_calls(first, 5, 1), 5U);
}

TEST_P(device_service, clients_that_want_more_than_the_limits_are_refused) {
    service_rig rig(GetParam());
    rig.options.max_request_bytes = 1000;
    rig.listen();
    auto asks = service_rig::small();
    asks.request_bytes = 1001;
    auto refused = rig.try_connect(asks);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, status::message_too_large);
    asks.request_bytes = 1000;
    asks.slots = 17;
    EXPECT_EQ(rig.try_connect(asks).error().code, status::overloaded);
}

TEST_P(device_service, failures_reach_the_client) {
    service_rig rig(GetParam());
    rig.listen();
    rig.serve([](const device::service_ref& service, const device::exchange_ref& exchange) {
        EXPECT_EQ(device::reply(service, exchange, exchange.response_room + 1), status::message_too_large);
        (void)device::fail(service, exchange, status::application_error, 77);
    });
    channel client = rig.connect();
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    ASSERT_EQ(client.submit(call.id, 10), status::ok);
    std::array<completion, 1> done;
    ASSERT_EQ(client.wait(done, until_hung()), 1U);
    EXPECT_EQ(done[0].status, status::application_error);
    EXPECT_EQ(done[0].code, 77U);
}

TEST_P(device_service, a_late_request_is_not_handed_over) {
    service_rig rig(GetParam());
    rig.listen();
    std::atomic<int> served{0};
    channel client = rig.connect();
    // Nobody serves yet: the request waits, and its client gives up.
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    submit_options hasty;
    hasty.timeout = 50ms;
    ASSERT_EQ(client.submit(call.id, 10, hasty), status::ok);
    std::array<completion, 1> done;
    ASSERT_EQ(client.wait(done, until_hung()), 1U);
    EXPECT_EQ(done[0].status, status::timed_out);
    (void)client.release(done[0].id);
    rig.serve([&](const device::service_ref& service, const device::exchange_ref& exchange) {
        ++served;
        echo(service, exchange);
    });
    // The kernel does not know the time at first; what it then takes on is answered, and not delivered.
    EXPECT_TRUE(eventually(patience(5s), [&] {
        const auto seen = rig.service->statistics();
        return seen.expired + seen.replies > 0;
    }));
    EXPECT_EQ(run_calls(client, 10, 3), 10U);
    for (int i = 0; i < 200 && rig.service->statistics().expired == 0; ++i) {
        std::this_thread::sleep_for(10ms);
        ASSERT_EQ(client.begin(call), status::ok);
        hasty.timeout = 1ns;
        ASSERT_EQ(client.submit(call.id, 10, hasty), status::ok);
        ASSERT_EQ(client.wait(done, until_hung()), 1U);
        (void)client.release(done[0].id);
    }
    EXPECT_GT(rig.service->statistics().expired, 0U);
}

TEST_P(device_service, a_response_goes_to_its_response_target) {
    service_rig rig(GetParam());
    rig.listen();
    rig.serve(echo);
    channel client = rig.connect();
    region memory = rig.client_context.allocate(8192).value();
    const slice into = memory.part(1024, 4096).value();
    const auto request = bytes_of(4000, 5);
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    std::copy(request.begin(), request.end(), call.request.begin());
    submit_options with;
    with.response_into = into;
    ASSERT_EQ(client.submit(call.id, request.size(), with), status::ok);
    std::array<completion, 1> done;
    ASSERT_EQ(client.wait(done, until_hung()), 1U);
    ASSERT_EQ(done[0].status, status::ok);
    EXPECT_EQ(done[0].response.data(), into.data());
    EXPECT_EQ(done[0].response.size(), request.size());
    EXPECT_TRUE(matches(done[0].response, 5));
}

TEST_P(device_service, slots_may_lie_on_the_host) {
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

TEST_P(device_service, clients_of_rdma_reach_a_gpu_service) {
    service_rig rig(GetParam());
    rig.listen();
    rig.serve(echo);
    auto client = rig.try_connect(service_rig::small(), "rdma");
    ASSERT_TRUE(client.ok()) << client.error().message;
    EXPECT_EQ(run_calls(*client, 20, 9), 20U);
}

TEST_P(device_service, stops_under_load) {
    service_rig rig(GetParam());
    rig.listen();
    rig.serve(echo, 2);
    std::atomic<bool> enough{false};
    std::atomic<int> connected{0};
    std::vector<std::thread> clients;
    for (int i = 0; i < 3; ++i) {
        clients.emplace_back([&, i] {
            channel client = rig.connect();
            ++connected;
            while (!enough)
                if (run_calls(client, 50, static_cast<std::uint64_t>(i)) < 50) break;
        });
    }
    EXPECT_TRUE(eventually(patience(5s), [&] { return connected == 3; }));
    std::this_thread::sleep_for(200ms);
    const auto begin = std::chrono::steady_clock::now();
    rig.end_kernels();
    EXPECT_EQ(rig.closed_kernels.load(), 2);
    rig.stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, until_hung());
    enough = true;
    for (std::thread& each : clients) each.join();
    const auto seen = rig.service->statistics();
    EXPECT_GT(seen.replies, 0U);
    EXPECT_EQ(seen.requests, seen.replies + seen.dropped);
}

TEST_P(device_service, a_stop_disconnects_clients_and_answers_requests_in_flight) {
    std::atomic<bool> taken{false};
    std::atomic<bool> answers{false};
    service_rig rig(GetParam());
    rig.listen();
    rig.serve([&](const device::service_ref& service, const device::exchange_ref& exchange) {
        taken = true;
        while (!answers) std::this_thread::sleep_for(100us);
        echo(service, exchange);
    });
    channel client = rig.connect();
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    ASSERT_EQ(client.submit(call.id, 10), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return taken.load(); }));
    rig.service->request_stop();
    EXPECT_TRUE(eventually(patience(5s), [&] { return client.poll({}) == 0 && !client.connected(); }));
    call_view next;
    EXPECT_EQ(client.begin(next), status::closed);
    const auto refused = rig.try_connect();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, status::overloaded);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("draining"));
    answers = true;
    rig.stop();
    completion ended;
    ASSERT_EQ(client.wait({&ended, 1}, patience(5s)), 1U);
    EXPECT_EQ(ended.status, status::ok);
    EXPECT_EQ(rig.service->statistics().replies, 1U);
    EXPECT_EQ(rig.service->statistics().sessions_lost, 0U);
}

TEST_P(device_service, untaken_requests_end_as_unseen) {
    service_rig rig(GetParam());
    rig.listen();
    channel client = rig.connect();
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    ASSERT_EQ(client.submit(call.id, 10), status::ok);
    rig.stop();
    completion ended;
    ASSERT_EQ(client.wait({&ended, 1}, patience(5s)), 1U);
    EXPECT_EQ(ended.status, status::closed);
    EXPECT_TRUE(ended.unseen());
}

TEST_P(device_service, a_service_stops_under_endless_load) {
    service_rig rig(GetParam());
    rig.listen();
    rig.serve([](const device::service_ref& service, const device::exchange_ref& exchange) {
        std::this_thread::sleep_for(2ms);
        echo(service, exchange);
    });
    std::vector<std::thread> clients;
    for (int i = 0; i < 2; ++i) {
        clients.emplace_back([&, i] {
            channel client = rig.connect();
            (void)run_calls(client, 100'000, static_cast<std::uint64_t>(i));
        });
    }
    EXPECT_TRUE(eventually(patience(5s), [&] { return rig.service->statistics().replies > 20; }));
    const auto begin = std::chrono::steady_clock::now();
    rig.stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, until_hung());
    for (std::thread& each : clients) each.join();
}

TEST_P(device_service, the_uri_cannot_add_workers) {
    service_rig rig(GetParam());
    rig.query = "?workers=4";
    rig.listen();
    rig.serve(echo);
    std::vector<channel> clients;
    for (int i = 0; i < 4; ++i) clients.push_back(rig.connect());
    for (channel& each : clients) EXPECT_EQ(run_calls(each, 10, 1), 10U);
}

TEST_P(device_service, a_request_without_a_deadline_is_served) {
    service_rig rig(GetParam());
    rig.listen();
    rig.serve(echo);
    channel client = rig.connect();
    for (int i = 0; i < 10; ++i) {
        submit_options with;
        with.timeout = std::chrono::nanoseconds::max();
        EXPECT_TRUE(client.call(bytes_of(100, 1), with).ok());
    }
    EXPECT_EQ(rig.service->statistics().expired, 0U);
}

TEST_P(device_service, a_service_without_or_with_too_many_slots_is_refused) {
    service_rig rig(GetParam());
    for (const std::uint32_t sessions : {0U, 1U << 31}) {
        rig.options.max_sessions = sessions;
        auto made = gpu_service::listen(rig.server_context, "gpu://" + own_loopback() + ":0", rig.options);
        ASSERT_FALSE(made.ok());
        EXPECT_EQ(made.error().code, status::invalid_argument) << made.error().message;
    }
}

TEST_P(device_service, pinned_memory_is_released) {
    service_rig rig(GetParam());
    rig.listen();
    EXPECT_EQ(rig.pages_pinned() > 0, GetParam().on_gpu);
    rig.stop();
    EXPECT_EQ(rig.pages_pinned(), 0);
}

TEST_P(device_service, kernels_serve_targets) {
    service_rig rig(GetParam());
    rig.listen();
    ASSERT_TRUE(rig.service->set_targets({"first", "second"}).ok());
    rig.serve(answer_by_target<const device::service_ref>);
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

// The rdma backend serves them.
TEST_P(device_service, handlers_of_the_host_serve_the_same_clients) {
    service_rig rig(GetParam());
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
        EXPECT_TRUE(std::equal(sent.begin(), sent.end(), answer->bytes().begin(), answer->bytes().end()));
    }
    EXPECT_EQ(served->statistics().requests, 3U);
}

TEST_P(device_service, only_the_scheme_gpu_has_services) {
    service_rig rig(GetParam());
    auto wrong = gpu_service::listen(rig.server_context, "rdma://" + own_loopback() + ":0", rig.options);
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().code, status::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(on, device_service, service_settings(),
                         [](const auto& setting) { return name_of(setting.param); });

}  // namespace
}  // namespace accel::tests
