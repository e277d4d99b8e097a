// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/service_rig.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <span>

#include <poll.h>

/// Clients whose bytes are on a GPU: payloads that leave from there and responses that are wanted there, by
/// the transport itself or by copies, with a stand-in for the GPU. Servers work on the host but where the
/// test says otherwise.
namespace accel::tests {

inline void echo_on_host(exchange one) {
    const std::size_t length = std::min(one.request().size(), one.response().size());
    if (length > 0) std::memcpy(one.response().data(), one.request().data(), length);
    (void)one.reply(length);
}

class gpu_client : public gpu_service {
  protected:
    static constexpr std::size_t half = 10'000;

    /// The client's GPU is not the server's.
    void start(handler service, server_options options = {}, const channel_options& asked = {}) {
        if (GetParam() == "gdr") options.memory = memory_kind::cuda(0);
        serve_with(std::move(service), options);
        memory_ = context_->allocate(2 * half, memory_kind::cuda(1)).value();
        client_.emplace(connect(asked));
    }
    void TearDown() override {
        gpus_->device(1).held = false;
        if (client_) client_->close();
        client_.reset();
        memory_ = {};
    }
    [[nodiscard]] bool copied() const { return GetParam() != "rdma" && GetParam() != "gdr"; }
    [[nodiscard]] slice from(std::size_t length = half) const { return memory_.part(0, length).value(); }
    [[nodiscard]] submit_options into(std::size_t length = half) const {
        submit_options options;
        options.response_into = memory_.part(half, length).value();
        return options;
    }
    [[nodiscard]] call_view begin() {
        const auto call = client_->begin();
        EXPECT_EQ(call.code(), status::ok);
        return *call;
    }
    [[nodiscard]] std::span<const std::byte> second() const { return {memory_.data() + half, half}; }

    region memory_;
    std::optional<channel> client_;
};

TEST_P(gpu_client, payloads_and_responses_stay_on_the_gpu_of_the_client) {
    for (const poll_mode mode : {poll_mode::block, poll_mode::adaptive, poll_mode::busy}) {
        channel_options asked;
        asked.poll = mode;
        start(echo_on_host, {}, asked);
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
            fill({memory_.data(), half}, seed);
            std::memset(memory_.data() + half, 0, half);
            ASSERT_EQ(client_->submit(begin().id, from(), into()), status::ok);
            const completion got = next(*client_);
            EXPECT_EQ(got.status, status::ok);
            EXPECT_EQ(got.response.data(), memory_.data() + half);
            EXPECT_EQ(got.response.size(), half);
            EXPECT_TRUE(matches(second(), seed));
            EXPECT_EQ(got.timeline.copy > 0ns, copied());
            EXPECT_GE(got.timeline.total, got.timeline.request + got.timeline.server + got.timeline.response);
        }
        client_->close();
        server_.reset();
    }
}

TEST_P(gpu_client, mixes_memory_of_the_host_and_of_the_gpu) {
    start(echo_on_host);
    const region host = context_->allocate(2 * half).value();
    fill({host.data(), half}, 1);
    fill({memory_.data(), half}, 2);
    submit_options to_host;
    to_host.response_into = host.part(half, half).value();

    ASSERT_EQ(client_->submit(begin().id, host.part(0, half).value(), into()), status::ok);
    completion got = next(*client_);
    EXPECT_EQ(got.status, status::ok);
    EXPECT_TRUE(matches(second(), 1));
    got.release();

    ASSERT_EQ(client_->submit(begin().id, from(), to_host), status::ok);
    got = next(*client_);
    EXPECT_EQ(got.status, status::ok);
    EXPECT_EQ(got.response.data(), host.data() + half);
    EXPECT_TRUE(matches({host.data() + half, half}, 2));
    got.release();

    const call_view own = begin();
    fill(own.request.first(half), 3);
    ASSERT_EQ(client_->submit(own.id, half, into()), status::ok);
    got = next(*client_);
    EXPECT_EQ(got.response.data(), memory_.data() + half);
    EXPECT_TRUE(matches(second(), 3));
    got.release();

    ASSERT_EQ(client_->submit(begin().id, from()), status::ok);
    got = next(*client_);
    EXPECT_FALSE(gpus_->device(1).holds(got.response.data(), 1)) << "in its slot";
    EXPECT_TRUE(matches(got.response, 2));
    got.release();

    ASSERT_EQ(client_->submit(begin().id, from(0), into()), status::ok);
    got = next(*client_);
    EXPECT_EQ(got.status, status::ok);
    EXPECT_TRUE(got.response.empty());
}

