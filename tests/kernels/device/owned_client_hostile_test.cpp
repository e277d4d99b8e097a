// SPDX-License-Identifier: Apache-2.0
// Servers that do with their queue pair what no correct server does, to a channel that a kernel owns (this thread is in
// its place). The channel ends, or its own calls have wrong answers, and nothing else happens.
#include "conformance/payload.hpp"
#include "device/bare_server_rig.hpp"

#include <atomic>
#include <functional>
#include <memory>

namespace accel::tests {
namespace {

constexpr core::link_geometry shape = bare_server_rig::shape;

/// A channel and its server.
class lied_to : public bare_server_rig {
  public:
    explicit lied_to(gpu_engine engine) : bare_server_rig(engine, service_sharing::exclusive) {}
    [[nodiscard]] result<void> attach() {
        auto attached = bare_server_rig::attach();
        if (!attached) return attached;
        EXPECT_EQ(device::own(poller->channel(), mine), status::ok);
        return attached;
    }
    /// Submits a call; the answer to it as a correct server gives it, to be spoilt.
    bare_client::request submit(const device::call_options& with = {}) {
        EXPECT_EQ(device::begin(mine, call), status::ok);
        EXPECT_EQ(device::submit(mine, call, 8, with), status::ok);
        return answer_to(call);
    }
    void post(const bare_client::request& answer) {
        server->post(answer);
        EXPECT_EQ(server->outcome(), mlx5::syndrome::none);
    }
    void expect_served() {
        auto answer = submit();
        post(answer);
        EXPECT_EQ(await(mine, call), status::ok);
        EXPECT_EQ(device::release(mine, call), status::ok);
    }

