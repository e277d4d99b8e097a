// SPDX-License-Identifier: Apache-2.0
// A GPU-resident service whose sessions have one owner each, with threads of the host in its kernels' place.
#include "device/calls.hpp"
#include "device/client_rig.hpp"
#include "device/service_rig.hpp"

#include <algorithm>
#include <array>

namespace accel::tests {
namespace {

struct whereabouts {
    const char* name;
    bool on_gpu;  ///< slots in the memory of a stand-in for a GPU
    queue_location queues;
    gpu_engine engine = gpu_engine::direct;
};

class exclusive_service : public ::testing::TestWithParam<whereabouts> {
  protected:
    void SetUp() override {
        if (!has(GetParam().engine)) GTEST_SKIP() << "this device has no queues to drive";
        rig.options.kernels.sharing = service_sharing::exclusive;
        rig.options.kernels.queues = GetParam().queues;
    }
    service_rig rig{{GetParam().on_gpu, GetParam().engine}};
};

TEST_P(exclusive_service, echoes_every_size) {
    rig.listen();
    rig.serve_owned(echo_as_owner);
    for (const std::string scheme : {"gpu", "rdma"}) {
        channel client = *rig.try_connect(service_rig::small(), scheme);
        for (const std::size_t size : {0U, 1U, 7U, 64U, 65U, 255U, 1000U, 4095U, 4096U}) {
            const auto request = bytes_of(size, size);
            auto answer = client.call(request);
            ASSERT_TRUE(answer.ok()) << size << ": " << answer.error().message;
            EXPECT_EQ(answer->bytes().size(), size);
            EXPECT_TRUE(matches(answer->bytes(), size)) << size;
        }
    }
    rig.stop();
    EXPECT_EQ(rig.service->statistics().requests, 18U);
    EXPECT_EQ(rig.service->statistics().replies, 18U);
    EXPECT_EQ(rig.service->statistics().dropped, 0U);
}

TEST_P(exclusive_service, owners_serve_targets) {
    rig.listen();
    ASSERT_TRUE(rig.service->set_targets({"first", "second"}).ok());
    rig.serve_owned(answer_by_target<device::owned_sessions>);
    channel client = rig.connect();
    const std::vector<std::byte> request(10);
    const auto outcome = [&](target named) { return client.call(request, {.target = named}).error(); };
    EXPECT_EQ(outcome(client.resolve("first").value()).native, 1);
    EXPECT_EQ(outcome(client.resolve("second").value()).native, 2);
    EXPECT_EQ(outcome(target_of("third")).code, status::not_found);
    EXPECT_EQ(outcome({}).code, status::not_found);
}

TEST_P(exclusive_service, serves_many_sessions_of_several_owners) {
    rig.listen();
    rig.serve_owned(echo_as_owner, 3);
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
    EXPECT_TRUE(eventually(patience(5s), [&] { return rig.service->statistics().sessions == 0; }));
    rig.stop();
    EXPECT_EQ(rig.service->statistics().replies, calls * clients);
}

TEST_P(exclusive_service, owners_without_sessions_wait_for_the_stop) {
    rig.options.max_sessions = 2;
    rig.listen();
    rig.serve_owned(echo_as_owner, 4);
    channel client = rig.connect();
    EXPECT_EQ(run_calls(client, 100, 1), 100U);
    rig.stop();
    EXPECT_EQ(rig.closed_kernels.load(), 4);
}

TEST_P(exclusive_service, sessions_come_and_go_while_the_service_runs) {
    rig.options.max_sessions = 3;
    rig.listen();
    rig.serve_owned(echo_as_owner, 2);
    channel stays = rig.connect();
    for (int i = 0; i < effort(60); ++i) {
        result<channel> comes = rig.try_connect();
        ASSERT_TRUE(eventually(patience(5s), [&] {
            if (!comes) comes = rig.try_connect();
            return comes.ok();
        })) << comes.error().message;
        EXPECT_EQ(run_calls(*comes, 20, static_cast<std::uint64_t>(i)), 20U);
        EXPECT_EQ(run_calls(stays, 5, static_cast<std::uint64_t>(i)), 5U);
    }
}

TEST_P(exclusive_service, requests_wait_for_the_kernels_of_the_service) {
    rig.listen();
    channel client = rig.connect();
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    ASSERT_EQ(client.submit(call.id, 10), status::ok);
    rig.serve_owned(echo_as_owner);
    std::array<completion, 1> done;
    ASSERT_EQ(client.wait(done, patience(5s)), 1U);
    EXPECT_EQ(done[0].status, status::ok);
}

TEST_P(exclusive_service, a_stop_disconnects_clients_and_answers_requests_in_flight) {
    rig.listen();
    std::atomic<bool> taken{false};
    std::atomic<bool> answers{false};
    rig.serve_owned([&](device::owned_sessions& mine, const device::exchange_ref& exchange) {
        taken = true;
        while (!answers) std::this_thread::sleep_for(100us);
        echo_as_owner(mine, exchange);
    });
    channel client = rig.connect();
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    ASSERT_EQ(client.submit(call.id, 10), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return taken.load(); }));
    rig.service->request_stop();
    EXPECT_TRUE(eventually(patience(5s), [&] { return client.poll({}) == 0 && !client.connected(); }));
    answers = true;
    rig.stop();
    std::array<completion, 1> done;
    ASSERT_EQ(client.wait(done, patience(5s)), 1U);
    EXPECT_EQ(done[0].status, status::ok);
}