TEST_P(gpu_client, several_calls_are_in_flight) {
    start(echo_on_host);
    constexpr std::size_t piece = 1000;
    fill({memory_.data(), half}, 9);
    for (std::size_t i = 0; i < 8; ++i) {
        submit_options options;
        options.response_into = memory_.part(half + i * piece, piece).value();
        ASSERT_EQ(client_->submit(begin().id, memory_.part(i * piece, piece).value(), options), status::ok);
    }
    for (int i = 0; i < 8; ++i) {
        const completion got = next(*client_);
        EXPECT_EQ(got.status, status::ok);
    }
    EXPECT_EQ(std::memcmp(memory_.data(), memory_.data() + half, 8 * piece), 0);
}

TEST_P(gpu_client, copies_long_payloads_and_responses) {
    slot_bytes_ = 9 << 20;
    for (const poll_mode mode : {poll_mode::block, poll_mode::adaptive, poll_mode::busy}) {
        channel_options asked;
        asked.poll = mode;
        start(echo_on_host, {}, asked);
        region large = context_->allocate(2 * slot_bytes_, memory_kind::cuda(1)).value();
        fill({large.data(), slot_bytes_}, 6);
        submit_options back;
        back.response_into = large.part(slot_bytes_, slot_bytes_).value();
        ASSERT_EQ(client_->submit(begin().id, large.part(0, slot_bytes_).value(), back), status::ok);
        completion got = next(*client_);
        EXPECT_EQ(got.status, status::ok);
        EXPECT_TRUE(matches({large.data() + slot_bytes_, slot_bytes_}, 6));
        got.release();
        client_->close();
        server_.reset();
    }
}

TEST_P(gpu_client, the_text_of_a_failure_is_on_the_host) {
    start([](exchange one) { (void)one.fail(status::application_error, 7, "no digit"); });
    ASSERT_EQ(client_->submit(begin().id, from(), into()), status::ok);
    completion got = next(*client_);
    EXPECT_EQ(got.status, status::application_error);
    EXPECT_EQ(got.code, 7U);
    ASSERT_EQ(got.response.size(), 8U);
    EXPECT_FALSE(gpus_->device(1).holds(got.response.data(), 8));
    EXPECT_EQ(std::memcmp(got.response.data(), "no digit", 8), 0);
    got.release();
    const auto blocking = client_->call(std::array<std::byte, 3>{}, into());
    ASSERT_FALSE(blocking);
    EXPECT_NE(blocking.error().message.find("no digit"), std::string::npos) << blocking.error().message;
}

TEST_P(gpu_client, joins_an_epoll_loop) {
    start(echo_on_host);
    fill({memory_.data(), half}, 5);
    for (int round = 0; round < 5; ++round) {
        ASSERT_EQ(client_->submit(begin().id, from(), into()), status::ok);
        std::array<completion, 1> got;
        const auto deadline = std::chrono::steady_clock::now() + patience(10s);
        while (client_->poll(got) == 0 && std::chrono::steady_clock::now() < deadline) {
            if (!client_->arm()) continue;
            pollfd one{client_->event_fd(), POLLIN, 0};
            EXPECT_EQ(::poll(&one, 1, 10'000), 1);
        }
        EXPECT_EQ(got[0].status, status::ok);
    }
    EXPECT_TRUE(matches(second(), 5));
}

TEST_P(gpu_client, reaches_a_service_on_another_gpu) {
    serve(echo_on_gpu);
    memory_ = context_->allocate(2 * half, memory_kind::cuda(1)).value();
    client_.emplace(connect());
    fill({memory_.data(), half}, 4);
    ASSERT_EQ(client_->submit(begin().id, from(), into()), status::ok);
    EXPECT_EQ(next(*client_).status, status::ok);
    EXPECT_TRUE(matches(second(), 4));
}

}  // namespace accel::tests
