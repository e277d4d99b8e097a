// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "handler_memory.hpp"
#include "payload.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

/// What the random sequences expect of each call.
namespace accel::tests {

/// A sequence of numbers that follows from a seed.
class drawing {
  public:
    explicit drawing(std::uint64_t seed) : state_(mix(seed)) {}
    [[nodiscard]] std::uint64_t operator()(std::uint64_t below) {
        state_ = mix(state_);
        return (state_ >> 8) % below;
    }

  private:
    std::uint64_t state_;
};

struct client_kind {
    std::uint32_t slots = 0;
    std::size_t request_bytes = 0;
    std::size_t response_bytes = 0;
    poll_mode poll = poll_mode::adaptive;
    bool sleeps_on_descriptor = false;
};
inline constexpr std::array<client_kind, 5> client_kinds{{
    {8, 48 << 10, 48 << 10, poll_mode::adaptive, false},
    {1, 1001, 1001, poll_mode::block, false},
    {4, 4096, 16, poll_mode::busy, false},
    {24, 2048, 3000, poll_mode::block, true},
    {256, 64, 64, poll_mode::adaptive, true},
}};

enum class carried { in_slot, lent, in_ranges };
enum class answering { in_handler, by_test, by_another_thread };
enum class way_to_answer {
    well,
    from_lent_memory,
    before_an_exception,
    with_failure,
    with_unknown_status,
    by_drop,
    by_exception,
    by_odd_exception
};

/// A call, and how it ends unless it ends early. All follows from its number, which travels as its trace id: both ends
/// know it.
struct plan {
    static constexpr std::size_t guard_bytes = 8;

    std::uint64_t number;
    client_kind kind;
    std::size_t request = 0;   ///< bytes
    std::size_t response = 0;  ///< bytes
    std::size_t room = 0;      ///< for the response, in bytes
    carried by = carried::in_slot;
    carried into = carried::in_slot;
    answering where = answering::in_handler;
    way_to_answer how = way_to_answer::well;
    std::string_view target;  ///< none, second or nobody
    std::uint32_t part_room = 0;
    std::uint64_t parts = 0;
    std::chrono::nanoseconds timeout{};
    status failure = status::application_error;
    bool long_text = false;
    bool asks_too_much_first = false;
    trace_context trace;
    std::string baggage;

