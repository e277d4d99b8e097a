// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/service_rig.hpp"

/// Handlers whose bytes are on a GPU: staging, streams, queueing and failures, with a stand-in for the GPU.
namespace accel::tests {

TEST_P(gpu_service, payloads_and_answers_are_on_the_gpu) {
    std::atomic<int> wrong{0};
    serve([&](exchange one) {
        if (one.memory() != memory_kind::cuda(0) || one.stream() == nullptr) ++wrong;
        if (!gpus_->device().holds(one.request().data(), one.request().size())) ++wrong;
        if (!gpus_->device().holds(one.response().data(), one.response().size())) ++wrong;
        echo_on_gpu(std::move(one));
    });
    channel client = connect();
    for (std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{64 << 10}}) {
        send(client, length, length + 1);
        const completion got = next(client);
        EXPECT_EQ(got.status, status::ok);
        EXPECT_EQ(got.response.size(), length);
        EXPECT_TRUE(matches(got.response, length + 1));
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(server_->statistics().gpu_memory_bytes, 0U);
    client.close();
    EXPECT_TRUE(eventually(patience(5s), [&] { return server_->statistics().gpu_memory_bytes == 0; }));
    EXPECT_TRUE(eventually(patience(5s), [&] { return gpus_->device().allocated() == 0; }));
    server_.reset();  // its threads use what stands above
}

TEST_P(gpu_service, an_answer_leaves_after_its_stream_and_tells_the_stages) {
    for (const poll_mode mode : {poll_mode::block, poll_mode::adaptive, poll_mode::busy}) {
        server_options options;
        options.poll = mode;
        serve(
            [](exchange one) {
                fake_stream& stream = fake_stream::of(one.stream());
                one.mark(stage::preprocessing);
                stream.launch([] { std::this_thread::sleep_for(5ms); });
                one.mark(stage::inference);
                stream.launch([] { std::this_thread::sleep_for(20ms); });
                (void)one.reply(0);
            },
            options);
        channel client = connect();
        send(client, 1000, 1);
        const completion got = next(client);
        EXPECT_EQ(got.status, status::ok);
        EXPECT_GE(got.timeline.preprocessing, 5ms);
        EXPECT_GE(got.timeline.inference, 20ms);
        EXPECT_GE(got.timeline.server, 25ms);
        if (GetParam() == "gdr") {
            EXPECT_EQ(got.timeline.copy, 0ns) << "the RDMA device has put it there";
        } else {
            EXPECT_GT(got.timeline.copy, 0ns);
        }
        server_.reset();
    }
}

TEST_P(gpu_service, a_copy_that_its_worker_waits_for_is_no_time_in_the_queue) {
    serve([](exchange one) { (void)one.reply(0); });
    channel client = connect();
    fake_stream::copies_pageable_memory = true;
    send(client, 1000, 1);
    const completion got = next(client);
    fake_stream::copies_pageable_memory = false;
    const timeline& t = got.timeline;
    EXPECT_EQ(got.status, status::ok);
    if (GetParam() != "gdr") {
        EXPECT_GE(t.copy, fake_stream::pageable_copy);
    }
    EXPECT_LE(t.queue + t.copy, t.server + 1us);
    server_.reset();
}

TEST_P(gpu_service, a_failure_after_its_client_has_gone_leaves_the_client_s_memory_alone) {
    std::optional<exchange> held;
    std::atomic<bool> arrived{false};
    serve([&](exchange one) {
        held = std::move(one);
        arrived = true;
    });
    region target = context_->allocate(4096).value();
    {
        channel client = connect();
        send(client, 100, 1, {.response_into = target.whole()});
        ASSERT_TRUE(eventually(patience(10s), [&] { return arrived.load(); }));
    }
    fill(target.whole().bytes(), 7);
    (void)held->fail(status::application_error, 1, "too late");  // sent, where the server has not yet noticed
    EXPECT_TRUE(matches(target.whole().bytes(), 7));
    server_.reset();
}

TEST_P(gpu_service, several_requests_run_at_once_and_the_others_queue) {
    std::atomic<int> at_once{0};
    std::atomic<int> most{0};
    server_options options;
    options.streams = 2;
    serve(
        [&](exchange one) {
            fake_stream::of(one.stream()).launch([&] {
                const int now_at = ++at_once;
                if (now_at > most) most = now_at;
                std::this_thread::sleep_for(10ms);
                --at_once;
            });
            echo_on_gpu(std::move(one));
        },
        options);
    channel client = connect();
    for (std::uint64_t seed = 1; seed <= 8; ++seed) send(client, 5000, seed, {.tag = seed});
    for (int i = 0; i < 8; ++i) {
        const completion got = next(client);
        EXPECT_EQ(got.status, status::ok);
        EXPECT_TRUE(matches(got.response, got.tag));
    }
    EXPECT_EQ(most, 2);
    server_.reset();  // its threads use what stands above
}

TEST_P(gpu_service, slots_on_the_host_are_pinned_unless_disabled) {
    for (const bool pin : {true, false}) {
        server_options options;
        options.pin_slots = pin;
        serve(echo_on_gpu, options);
        channel client = connect();
        // Over gdr there is nothing to be copied from the host.
        EXPECT_EQ(gpus_->pins > 0, pin && GetParam() != "gdr");
        send(client, 1000, 5);
        completion got = next(client);
        EXPECT_EQ(got.status, status::ok);
        EXPECT_TRUE(matches(got.response, 5));
        got.release();
        client.close();
        server_.reset();
        EXPECT_TRUE(eventually(patience(5s), [&] { return gpus_->device().allocated() == 0; }));
    }
}

/// Over gdr there are no copies, and everything else is the same.
TEST_P(gpu_service, gives_long_copies_to_the_gpu_in_a_few_pieces_at_a_time) {
    for (const poll_mode mode : {poll_mode::block, poll_mode::adaptive, poll_mode::busy}) {
        server_options options;
        options.poll = mode;
        serve(echo_on_gpu, options);
        slot_bytes_ = 11 << 20;
        fake_stream::max_pieces_seen = 0;
        channel client = connect();
        const std::array<std::size_t, 4> lengths{slot_bytes_, 3 << 20, (2 << 20) + 1, 2 << 20};
        for (const std::size_t length : lengths) send(client, length, length, {.tag = length});
        for (std::size_t left = lengths.size(); left > 0; --left) {
            const completion got = next(client);
            EXPECT_EQ(got.status, status::ok);
            EXPECT_EQ(got.response.size(), got.tag);
            EXPECT_TRUE(matches(got.response, got.tag));
        }
        if (GetParam() == "gdr") {
            EXPECT_EQ(fake_stream::max_pieces_seen, 0U);
        } else {
            EXPECT_GT(fake_stream::max_pieces_seen, 1U);
            EXPECT_LE(fake_stream::max_pieces_seen, core::device_stream::max_pieces);
        }
        client.close();
        server_.reset();
    }
}

/// In the queue of all sessions, and in that of a session's own stream.
TEST_P(gpu_service, requests_that_wait_for_a_stream_end_once_at_their_deadline_or_in_their_turn) {
    for (const bool own_stream : {false, true}) {
        SCOPED_TRACE(own_stream ? "own stream" : "any stream");
        server_options options;
        options.streams = 1;
        options.stream_per_session = own_stream;
        std::atomic<bool> go_on{false};
        serve(
            [&](exchange one) {
                fake_stream::of(one.stream()).launch([&] {
                    while (!go_on) std::this_thread::sleep_for(1ms);
                });
                echo_on_gpu(std::move(one));
            },
            options);
        channel client = connect();
        constexpr std::string_view waiting = "lwlwllw";  // a late request first, last, and several in a row
        send(client, 100, 1, {.timeout = patience(60s)});
        for (std::uint64_t i = 0; i < waiting.size(); ++i)
            send(client, 100, i, {.timeout = waiting[i] == 'l' ? 50ms : patience(60s), .tag = i + 1});
        const auto late = static_cast<std::uint64_t>(std::ranges::count(waiting, 'l'));
        EXPECT_TRUE(eventually(patience(5s), [&] { return server_->statistics().expired == late; }));
        EXPECT_EQ(server_->statistics().requests, 1U) << "the handler has seen no other";
        go_on = true;
        std::string seen(waiting.size() + 1, '-');
        for (std::size_t i = 0; i < seen.size(); ++i) {
            const completion got = next(client);
            char& was = seen.at(got.tag);
            EXPECT_EQ(was, '-') << got.tag << " has ended twice";
            was = got.status == status::ok ? 'w' : got.status == status::timed_out ? 'l' : '?';
        }
        EXPECT_EQ(seen, "w" + std::string(waiting));
        client.close();
        server_.reset();  // its threads use what stands above
    }
}

TEST_P(gpu_service, serves_a_high_priority_while_the_normal_streams_are_taken) {
    server_options options;
    options.streams = 1;
    std::atomic<bool> go_on{false};
    serve(
        [&](exchange one) {
            if (one.trace_id() == 1)
                fake_stream::of(one.stream()).launch([&] {
                    while (!go_on) std::this_thread::sleep_for(1ms);
                });
            echo_on_gpu(std::move(one));
        },
        options);
    channel normal = connect();
    channel_options wish;
    wish.priority = stream_priority::high;
    channel high = connect(wish);
    send(normal, 100, 1, {.trace_id = 1});
    send(high, 100, 2);
    EXPECT_EQ(next(high).status, status::ok);
    go_on = true;
    EXPECT_EQ(next(normal).status, status::ok);
    server_.reset();  // its threads use what stands above
}

TEST_P(gpu_service, stream_per_session_keeps_requests_in_order) {
    server_options options;
    options.streams = 4;
    options.stream_per_session = true;
    std::mutex mutex;
    std::vector<std::uint64_t> order;
    serve(
        [&](exchange one) {
            const std::uint64_t number = one.trace_id();
            fake_stream::of(one.stream()).launch([&, number] {
                if (number == 0) std::this_thread::sleep_for(20ms);
                const std::lock_guard lock(mutex);
                order.push_back(number);
            });
            echo_on_gpu(std::move(one));
        },
        options);
    channel client = connect();
    for (std::uint64_t i = 0; i < 6; ++i) send(client, 100, i, {.trace_id = i});
    for (int i = 0; i < 6; ++i) EXPECT_EQ(next(client).status, status::ok);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_P(gpu_service, a_lost_gpu_ends_all_exchanges_with_device_lost) {
    std::atomic<int> served{0};
    server_options options;
    options.streams = 1;
    serve(
        [&](exchange one) {
            ++served;
            fake_stream::of(one.stream()).launch([&] {
                std::this_thread::sleep_for(20ms);
                gpus_->device().failed = true;
            });
            echo_on_gpu(std::move(one));
        },
        options);
    channel client = connect();
    for (std::uint64_t i = 0; i < 4; ++i) send(client, 100, i);
    for (int i = 0; i < 4; ++i) {
        const completion got = next(client);
        EXPECT_EQ(got.status, status::device_lost);
    }
    send(client, 100, 9);
    EXPECT_EQ(next(client).status, status::device_lost);
    EXPECT_EQ(served, 1) << "the handler saw no request after the failure";
    server_.reset();  // its threads use what stands above
}

TEST_P(gpu_service, refuses_a_session_that_the_gpu_has_no_memory_for) {
    serve(echo_on_gpu);
    channel first = connect();
    gpus_->device().capacity = gpus_->device().allocated() + 100'000;
    const auto second = try_connect();
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, status::out_of_memory) << second.error().message;
    send(first, 100, 1);
    EXPECT_EQ(next(first).status, status::ok);
    gpus_->device().capacity = std::size_t{4} << 30;
    EXPECT_TRUE(try_connect());
}

TEST_P(gpu_service, failures_carry_a_text_and_answers_may_be_lent) {
    region on_gpu;
    region on_host;
    std::atomic<std::uint32_t> leases{0};
    std::atomic<bool> allocated{false};
    serve([&](exchange one) {
        if (!allocated) return;
        switch (one.trace_id()) {
            case 1:
                (void)one.fail(status::application_error, 7, "no digit");
                break;
            case 2:
                (void)one.reply(on_gpu.whole(), leases);
                break;
            default:
                (void)one.reply(on_host.whole(), leases);
        }
    });
    on_gpu = context_->allocate(3000, memory_kind::cuda(0)).value();
    on_host = context_->allocate(2000).value();
    fill({on_gpu.data(), on_gpu.size()}, 2);
    fill({on_host.data(), on_host.size()}, 3);
    allocated = true;
    channel client = connect();
    for (std::uint64_t trace = 1; trace <= 3; ++trace) {
        send(client, 10, 1, {.trace_id = trace});
        const completion got = next(client);
        if (trace == 1) {
            EXPECT_EQ(got.status, status::application_error);
            EXPECT_EQ(got.code, 7U);
            EXPECT_EQ(std::memcmp(got.response.data(), "no digit", got.response.size()), 0);
        } else {
            EXPECT_EQ(got.status, status::ok);
            EXPECT_EQ(got.response.size(), trace == 2 ? 3000U : 2000U);
            EXPECT_TRUE(matches(got.response, trace));
        }
    }
    EXPECT_TRUE(eventually(patience(5s), [&] { return leases == 0; }));
    client.close();
    server_.reset();
}

TEST_P(gpu_service, drops_the_answer_of_a_client_that_left_and_frees_its_slots) {
    std::atomic<bool> go_on{false};
    serve([&](exchange one) {
        fake_stream::of(one.stream()).launch([&] {
            while (!go_on) std::this_thread::sleep_for(1ms);
        });
        echo_on_gpu(std::move(one));
    });
    {
        channel client = connect();
        send(client, 100, 1);
        EXPECT_TRUE(eventually(patience(5s), [&] { return server_->statistics().requests == 1; }));
    }
    EXPECT_GT(gpus_->device().allocated(), 0U) << "the stream still uses them";
    go_on = true;
    EXPECT_TRUE(eventually(patience(5s), [&] { return gpus_->device().allocated() == 0; }));
    server_.reset();  // its threads use what stands above
}

}  // namespace accel::tests
