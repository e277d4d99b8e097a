// SPDX-License-Identifier: Apache-2.0
// A server over tcp that streams wrong parts: the call ends once, with a typed error and in time, and the wrong part
// is not shown.
#include "core/control/data_preamble.hpp"
#include "core/protocol.hpp"
#include "hostile/far_server.hpp"

#include <array>

namespace accel::hostile {
namespace {

using core::slot_header;

constexpr std::size_t response_bytes = 256;
constexpr std::uint32_t rooms = 2;

/// What the server has heard of one call, and how it answers.
struct streamed_call {
    far_end& end;
    slot_header request;
    std::vector<slot_header> room;

    static std::optional<streamed_call> hear(far_end& end, std::uint32_t expected_rooms) {
        streamed_call out{end, {}, {}};
        for (std::uint32_t i = 0; i <= expected_rooms; ++i) {
            while (end.stream.received().size() < sizeof(slot_header))
                if (!end.read_more()) return std::nullopt;
            slot_header header;
            std::memcpy(&header, end.stream.received().data(), sizeof header);
            end.stream.take(sizeof header);
            if ((header.flags & core::header_flag::more) != 0)
                out.room.push_back(header);
            else
                out.request = header;
        }
        return out;
    }
    [[nodiscard]] static slot_header answer_to(const slot_header& asked, std::uint64_t before, std::size_t length) {
        slot_header out;
        out.kind = core::message_kind::response;
        out.slot = asked.slot;
        out.generation = asked.generation;
        out.parts_before = before;
        out.length = length;
        return out;
    }
    void say(const slot_header& header) const {
        std::vector<std::byte> bytes(sizeof header + header.length);
        std::memcpy(bytes.data(), &header, sizeof header);
        end.say(bytes);
    }
    void part(std::size_t which, std::uint64_t number, std::size_t length = 8) const {
        slot_header header = answer_to(room[which], number, length);
        header.flags = core::header_flag::more;
        say(header);
    }
    void last(std::uint64_t count) const { say(answer_to(request, count, 8)); }
};

struct far_parts : ::testing::Test {
    struct outcome {
        std::size_t parts = 0;
        std::size_t last = 0;
        status ended = status::ok;
        bool connected = true;
    };
    /// Makes one call, to which the server does this. Waits for its last completion, and whether the session ends.
    outcome call(const std::function<void(const streamed_call&)>& stream, std::uint32_t given = rooms) {
        far_server server([&](far_end& end) {
            if (!end.greeted()) return attach(end, stream, given);
            const auto asked = end.await<core::hello>();
            if (asked) end.say(welcome_to(*asked, long_silence));
            while (end.await<core::heartbeat>()) end.say(control_message{0, core::heartbeat{}});
        });
        channel_options options;
        options.slots = 4;
        options.request_bytes = 64;
        options.response_bytes = response_bytes;
        options.connect_timeout = patience(2s);
        options.peer_timeout = long_silence;
        auto made = channel::connect(ctx, server.uri(), options);
        EXPECT_TRUE(made.ok());
        return made.ok() ? finish(*made, given) : outcome{};
    }

  private:
    // Longer than the calls are watched: silence ends none of them, at neither end.
    static inline const core::nanoseconds long_silence = patience(8s);

    static void attach(far_end& end, const std::function<void(const streamed_call&)>& stream, std::uint32_t given) {
        while (end.stream.received().size() < sizeof(core::data_preamble))
            if (!end.read_more()) return;
        end.stream.take(sizeof(core::data_preamble));
        end.say(core::encode_data_answer(status::ok, {}));
        if (const auto one = streamed_call::hear(end, given)) stream(*one);
        end.stay();
    }
    static outcome finish(channel& made, std::uint32_t given) {
        outcome out;
        std::vector<call_id> held;  // until the end, so that no room goes back meanwhile
        call_view view;
        EXPECT_EQ(made.begin(view), status::ok);
        submit_options with;
        with.parts = given;
        with.timeout = patience(5s);
        EXPECT_EQ(made.submit(view.id, 0, with), status::ok);
        const auto start = core::now();
        // Some end the session only behind the last completion.
        for (auto until = start + patience(3s); core::now() < until && made.connected();) {
            std::array<completion, 4> got;
            const std::size_t count = made.wait(got, 20ms);
            for (const completion& each : std::span{got}.first(count)) {
                EXPECT_LE(each.response.size(), response_bytes);
                ++(each.more ? out.parts : out.last);
                if (!each.more) out.ended = each.status;
                if (!each.more) until = std::min(until, core::now() + patience(300ms));
                held.push_back(each.id);
            }
        }
        out.connected = made.connected();
        for (const call_id each : held) EXPECT_EQ(made.release(each), status::ok);
        return out;
    }