    device::owned_channel mine;
    device::call_ref call;
};

class owned_hostile_server : public ::testing::TestWithParam<gpu_engine> {
  protected:
    void SetUp() override {
        if (!has(GetParam())) GTEST_SKIP() << "this device has no queues to drive";
        evil_ = std::make_unique<lied_to>(GetParam());
        good_ = std::make_unique<lied_to>(GetParam());
        ASSERT_TRUE(evil_->attach().ok());
        ASSERT_TRUE(good_->attach().ok());
    }
    void expect_event(status reason) {
        std::array<core::link_event, 16> events;
        ASSERT_TRUE(eventually(patience(5s), [&] { return evil_->poller->poll(events) == 1; }));
        EXPECT_EQ(events[0].kind, core::event_kind::lost);
        EXPECT_EQ(events[0].reason, reason);
    }
    void expect_lost(status reason = status::protocol_error) {
        EXPECT_EQ(await(evil_->mine, evil_->call), status::peer_lost);
        EXPECT_EQ(evil_->call.response_bytes, 0U);
        EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
        device::call_ref next;
        EXPECT_EQ(device::begin(evil_->mine, next), status::peer_lost);
        expect_event(reason);
        good_->expect_served();
    }
    std::unique_ptr<lied_to> evil_;
    std::unique_ptr<lied_to> good_;
};

TEST_P(owned_hostile_server, correct_answers_are_taken) {
    for (int i = 0; i < 40; ++i) evil_->expect_served();
}

/// A write of an answer's last word alone.
bare_client::request last_word_of(bare_client::request answer) {
    answer.header.version = static_cast<std::uint8_t>(answer.header.generation);  // becomes the last word
    answer.header.kind = {};
    answer.length = 4;
    answer.address += wire::arrival_word_offset;
    return answer;
}

TEST_P(owned_hostile_server, an_arrival_word_without_a_header_ends_the_channel) {
    evil_->post(last_word_of(evil_->submit()));
    expect_lost();
}

/// The adapter may write a header in any order.
TEST_P(owned_hostile_server, a_partly_written_header_is_read_again) {
    for (int round = 0; round < 3; ++round) {
        const auto answer = evil_->submit();
        evil_->post(last_word_of(answer));
        for (std::uint32_t i = 0; i < device::detail::max_torn / 2; ++i)
            ASSERT_EQ(device::poll(evil_->mine, evil_->call), status::again);
        evil_->post(answer);
        // Not as often as a thread can: a strict device brings it a while after its completion.
        status seen = status::again;
        EXPECT_TRUE(eventually(patience(5s), [&] {
            seen = device::poll(evil_->mine, evil_->call);
            return seen != status::again;
        }));
        EXPECT_EQ(seen, status::ok);
        EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
    }
}

TEST_P(owned_hostile_server, a_call_whose_response_stays_incomplete_times_out) {
    evil_->post(last_word_of(evil_->submit({.timeout_ns = 1})));
    EXPECT_EQ(device::poll(evil_->mine, evil_->call), status::timed_out);
    EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
    evil_->expect_served();
}

/// Before there is a call: it is answered at once, and with what is not meant for it.
TEST_P(owned_hostile_server, an_answer_before_its_request_spoils_only_that_call) {
    ASSERT_EQ(device::begin(evil_->mine, evil_->call), status::ok);
    evil_->post(evil_->answer_to(evil_->call));
    EXPECT_EQ(device::submit(evil_->mine, evil_->call, 8), status::ok);
    EXPECT_EQ(await(evil_->mine, evil_->call), status::ok);
    EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
    good_->expect_served();
    evil_->expect_served();
}

TEST_P(owned_hostile_server, another_generation_answers_nothing) {
    constexpr std::int64_t hasty = 50'000'000;
    auto answer = evil_->submit({.timeout_ns = hasty});
    answer.header.arrival_word = answer.header.generation = evil_->call.generation + 1;
    evil_->post(answer);
    EXPECT_EQ(await(evil_->mine, evil_->call), status::timed_out);
    EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
    evil_->expect_served();
}

TEST_P(owned_hostile_server, a_second_answer_changes_nothing) {
    const auto answer = evil_->submit();
    evil_->post(answer);
    EXPECT_EQ(await(evil_->mine, evil_->call), status::ok);
    auto again = answer;
    again.header.length = 7;
    again.header.code = status::application_error;
    evil_->post(again);
    EXPECT_EQ(device::poll(evil_->mine, evil_->call), status::ok);
    EXPECT_EQ(evil_->call.response_bytes, answer.header.length);
    EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
    evil_->expect_served();
}

TEST_P(owned_hostile_server, headers_that_no_correct_server_sends_end_the_channel) {
    using spoil = std::function<void(bare_client::request&)>;
    const std::vector<spoil> all{
        [](auto& answer) { answer.header.slot = 1 - answer.header.slot; },
        [](auto& answer) { answer.header.generation += 1; },
        [](auto& answer) { answer.header.kind = core::message_kind::request; },
        [](auto& answer) { answer.header.version = 9; },
        [](auto& answer) { answer.header.code = static_cast<status>(status_count); },
        [](auto& answer) { answer.header.length = shape.response_bytes + 1; },
        [](auto& answer) {
            answer.header.code = status::application_error;
            answer.header.length = ~std::uint64_t{0};
        },
        [](auto& answer) { answer.header.extension_bytes = 7; },
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
        SCOPED_TRACE(i);
        evil_ = std::make_unique<lied_to>(GetParam());
        ASSERT_TRUE(evil_->attach().ok());
        auto answer = evil_->submit();
        all[i](answer);
        evil_->post(answer);
        expect_lost();
    }
}

TEST_P(owned_hostile_server, a_response_longer_than_the_call_wanted_ends_the_channel) {
    auto answer = evil_->submit({.max_bytes = 16});
    answer.header.length = 17;
    evil_->post(answer);
    expect_lost();
}

TEST_P(owned_hostile_server, an_answer_with_status_again_becomes_overloaded) {
    auto answer = evil_->submit();
    answer.header.code = status::again;
    evil_->post(answer);
    EXPECT_EQ(await(evil_->mine, evil_->call), status::overloaded);
    EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
}

/// Whatever a call reads while its header changes, it reads once.
TEST_P(owned_hostile_server, a_server_that_never_stops_writing_spoils_only_its_own_calls) {
    for (int i = 0; i < effort(60); ++i) {
        auto answer = evil_->submit({.timeout_ns = 200'000'000});
        std::atomic<bool> over{false};
        std::thread server([&] {
            for (std::uint64_t k = 0; !over; ++k) {
                answer.header.length = k % 2 == 0 ? 8 : 200;
                evil_->post(answer);
            }
        });
        const status found = await(evil_->mine, evil_->call);
        const std::uint64_t length = evil_->call.response_bytes;
        EXPECT_TRUE(found == status::ok || found == status::timed_out) << to_string(found);
        EXPECT_TRUE(found != status::ok || length == 8 || length == 200) << length;
        EXPECT_EQ(device::poll(evil_->mine, evil_->call), found);
        EXPECT_EQ(evil_->call.response_bytes, length);
        good_->expect_served();
        over = true;
        server.join();
        EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
    }
}

// No receive is ever posted: the sender waits in its device, as long as its session lives.
TEST_P(owned_hostile_server, immediate_data_harms_no_other_channel) {
    auto answer = evil_->submit({.timeout_ns = 50'000'000});
    answer.operation = mlx5::opcode::write_immediate;
    evil_->server->post(answer);
    for (int i = 0; i < 5; ++i) good_->expect_served();
    (void)await(evil_->mine, evil_->call);
    EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
}

TEST_P(owned_hostile_server, a_destroyed_queue_pair_of_the_server_ends_the_channel) {
    evil_->server.reset();
    ASSERT_EQ(device::begin(evil_->mine, evil_->call), status::ok);
    ASSERT_EQ(device::submit(evil_->mine, evil_->call, 8), status::ok);
    if (GetParam() == gpu_engine::direct) {
        expect_lost(status::peer_lost);
        const auto first = static_cast<mlx5::syndrome>(evil_->mine.channel.report->failure >> 16);
        EXPECT_EQ(first, mlx5::syndrome::retries_exceeded);
        return;
    }
    // By proxy the host hears of it, and tells.
    expect_event(status::peer_lost);
    evil_->poller->end(status::peer_lost);
    EXPECT_EQ(await(evil_->mine, evil_->call), status::peer_lost);
    EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
}

INSTANTIATE_TEST_SUITE_P(by, owned_hostile_server, ::testing::Values(gpu_engine::direct, gpu_engine::proxy),
                         [](const auto& by) { return by.param == gpu_engine::proxy ? "proxy" : "direct"; });

}  // namespace
}  // namespace accel::tests