    /// `owner`: which channel's.
    [[nodiscard]] static std::uint64_t number_of(std::size_t kind, std::uint64_t owner, std::uint64_t count) {
        return kind << 56 | owner << 32 | count;
    }
    explicit plan(std::uint64_t number_of_call) : number(number_of_call), kind(client_kinds.at(number >> 56)) {
        drawing draw(number);
        request = length(draw, kind.request_bytes);
        response = length(draw, kind.response_bytes);
        where = std::array{answering::in_handler, answering::in_handler, answering::in_handler, answering::by_test,
                           answering::by_another_thread}
                    .at(draw(5));
        draw_answer(draw);
        draw_parts(draw);
        draw_memory(draw);
        if (draw(6) == 0) target = draw(2) == 0 ? "second" : "nobody";
        if (draw(8) == 0) timeout = std::chrono::nanoseconds{1 + draw(draw(2) == 0 ? 100'000 : 3'000'000)};
        asks_too_much_first = draw(4) == 0;
        draw_trace(draw);
    }

    [[nodiscard]] std::uint64_t owner() const { return number >> 32 & 0xffff; }
    [[nodiscard]] std::uint64_t count() const { return number & 0xffff'ffff; }
    [[nodiscard]] std::uint64_t part_seed(std::uint64_t i) const { return number + 1'000'000'000 * (i + 1); }
    [[nodiscard]] std::size_t part_length(std::uint64_t i) const {
        return mix(part_seed(i)) % (kind.response_bytes + 1);
    }
    [[nodiscard]] std::uint64_t response_seed() const {
        return how == way_to_answer::from_lent_memory ? lent_seed : ~number;
    }
    static constexpr std::uint64_t lent_seed = 42;

    /// Short, in slots, and answered at once.
    [[nodiscard]] bool is_usual() const {
        return kind.response_bytes <= 4096 && by == carried::in_slot && into == carried::in_slot && part_room == 0 &&
               where == answering::in_handler && how == way_to_answer::well;
    }
    [[nodiscard]] status ends_with() const {
        if (target == "nobody") return status::not_found;
        switch (how) {
            case way_to_answer::with_failure:
                return failure;
            case way_to_answer::by_drop:
                return status::abandoned;
            case way_to_answer::with_unknown_status:
            case way_to_answer::by_exception:
            case way_to_answer::by_odd_exception:
                return status::application_error;
            default:
                return status::ok;
        }
    }
    [[nodiscard]] std::uint32_t code() const {
        if (target == "nobody") return unseen_code;
        const bool told = how == way_to_answer::with_failure || how == way_to_answer::with_unknown_status;
        return told ? static_cast<std::uint32_t>(mix(number) | 0x100) : 0;
    }
    /// What a failure says, as far as there is room.
    [[nodiscard]] std::string text() const {
        if (target == "nobody") return handlers_on_gpu() ? "" : "this server has no such target; it has second";
        const bool silent = how == way_to_answer::by_drop || ends_with() == status::ok;
        if (silent) return {};
        if (how == way_to_answer::by_odd_exception) return "an exception not derived from std::exception";
        return (long_text ? std::string(100'000, 'x') : "call ") + std::to_string(number) + " has failed";
    }

    friend std::ostream& operator<<(std::ostream& out, const plan& p) {
        return out << "call " << p.count() << " of client " << p.owner() << " (" << p.request << " bytes by "
                   << static_cast<int>(p.by) << ", " << p.response << " into " << static_cast<int>(p.into) << " of "
                   << p.room << ", answered " << static_cast<int>(p.how) << " at " << static_cast<int>(p.where) << ", "
                   << p.parts << " parts in " << p.part_room << ", target '" << p.target << "', timeout "
                   << p.timeout.count() << " ns)";
    }

  private:
    /// Often at the edge of something.
    static std::size_t length(drawing& draw, std::size_t most) {
        constexpr std::array<std::size_t, 18> edges{0,  1,   2,   3,   7,   8,    9,    63,   64,
                                                    65, 191, 255, 256, 257, 4095, 4096, 4097, 16383};
        if (draw(4) == 0) return most - draw(std::min<std::size_t>(most, 2));
        if (draw(2) == 0) return std::min(edges.at(draw(edges.size())), most);
        return draw(std::min<std::size_t>(most, std::size_t{64} << 5 * draw(3)) + 1);
    }
    void draw_answer(drawing& draw) {
        constexpr std::array ways{way_to_answer::well,         way_to_answer::well,
                                  way_to_answer::well,         way_to_answer::well,
                                  way_to_answer::well,         way_to_answer::from_lent_memory,
                                  way_to_answer::with_failure, way_to_answer::with_unknown_status,
                                  way_to_answer::by_drop,      way_to_answer::by_exception,
                                  way_to_answer::by_exception, way_to_answer::by_odd_exception,
                                  way_to_answer::well,         way_to_answer::before_an_exception};
        how = ways.at(draw(ways.size()));
        const bool throws = how == way_to_answer::by_exception || how == way_to_answer::by_odd_exception;
        if (throws && where != answering::in_handler) how = way_to_answer::well;
        failure = static_cast<status>(1 + draw(status_count - 1));
        long_text = draw(8) == 0;
    }
    /// Who answers in a handler has as many parts as there is room.
    void draw_parts(drawing& draw) {
        const std::uint64_t most = std::min<std::uint64_t>(kind.slots - 1, 3);
        if (most == 0 || draw(4) != 0) return;
        part_room = static_cast<std::uint32_t>(1 + draw(most));
        parts = draw(where == answering::by_test ? 8 : part_room + 1);
    }
    void draw_memory(drawing& draw) {
        room = kind.response_bytes;
        // Spans of lent memory are for the thread that gives it back.
        if (where == answering::by_another_thread) return;
        by = std::array{carried::in_slot, carried::lent, carried::in_ranges}.at(draw(3));
        if (draw(2) == 0) return;
        room = std::min(response + 7 * draw(2), kind.response_bytes);
        into = draw(2) == 0 || part_room > 0 ? carried::lent : carried::in_ranges;
        if (room > 0) return;
        into = carried::in_slot;
        room = kind.response_bytes;
    }
    void draw_trace(drawing& draw) {
        if (draw(3) == 0) {
            trace.trace_id.fill(static_cast<std::uint8_t>(1 + number % 200));
            trace.parent_id.fill(static_cast<std::uint8_t>(1 + mix(number) % 200));
        }
        if (draw(4) == 0) baggage = std::string(1 + draw(40), static_cast<char>('a' + draw(26)));
    }
};

}  // namespace accel::tests
