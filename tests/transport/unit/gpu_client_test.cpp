// SPDX-License-Identifier: Apache-2.0
#include "gpu/client_suite.hpp"

namespace accel::tests {
namespace {

/// Where the transport does not reach the client's GPU.
class gpu_copies : public gpu_client {};

TEST_P(gpu_copies, ends_a_call_early_only_when_the_copy_has_ended) {
    std::atomic<int> requests{0};
    start([&](exchange one) {
        ++requests;
        echo_on_host(std::move(one));
    });
    gpus_->device(1).held = true;
    submit_options soon = into();
    soon.timeout = 20ms;
    ASSERT_EQ(client_->submit(begin().id, from(), soon), status::ok);
    const call_id cancelled = begin().id;
    ASSERT_EQ(client_->submit(cancelled, from(), into()), status::ok);
    EXPECT_EQ(client_->cancel(cancelled), status::ok);
    std::array<completion, 2> got;
    EXPECT_EQ(client_->wait(got, 60ms), 0U) << "the GPU still reads the payloads";
    gpus_->device(1).held = false;
    for (int i = 0; i < 2; ++i) {
        const completion one = next(*client_);
        EXPECT_EQ(one.status, one.id == cancelled ? status::cancelled : status::timed_out);
    }
    EXPECT_EQ(requests, 0) << "neither was sent";
    ASSERT_EQ(client_->submit(begin().id, from(), into()), status::ok);
    EXPECT_EQ(next(*client_).status, status::ok);
}

TEST_P(gpu_copies, waits_for_the_copy_of_a_response_that_came_too_late) {
    start([&](exchange one) {
        gpus_->device(1).held = true;
        echo_on_host(std::move(one));
    });
    with_enough_time(200ms, [this](nanoseconds timeout) {
        submit_options soon = into();
        soon.timeout = timeout;
        EXPECT_EQ(client_->submit(begin().id, 100, soon), status::ok);
        std::array<completion, 1> got;
        const bool waits = client_->wait(got, 2 * timeout) == 0;  // for the GPU, which still writes the response
        gpus_->device(1).held = false;
        if (waits) got[0] = next(*client_);
        EXPECT_EQ(got[0].status, status::timed_out);
        got[0].release();
        EXPECT_TRUE(!waits || client_->statistics().quarantined == 0);
        return waits;
    });
}

TEST_P(gpu_copies, a_lost_gpu_ends_calls_with_device_lost) {
    start(echo_on_host);
    gpus_->device(1).held = true;
    ASSERT_EQ(client_->submit(begin().id, from(), into()), status::ok);
    gpus_->device(1).failed = true;
    completion got = next(*client_);
    EXPECT_EQ(got.status, status::device_lost);
    got.release();
    const call_view call = begin();
    EXPECT_EQ(client_->submit(call.id, from(), into()), status::device_lost);
    EXPECT_EQ(client_->submit(call.id, 10), status::ok) << "it stays begun, and the host's memory goes on";
    EXPECT_EQ(next(*client_).status, status::ok);
}

TEST_P(gpu_copies, a_lost_server_ends_calls_after_their_copies) {
    start(echo_on_host);
    gpus_->device(1).held = true;
    ASSERT_EQ(client_->submit(begin().id, from(), into()), status::ok);
    server_.reset();
    std::array<completion, 1> got;
    EXPECT_EQ(client_->wait(got, 100ms), 0U) << "the GPU still reads the payload";
    gpus_->device(1).held = false;
    const status told = next(*client_).status;
    EXPECT_TRUE(told == status::closed || told == status::peer_lost) << to_string(told);
}

/// A channel that sleeps hears of the copy's end at its descriptor. One that never sleeps has none to pay for.
TEST_P(gpu_copies, wake_a_channel_that_sleeps_and_no_busy_one) {
    for (const poll_mode mode : {poll_mode::block, poll_mode::adaptive, poll_mode::busy}) {
        channel_options asked;
        asked.poll = mode;
        start(echo_on_host, {}, asked);
        gpus_->device(1).held = true;
        ASSERT_EQ(client_->submit(begin().id, from(), into()), status::ok);
        EXPECT_EQ(client_->poll({}), 0U);
        if (mode == poll_mode::busy) {
            EXPECT_FALSE(client_->arm());
            gpus_->device(1).held = false;
        } else {
            EXPECT_TRUE(eventually([this] { return client_->poll({}) == 0 && client_->arm(); }));
            gpus_->device(1).held = false;
            pollfd copied{client_->event_fd(), POLLIN, 0};
            EXPECT_EQ(::poll(&copied, 1, static_cast<int>(until_hung() / 1ms)), 1);
        }
        completion got = next(*client_);
        EXPECT_EQ(got.status, status::ok);
        got.release();
        client_->close();
        server_.reset();
    }
}

#ifdef ACCEL_ZMQ
const auto schemes = ::testing::Values("local", "tcp", "zmq");
#else
const auto schemes = ::testing::Values("local", "tcp");
#endif
const auto name = [](const auto& row) { return row.param; };
INSTANTIATE_TEST_SUITE_P(schemes, gpu_client, schemes, name);
INSTANTIATE_TEST_SUITE_P(schemes, gpu_copies, schemes, name);

}  // namespace
}  // namespace accel::tests
