// SPDX-License-Identifier: Apache-2.0
// Servers that do with their queue pair what no correct server does, to a channel of a GPU (this thread is in
// the kernel's place). The channel ends, its calls with it, and nothing else happens.
#include "conformance/payload.hpp"
#include "device/bare_server_rig.hpp"

#include <functional>
#include <memory>

namespace accel::tests {
namespace {

constexpr core::link_geometry shape = bare_server_rig::shape;

class device_hostile_server : public ::testing::TestWithParam<gpu_engine> {
  protected:
    void SetUp() override {
        if (!has(GetParam())) GTEST_SKIP() << "this device has no queues to drive";
        rig_ = std::make_unique<bare_server_rig>(GetParam(), service_sharing::shared);
        auto attached = rig_->attach();
        ASSERT_TRUE(attached.ok()) << attached.error().message;
        channel_ = rig_->poller->channel();
    }
    /// Submits a call; the answer to it as a correct server gives it, to be spoilt.
    bare_client::request submit() {
        EXPECT_EQ(device::begin(channel_, call_), status::ok);
        EXPECT_EQ(device::submit(channel_, call_, 8), status::ok);
        return answer_to(call_);
    }
    [[nodiscard]] bare_client::request answer_to(const device::call_ref& call) const { return rig_->answer_to(call); }
    [[nodiscard]] bare_client& server() const { return *rig_->server; }
    void expect_lost(status reason = status::protocol_error) {
        EXPECT_EQ(await(channel_, call_), status::peer_lost);
        EXPECT_EQ(call_.response_bytes, 0U);
        EXPECT_EQ(device::release(channel_, call_), status::ok);
        device::call_ref next;
        EXPECT_EQ(device::begin(channel_, next), status::peer_lost);
        std::array<core::link_event, 16> events;
        ASSERT_EQ(rig_->poller->poll(events), 1U);
        EXPECT_EQ(events[0].kind, core::event_kind::lost);
        EXPECT_EQ(events[0].reason, reason);
        EXPECT_EQ(rig_->poller->poll(events), 0U);
    }
    /// Of the session, while a call is held. Whoever finds no slot looks.
    void expect_end() {
        device::call_ref other;
        ASSERT_EQ(device::begin(channel_, other), status::ok);
        device::call_ref none;
        EXPECT_TRUE(eventually(patience(5s), [&] { return device::begin(channel_, none) == status::peer_lost; }));
        EXPECT_EQ(device::release(channel_, other), status::ok);
    }
    void expect_answered(const bare_client::request& answer, status outcome = status::ok) {
        server().post(answer);
        EXPECT_EQ(server().outcome(), mlx5::syndrome::none);
        EXPECT_EQ(await(channel_, call_), outcome);
        EXPECT_EQ(device::release(channel_, call_), status::ok);
    }