  protected:
    void expect_ended(const std::function<void(const streamed_call&)>& stream, std::size_t shown,
                      std::uint32_t given = rooms) {
        const outcome got = call(stream, given);
        EXPECT_EQ(got.last, 1U);
        EXPECT_EQ(got.ended, status::peer_lost) << to_string(got.ended);  // or it broke the protocol
        EXPECT_EQ(got.parts, shown);
        EXPECT_FALSE(got.connected);
    }
    context ctx = *context::open({.log = log_level::off});
};

TEST_F(far_parts, parts_of_a_correct_server_are_taken) {
    const outcome got = call([](const streamed_call& of) {
        of.part(1, 0);
        of.part(0, 1);
        of.last(2);
    });
    EXPECT_EQ(got.parts, 2U);
    EXPECT_EQ(got.last, 1U);
    EXPECT_EQ(got.ended, status::ok) << to_string(got.ended);
    EXPECT_TRUE(got.connected);
}

TEST_F(far_parts, parts_without_room_end_the_session) {
    // Twice into one room; under another generation; into a slot that was never lent.
    expect_ended(
        [](const streamed_call& of) {
            of.part(0, 0);
            of.part(0, 1);
        },
        1);
    expect_ended(
        [](const streamed_call& of) {
            streamed_call wrong = of;
            ++wrong.room[0].generation;
            wrong.part(0, 0);
        },
        0);
    expect_ended(
        [](const streamed_call& of) {
            streamed_call wrong = of;
            wrong.room[0].slot =
                6 - of.room[0].slot - of.room[1].slot - of.request.slot;  // the one of four that is left
            wrong.part(0, 0);
        },
        0);
    expect_ended(
        [](const streamed_call& of) {
            streamed_call wrong = of;
            wrong.room[0].slot = 0xffff'fff0;
            wrong.part(0, 0);
        },
        0);
}

TEST_F(far_parts, parts_longer_than_their_memory_end_the_session) {
    expect_ended([](const streamed_call& of) { of.part(0, 0, response_bytes + 1); }, 0);
    expect_ended(
        [](const streamed_call& of) {
            slot_header endless = streamed_call::answer_to(of.room[0], 0, 8);
            endless.flags = core::header_flag::more;
            endless.length = std::uint64_t{1} << 62;
            std::vector<std::byte> bytes(sizeof endless);
            std::memcpy(bytes.data(), &endless, sizeof endless);
            of.end.say(bytes);
        },
        0);
}

TEST_F(far_parts, repeated_or_skipped_part_numbers_end_the_session) {
    expect_ended(
        [](const streamed_call& of) {
            of.part(0, 0);
            of.part(1, 0);
        },
        1);
    expect_ended([](const streamed_call& of) { of.part(0, 4); }, 0);
    expect_ended([](const streamed_call& of) { of.part(0, ~std::uint64_t{0}); }, 0);
    // Two that are early, of one number.
    expect_ended(
        [](const streamed_call& of) {
            of.part(0, 1);
            of.part(1, 1);
        },
        0);
}

TEST_F(far_parts, a_wrong_number_of_parts_in_the_last_response_ends_the_session) {
    expect_ended(
        [](const streamed_call& of) {
            of.part(0, 0);
            of.last(0);
        },
        1);
    expect_ended([](const streamed_call& of) { of.last(rooms + 1); }, 0);
}

TEST_F(far_parts, parts_of_a_call_without_room_end_the_session) {
    const auto as_part = [](const streamed_call& of) {
        slot_header header = streamed_call::answer_to(of.request, 0, 8);
        header.flags = core::header_flag::more;
        of.say(header);
    };
    expect_ended(as_part, 0, 0);
    expect_ended(as_part, 0);
}

TEST_F(far_parts, parts_after_the_last_response_are_dropped) {
    // The room has no open call any more: what comes is dropped, and the session goes on.
    const outcome crossed = call([](const streamed_call& of) {
        of.last(0);
        of.part(0, 0);
    });
    EXPECT_EQ(crossed.parts, 0U);
    EXPECT_EQ(crossed.last, 1U);
    EXPECT_EQ(crossed.ended, status::ok);
    // A second last response is one to no call.
    const outcome twice = call([](const streamed_call& of) {
        of.last(0);
        of.last(0);
    });
    EXPECT_EQ(twice.last, 1U);
    EXPECT_EQ(twice.ended, status::ok);
    EXPECT_FALSE(twice.connected);
}

}  // namespace
}  // namespace accel::hostile