TEST_P(exclusive_service, another_number_of_owners_takes_over_the_sessions) {
    rig.listen();
    channel client = rig.connect();
    for (const std::uint32_t parts : {1U, 5U, 2U}) {
        std::atomic<bool> over{false};
        std::vector<std::thread> kernels;
        for (std::uint32_t i = 0; i < parts; ++i) {
            kernels.emplace_back([&, i] {
                device::owned_sessions mine;
                ASSERT_EQ(device::own(rig.service->ref(), i, parts, mine), status::ok);
                device::exchange_ref exchange;
                while (!over)
                    if (device::wait(mine, exchange, 50'000) == status::ok)
                        echo_as_owner(mine, exchange);
                    else
                        std::this_thread::sleep_for(100us);
            });
        }
        EXPECT_EQ(run_calls(client, 300, parts), 300U);
        over = true;
        for (std::thread& each : kernels) each.join();
    }
}

TEST_P(exclusive_service, failures_reach_the_client) {
    rig.listen();
    rig.serve_owned([](device::owned_sessions& mine, const device::exchange_ref& exchange) {
        EXPECT_EQ(device::reply(mine, exchange, exchange.response_room + 1), status::message_too_large);
        (void)device::fail(mine, exchange, status::application_error, 77);
    });
    channel client = rig.connect();
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    ASSERT_EQ(client.submit(call.id, 10), status::ok);
    std::array<completion, 1> done;
    ASSERT_EQ(client.wait(done, patience(5s)), 1U);
    EXPECT_EQ(done[0].status, status::application_error);
    EXPECT_EQ(done[0].code, 77U);
}

TEST_P(exclusive_service, answers_may_be_given_in_another_order) {
    rig.listen();
    std::vector<device::exchange_ref> held;
    rig.serve_owned([&](device::owned_sessions& mine, const device::exchange_ref& exchange) {
        held.push_back(exchange);
        if (held.size() < 4) return;
        while (!held.empty()) {
            echo_as_owner(mine, held.back());
            held.pop_back();
        }
    });
    channel client = rig.connect();
    EXPECT_EQ(run_calls(client, 400, 3), 400U);
    rig.stop();  // before what its kernel uses goes
}

TEST_P(exclusive_service, a_request_of_an_ended_session_is_not_handed_over) {
    rig.listen();
    channel client = rig.connect();
    device::owned_sessions mine;
    ASSERT_EQ(device::own(rig.service->ref(), 0, 1, mine), status::ok);
    std::array<call_view, 2> calls;
    for (call_view& each : calls) {
        ASSERT_EQ(client.begin(each), status::ok);
        ASSERT_EQ(client.submit(each.id, 10), status::ok);
    }
    device::exchange_ref held;
    ASSERT_EQ(device::wait(mine, held, 5'000'000'000), status::ok);
    const auto another = [&] {
        return device::detail::find_in_rounds<device::thread_scope>(mine) != device::detail::no_slot;
    };
    ASSERT_TRUE(eventually(patience(5s), another));
    client.close();
    const auto ordered = [&] { return mlx5::load_flag(&mine.orders->commands) != mine.orders_seen; };
    ASSERT_TRUE(eventually(patience(5s), ordered));
    mine.orders_due = device::clock_ns() - 2 * device::detail::latest_orders_ns;
    device::exchange_ref next;
    EXPECT_EQ(device::take(mine, next), status::again);
    EXPECT_EQ(device::reply(mine, held, 0), status::peer_lost);
    EXPECT_TRUE(eventually(patience(5s), [&] {
        (void)device::take(mine, next);
        return rig.service->statistics().sessions == 0;
    }));
}

TEST_P(exclusive_service, busy_session_does_not_keep_another_waiting) {
    rig.listen();
    auto wanted = service_rig::small();
    wanted.slots = 1;
    std::array<channel, 2> clients{rig.connect(wanted), rig.connect(wanted)};
    device::owned_sessions mine;
    device::exchange_ref exchange;
    ASSERT_EQ(device::own(rig.service->ref(), 0, 1, mine), status::ok);
    ASSERT_EQ(device::wait(mine, exchange, 1'000'000), status::timed_out) << "it opens the sessions";
    const auto ask = [&](std::size_t which) {
        call_view call;
        ASSERT_EQ(clients[which].begin(call), status::ok);
        call.request[0] = static_cast<std::byte>(which);
        ASSERT_EQ(clients[which].submit(call.id, 1), status::ok);
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
        ASSERT_TRUE(eventually(patience(5s), both_wait));
        ASSERT_EQ(device::wait(mine, exchange, 5'000'000'000), status::ok);
        const auto who = std::to_integer<std::size_t>(exchange.request[0]);
        ASSERT_LT(who, 2U);
        ++served[who];
        EXPECT_EQ(device::reply(mine, exchange, 0), status::ok);
        std::array<completion, 1> done;
        ASSERT_EQ(clients[who].wait(done, patience(5s)), 1U);
        (void)clients[who].release(done[0].id);
        ask(who);
    }
    EXPECT_EQ(served[0], 3);
    EXPECT_EQ(served[1], 3);
}

TEST_P(exclusive_service, late_request_is_not_handed_over) {
    rig.listen();
    rig.serve_owned(echo_as_owner);
    channel client = rig.connect();
    call_view call;
    std::array<completion, 1> done;
    submit_options hasty;
    hasty.timeout = 1ns;
    // The owner does not know the host's clock at first.
    EXPECT_TRUE(eventually(patience(10s), [&] {
        if (client.begin(call) != status::ok) {
            (void)client.wait(done, 1ms);  // the late answers of all slots are on their way
            return false;
        }
        EXPECT_EQ(client.submit(call.id, 10, hasty), status::ok);
        EXPECT_EQ(client.wait(done, patience(5s)), 1U);
        (void)client.release(done[0].id);
        return rig.service->statistics().expired > 0;
    }));
    EXPECT_EQ(run_calls(client, 10, 3), 10U);
}

TEST_P(exclusive_service, a_response_goes_to_its_response_target) {
    rig.listen();
    rig.serve_owned(echo_as_owner);
    channel client = rig.connect();
    region memory = rig.client_context.allocate(8192).value();
    const slice into = memory.part(1024, 4096).value();
    const auto request = bytes_of(4000, 5);
    for (int i = 0; i < 300; ++i) {
        call_view call;
        ASSERT_EQ(client.begin(call), status::ok);
        std::copy(request.begin(), request.end(), call.request.begin());
        submit_options with;
        with.response_into = into;
        ASSERT_EQ(client.submit(call.id, request.size(), with), status::ok);
        std::array<completion, 1> done;
        ASSERT_EQ(client.wait(done, patience(5s)), 1U);
        ASSERT_EQ(done[0].status, status::ok);
        ASSERT_EQ(done[0].response.data(), into.data());
        ASSERT_TRUE(matches(done[0].response, 5));
        (void)client.release(done[0].id);
    }
}

TEST_P(exclusive_service, functions_for_the_other_sharing_are_refused) {
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

TEST_P(exclusive_service, proxy_has_no_queues_in_the_memory_of_kernels) {
    rig.options.kernels.engine = gpu_engine::proxy;
    rig.options.kernels.queues = queue_location::gpu;
    auto refused = rig.try_listen();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, status::invalid_argument);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("option queues must be auto or host with engine=proxy"));
}

TEST_P(exclusive_service, the_uri_selects_exclusive_sharing) {
    rig.options.kernels.sharing = service_sharing::shared;
    rig.query = "?sharing=exclusive";
    rig.listen();
    rig.serve_owned(echo_as_owner);
    channel client = rig.connect();
    EXPECT_EQ(run_calls(client, 10, 1), 10U);
}

TEST_P(exclusive_service, channels_of_kernels_reach_an_exclusive_service) {
    rig.listen();
    rig.serve_owned(echo_as_owner, 2);
    gpu_channel_options wanted{service_rig::small()};
    wanted.security.insecure = true;
    wanted.kernels.engine = GetParam().engine;
    wanted.memory = memory_kind::host();
    auto client = gpu_channel::connect(rig.client_context, rig.service->endpoint(), wanted);
    ASSERT_TRUE(client.ok()) << client.error().message;
    for (std::uint64_t i = 0; i < 300; ++i) ASSERT_EQ(call_once(client->ref(), i * 13 % 4097, i), status::ok) << i;
    client->close();
}

constexpr whereabouts everywhere[]{
    {"host", false, queue_location::automatic},
    {"fake", true, queue_location::host},
    {"devx", true, queue_location::gpu},
    {"proxy", false, queue_location::automatic, gpu_engine::proxy},
    {"fake_proxy", true, queue_location::automatic, gpu_engine::proxy},
};
INSTANTIATE_TEST_SUITE_P(on, exclusive_service, ::testing::ValuesIn(everywhere),
                         [](const auto& each) { return std::string{each.param.name}; });

}  // namespace
}  // namespace accel::tests
