// SPDX-License-Identifier: Apache-2.0
// A server over tcp that streams wrong parts: the call ends once, with a typed error and in time, and the wrong part
// is not shown.
#include "core/control/data_preamble.hpp"
#include "core/protocol.hpp"
#include "hostile/far_server.hpp"

#include <array>
#include <optional>
#include <utility>
#include <vector>

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
        const auto view = made.begin();
        EXPECT_EQ(view.code(), status::ok);
        submit_options with;
        with.parts = given;
        with.timeout = patience(5s);
        EXPECT_EQ(made.submit(view->id, 0, with), status::ok);
        const auto start = core::now();
        // Some end the session only behind the last completion.
        for (auto until = start + patience(3s); core::now() < until && made.connected();) {
            std::array<completion, 4> got;
            const std::size_t count = made.wait(got, 20ms);
            for (completion& each : std::span{got}.first(count)) {
                EXPECT_LE(each.response.size(), response_bytes);
                ++(each.more ? out.parts : out.last);
                if (!each.more) out.ended = each.status;
                if (!each.more) until = std::min(until, core::now() + patience(300ms));
                held.push_back(each.detach());
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

/// One by one: what a server streams, how many parts the client shows, and for how much room it has asked.
TEST_F(far_parts, wrong_parts_end_the_session) {
    struct misdeed {
        const char* name;
        std::function<void(const streamed_call&)> stream;
        std::size_t shown = 0;
        std::uint32_t given = rooms;
    };
    const auto part_of = [](const slot_header& asked, std::uint64_t claimed, std::size_t sent) {
        slot_header header = streamed_call::answer_to(asked, 0, claimed);
        header.flags = core::header_flag::more;
        std::vector<std::byte> bytes(sizeof header + sent);
        std::memcpy(bytes.data(), &header, sizeof header);
        return bytes;
    };
    const auto from_slot = [](const streamed_call& of, std::uint32_t slot, std::uint32_t generation) {
        streamed_call wrong = of;
        wrong.room[0].slot = slot;
        wrong.room[0].generation = generation;
        wrong.part(0, 0);
    };
    const auto parts = [](std::vector<std::pair<std::size_t, std::uint64_t>> all, std::optional<std::uint64_t> count) {
        return [all = std::move(all), count](const streamed_call& of) {
            for (const auto& [room, number] : all) of.part(room, number);
            if (count) of.last(*count);
        };
    };
    const auto of_call = [&](const streamed_call& of) { of.end.say(part_of(of.request, 8, 8)); };
    const std::vector<misdeed> all{
        {"twice into one room", parts({{0, 0}, {0, 1}}, {}), 1},
        {"another generation", [&](auto& of) { from_slot(of, of.room[0].slot, of.room[0].generation + 1); }},
        {"a slot that was never lent",  // the one of four that is left
         [&](auto& of) {
             from_slot(of, 6 - of.room[0].slot - of.room[1].slot - of.request.slot, of.room[0].generation);
         }},
        {"no slot", [&](auto& of) { from_slot(of, 4, of.room[0].generation); }},
        {"far from any slot", [&](auto& of) { from_slot(of, 0xffff'fff0, of.room[0].generation); }},
        {"a byte too long", [](auto& of) { of.part(0, 0, response_bytes + 1); }},
        {"endless", [&](auto& of) { of.end.say(part_of(of.room[0], std::uint64_t{1} << 62, 0)); }},
        {"a number twice", parts({{0, 0}, {1, 0}}, {}), 1},
        {"an early number twice", parts({{0, 1}, {1, 1}}, {})},
        {"a number too high", parts({{0, 4}}, {})},
        {"the highest number", parts({{0, ~std::uint64_t{0}}}, {})},
        {"fewer in the last response", parts({{0, 0}}, 0), 1},
        {"more in the last response", parts({}, rooms + 1)},
        {"a part of a call without room", of_call, 0, 0},
        {"a part into the call's own slot", of_call},
    };
    for (const misdeed& each : all) {
        SCOPED_TRACE(each.name);
        expect_ended(each.stream, each.shown, each.given);
    }
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
