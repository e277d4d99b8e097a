// SPDX-License-Identifier: Apache-2.0
// Servers that do with their queue pair what no correct server does, to a channel of a GPU (this thread is in the
// kernel's place). The channel ends, its calls with it, or its own calls have wrong answers; nothing else happens.
#include "conformance/payload.hpp"
#include "device/bare_server_rig.hpp"

#include <atomic>
#include <memory>

namespace accel::tests {
namespace {

constexpr core::link_geometry shape = bare_server_rig::shape;

/// A channel and its server.
class lied_to : public bare_server_rig {
  public:
    explicit lied_to(const service_setting& way) : bare_server_rig(way.engine, way.sharing) {}
    void attach() {
        auto attached = bare_server_rig::attach();
        ASSERT_TRUE(attached.ok()) << attached.error().message;
        ASSERT_EQ(device::own(poller->channel(), mine), status::ok);
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
    void expect_answered(const bare_client::request& answer, status outcome = status::ok) {
        post(answer);
        EXPECT_EQ(await(mine, call), outcome);
        EXPECT_EQ(call.response_bytes, answer.header.length);
        EXPECT_EQ(device::release(mine, call), status::ok);
    }
    /// At most 16 times: the server has this number of receives.
    void expect_served() { expect_answered(submit()); }

    device::owned_channel mine;  ///< also of a shared channel
    device::call_ref call;
};

class hostile_server : public ::testing::TestWithParam<service_setting> {
  protected:
    void SetUp() override {
        if (!has(GetParam().engine)) GTEST_SKIP() << "this device has no queues to drive";
        connect();
        good_ = std::make_unique<lied_to>(GetParam());
        good_->attach();
    }
    void connect() {
        evil_ = std::make_unique<lied_to>(GetParam());
        evil_->attach();
    }
    void expect_event(status reason) {
        std::array<core::link_event, 16> events;
        ASSERT_TRUE(eventually([&] { return evil_->poller->poll(events) == 1; }));
        EXPECT_EQ(events[0].kind, core::event_kind::lost);
        EXPECT_EQ(events[0].reason, reason);
        EXPECT_EQ(evil_->poller->poll(events), 0U);
    }
    void expect_lost(status reason = status::protocol_error) {
        EXPECT_EQ(await(evil_->mine, evil_->call), status::peer_lost);
        EXPECT_EQ(evil_->call.response_bytes, 0U);
        EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
        EXPECT_EQ(begins(evil_->mine), status::peer_lost);
        expect_event(reason);
    }
    std::unique_ptr<lied_to> evil_;
    std::unique_ptr<lied_to> good_;
};
/// Whose answers immediate data announces.
class shared_hostile_server : public hostile_server {
  protected:
    /// Of the session, while a call is held. Whoever finds no slot looks.
    void expect_end() {
        device::call_ref other;
        ASSERT_EQ(device::begin(evil_->mine, other), status::ok);
        EXPECT_TRUE(eventually([&] { return begins(evil_->mine) == status::peer_lost; }));
        EXPECT_EQ(device::release(evil_->mine, other), status::ok);
    }
};
/// Whose answers their caller finds in its slots.
class owned_hostile_server : public hostile_server {};

/// An answer that no correct server sends to a call that takes `longest` bytes.
struct wrong_answer {
    const char* name;
    void (*spoil)(bare_client::request&);
    bool announced_only = false;
    std::uint64_t longest = 0;  ///< 0: as agreed
};
constexpr wrong_answer wrong_answers[] = {
    {"another slot", [](auto& sent) { sent.header.slot = 1 - sent.header.slot; }},
    {"a slot beyond the last", [](auto& sent) { sent.header.slot = shape.slots; }},
    {"a later generation", [](auto& sent) { ++sent.header.generation; }},
    {"an earlier generation", [](auto& sent) { --sent.header.generation; }},
    {"a request", [](auto& sent) { sent.header.kind = core::message_kind::request; }},
    {"another version", [](auto& sent) { sent.header.version = 9; }},
    {"an unknown flag", [](auto& sent) { sent.header.flags = 0x8000; }},
    {"a part", [](auto& sent) { sent.header.flags = core::header_flag::more; }},
    {"an unknown status", [](auto& sent) { sent.header.code = static_cast<status>(status_count); }},
    {"longer than its slot", [](auto& sent) { sent.header.length = shape.response_bytes + 1; }},
    {"longer than the call wanted", [](auto& sent) { sent.header.length = 17; }, false, 16},
    {"a text longer than its slot",
     [](auto& sent) {
         sent.header.code = status::application_error;
         sent.header.length = shape.response_bytes + 1;
     }},
    {"a text longer than any",
     [](auto& sent) {
         sent.header.code = status::application_error;
         sent.header.length = ~std::uint64_t{0};
     }},
    {"extensions of 7 bytes", [](auto& sent) { sent.header.extension_bytes = 7; }},
    {"an announced slot beyond the last", [](auto& sent) { sent.immediate = shape.slots; }, true},
    {"an announced slot that is free", [](auto& sent) { sent.immediate = 1 - sent.immediate; }, true},
    {"an announcement alone", [](auto& sent) { sent.length = 0; }, true},
};

TEST_P(hostile_server, wrong_answers_end_the_channel) {
    for (const wrong_answer& each : wrong_answers) {
        if (each.announced_only && GetParam().sharing == owned) continue;
        for (const int served_before : {0, 12}) {
            SCOPED_TRACE(::testing::Message() << each.name << ", after " << served_before);
            connect();
            for (int i = 0; i < served_before; ++i) evil_->expect_served();
            auto answer = evil_->submit({.max_bytes = each.longest});
            each.spoil(answer);
            evil_->server->post(answer);
            expect_lost();
        }
    }
    good_->expect_served();
}

/// The good side of what is refused beyond it.
TEST_P(hostile_server, answers_at_the_limits_are_taken) {
    for (const std::uint64_t longest : {std::uint64_t{16}, shape.response_bytes}) {
        auto answer = evil_->submit({.max_bytes = longest});
        answer.header.length = longest;
        evil_->expect_answered(answer);
        answer = evil_->submit({.max_bytes = longest});
        answer.header.code = status::application_error;
        answer.header.length = shape.response_bytes;  // a text may need more room than the call gave
        evil_->expect_answered(answer, status::application_error);
        answer = evil_->submit();
        answer.header.code = status::again;
        evil_->expect_answered(answer, status::overloaded);
    }
}

TEST_P(hostile_server, a_destroyed_queue_pair_of_the_server_ends_the_channel) {
    evil_->server.reset();
    ASSERT_EQ(device::begin(evil_->mine, evil_->call), status::ok);
    ASSERT_EQ(device::submit(evil_->mine, evil_->call, 8), status::ok);
    const bool host_hears = GetParam().sharing == owned && GetParam().engine == gpu_engine::proxy;
    if (!host_hears) {
        expect_lost(status::peer_lost);
        const auto first = static_cast<mlx5::syndrome>(evil_->mine.channel.report->failure >> 16);
        EXPECT_EQ(first, mlx5::syndrome::retries_exceeded);
    } else {
        expect_event(status::peer_lost);
        evil_->poller->end(status::peer_lost);
        EXPECT_EQ(await(evil_->mine, evil_->call), status::peer_lost);
        EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
    }
    good_->expect_served();
}

TEST_P(hostile_server, wrong_link_descriptions_are_refused) {
    verbs::endpoint narrow = verbs::parse_endpoint(evil_->server->describe()).value();
    narrow.slots = 1;
    const auto deadline = core::deadline_after(patience(5s));
    for (const core::link_description& wrong : {verbs::to_bytes(narrow), core::link_description(7)})
        EXPECT_EQ(evil_->link->attach({1, {}, {}, wrong}, deadline).error().code, status::protocol_error);
}

TEST_P(shared_hostile_server, an_answer_before_its_request_ends_the_channel) {
    ASSERT_EQ(device::begin(evil_->mine, evil_->call), status::ok);
    evil_->server->post(evil_->answer_to(evil_->call));
    expect_end();
    EXPECT_EQ(device::submit(evil_->mine, evil_->call, 8), status::peer_lost);
    EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
}

TEST_P(shared_hostile_server, a_second_answer_ends_the_channel) {
    const auto answer = evil_->submit();
    evil_->server->post(answer);
    EXPECT_EQ(await(evil_->mine, evil_->call), status::ok);
    evil_->server->post(answer);
    expect_end();
    EXPECT_EQ(device::poll(evil_->mine, evil_->call), status::ok) << "what was answered stays so";
    EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
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
    good_->expect_served();
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
        EXPECT_TRUE(eventually([&] {
            seen = device::poll(evil_->mine, evil_->call);
            return seen != status::again;
        }));
        EXPECT_EQ(seen, status::ok);
        EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
    }
}

TEST_P(owned_hostile_server, a_call_without_a_whole_answer_times_out) {
    evil_->post(last_word_of(evil_->submit({.timeout_ns = 1})));
    EXPECT_EQ(device::poll(evil_->mine, evil_->call), status::timed_out);
    EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
    auto answer = evil_->submit({.timeout_ns = 50'000'000});
    answer.header.arrival_word = answer.header.generation = evil_->call.generation + 1;
    evil_->post(answer);
    EXPECT_EQ(await(evil_->mine, evil_->call), status::timed_out) << "another generation answers nothing";
    EXPECT_EQ(device::release(evil_->mine, evil_->call), status::ok);
    good_->expect_served();
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

constexpr service_setting by_direct{false, gpu_engine::direct};
constexpr service_setting by_proxy{false, gpu_engine::proxy};
constexpr service_setting owned_by_direct{false, gpu_engine::direct, owned};
constexpr service_setting owned_by_proxy{false, gpu_engine::proxy, owned};
constexpr auto name_of_way = [](const auto& by) { return name_of(by.param); };
INSTANTIATE_TEST_SUITE_P(by, hostile_server, ::testing::Values(by_direct, by_proxy, owned_by_direct, owned_by_proxy),
                         name_of_way);
INSTANTIATE_TEST_SUITE_P(by, shared_hostile_server, ::testing::Values(by_direct, by_proxy), name_of_way);
INSTANTIATE_TEST_SUITE_P(by, owned_hostile_server, ::testing::Values(owned_by_direct, owned_by_proxy), name_of_way);

}  // namespace
}  // namespace accel::tests