    std::unique_ptr<bare_server_rig> rig_;
    device::channel_ref channel_;
    device::call_ref call_;
};

TEST_P(device_hostile_server, correct_answers_are_taken) {
    for (int i = 0; i < 12; ++i) {  // it has receives for 16
        auto answer = submit();
        EXPECT_TRUE(
            eventually(patience(5s), [&] { return server().answer(call_.slot).generation == call_.generation; }));
        expect_answered(answer);
    }
}

TEST_P(device_hostile_server, an_answer_for_a_slot_beyond_the_last_ends_the_channel) {
    auto answer = submit();
    answer.immediate = shape.slots;
    server().post(answer);
    expect_lost();
}

TEST_P(device_hostile_server, an_answer_for_a_free_slot_ends_the_channel) {
    auto answer = submit();
    answer.immediate = 1 - call_.slot;
    server().post(answer);
    expect_lost();
}

TEST_P(device_hostile_server, an_answer_before_its_request_ends_the_channel) {
    ASSERT_EQ(device::begin(channel_, call_), status::ok);
    server().post(answer_to(call_));
    expect_end();
    EXPECT_EQ(device::submit(channel_, call_, 8), status::peer_lost);
    EXPECT_EQ(device::release(channel_, call_), status::ok);
}

TEST_P(device_hostile_server, a_second_answer_ends_the_channel) {
    auto answer = submit();
    server().post(answer);
    EXPECT_EQ(await(channel_, call_), status::ok);
    server().post(answer);
    expect_end();
    // What was answered stays so.
    EXPECT_EQ(device::poll(channel_, call_), status::ok);
    EXPECT_EQ(device::release(channel_, call_), status::ok);
}

TEST_P(device_hostile_server, a_header_of_another_slot_ends_the_channel) {
    auto answer = submit();
    answer.header.slot = 1 - call_.slot;
    server().post(answer);
    expect_lost();
}

TEST_P(device_hostile_server, another_generation_ends_the_channel) {
    auto answer = submit();
    answer.header.generation = call_.generation + 1;
    server().post(answer);
    expect_lost();
}

TEST_P(device_hostile_server, the_answer_to_an_earlier_call_ends_the_channel) {
    const auto first = submit();
    expect_answered(first);
    (void)submit();
    server().post(first);
    expect_lost();
}

TEST_P(device_hostile_server, an_announcement_without_a_header_ends_the_channel) {
    auto answer = submit();
    answer.length = 0;
    server().post(answer);
    expect_lost();
}

TEST_P(device_hostile_server, a_request_as_an_answer_ends_the_channel) {
    auto answer = submit();
    answer.header.kind = core::message_kind::request;
    server().post(answer);
    expect_lost();
}

TEST_P(device_hostile_server, another_version_ends_the_channel) {
    auto answer = submit();
    answer.header.version = 9;
    server().post(answer);
    expect_lost();
}

TEST_P(device_hostile_server, an_unknown_status_ends_the_channel) {
    auto answer = submit();
    answer.header.code = static_cast<status>(status_count);
    server().post(answer);
    expect_lost();
}

TEST_P(device_hostile_server, a_response_longer_than_its_slot_ends_the_channel) {
    auto answer = submit();
    answer.header.length = shape.response_bytes + 1;
    server().post(answer);
    expect_lost();
}

TEST_P(device_hostile_server, a_text_longer_than_its_slot_ends_the_channel) {
    auto answer = submit();
    answer.header.code = status::application_error;
    answer.header.length = ~std::uint64_t{0};
    server().post(answer);
    expect_lost();
}

TEST_P(device_hostile_server, a_response_longer_than_the_call_wanted_ends_the_channel) {
    ASSERT_EQ(device::begin(channel_, call_), status::ok);
    device::call_options with;
    with.max_bytes = 16;
    ASSERT_EQ(device::submit(channel_, call_, 8, with), status::ok);
    auto answer = answer_to(call_);
    answer.header.length = 17;
    server().post(answer);
    expect_lost();
}

TEST_P(device_hostile_server, an_answer_with_status_again_becomes_overloaded) {
    auto answer = submit();
    answer.header.code = status::again;
    expect_answered(answer, status::overloaded);
}

TEST_P(device_hostile_server, a_destroyed_queue_pair_of_the_server_ends_the_channel) {
    rig_->server.reset();
    ASSERT_EQ(device::begin(channel_, call_), status::ok);
    ASSERT_EQ(device::submit(channel_, call_, 8), status::ok);
    expect_lost(status::peer_lost);
    const auto first = static_cast<mlx5::syndrome>(channel_.report->failure >> 16);
    EXPECT_EQ(first, mlx5::syndrome::retries_exceeded);
}

TEST_P(device_hostile_server, wrong_link_descriptions_are_refused) {
    verbs::endpoint narrow = verbs::parse_endpoint(server().describe()).value();
    narrow.slots = 1;
    const auto deadline = core::deadline_after(patience(5s));
    EXPECT_EQ(rig_->link->attach({1, {}, {}, verbs::to_bytes(narrow)}, deadline).error().code, status::protocol_error);
    EXPECT_EQ(rig_->link->attach({1, {}, {}, core::link_description(7)}, deadline).error().code,
              status::protocol_error);
}

INSTANTIATE_TEST_SUITE_P(by, device_hostile_server, ::testing::Values(gpu_engine::direct, gpu_engine::proxy),
                         [](const auto& by) { return by.param == gpu_engine::proxy ? "proxy" : "direct"; });

}  // namespace
}  // namespace accel::tests
