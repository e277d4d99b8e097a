// SPDX-License-Identifier: Apache-2.0
// Seeds of the targets that play kernels: services and channels on a GPU.
#include "core/protocol.hpp"
#include "seeds.hpp"

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>

namespace accel::tests {

/// Steps as fuzz_service_intake takes them.
void service_seeds(const seed_folder& to) {
    const bytes open{0, 0};
    const bytes ask{3, 0, 0, 20, 30, 0};  // session 0, slot 0
    const bytes take{9};
    const bytes reply{12, 1};
    const auto add = [&to](const std::string& name, std::initializer_list<bytes> steps) {
        for (const std::uint8_t engine : {std::uint8_t{0}, std::uint8_t{1}}) {
            bytes all{engine};
            for (const bytes& step : steps) append_all(all, step);
            to.add(name + (engine == 0 ? "_direct" : "_proxy"), all);
        }
    };
    add("served", {open, ask, take, reply, ask, take, reply});
    add("placed", {open, {3, 0, 6, 20, 30, 0}, {3, 0, 7, 20, 30, 0}, take, take, reply, reply});
    add("apart", {{0, 1}, {3, 1, 0, 20, 30, 0}, take, reply});
    add("stale_generation", {open, ask, take, reply, {3, 0, 0, 20, 30, 205}, take});
    const bytes again{3, 0, 240, 20, 30};  // in the same slot, too early
    add("twice_in_a_slot", {open, ask, again, take, take});
    add("twice_while_held", {open, ask, take, again, take});
    add("closed_while_held", {open, ask, take, {2, 0}, take, reply, take, open, ask, take});
    add("no_such_slot", {open, {7, 0, 255}, take, take});
    add("failed", {open, ask, {8, 0, 1}, take, take});
    // Commands are taken first, for time has passed; one arrival a look.
    add("closed_with_a_request_on_its_way",
        {open, {0, 1}, take, {3, 1, 0, 20, 30, 0}, ask, {2, 0}, {14, 20}, take, open, take, take, reply});
}

/// Steps as fuzz_exclusive_intake takes them. A look without a request obeys the host's orders, once in 250 µs.
void exclusive_seeds(const seed_folder& to) {
    const bytes open{0, 0};
    const bytes ask{3, 0, 0, 20, 30, 0};  // session 0, slot 0
    const bytes take{9};
    const bytes reply{12, 1};
    const bytes close{2, 0};
    const bytes later{14, 3};
    const bytes other{3, 0, 1, 9, 9, 0};   // slot 1
    const bytes early{3, 0, 240, 20, 30};  // in a slot that waits for its answer
    const bytes stall{15, 0, 3};
    const bytes served = joined({ask, take, reply});
    const auto add = [&to](const std::string& name, std::initializer_list<bytes> steps) {
        const std::array ways{std::pair{"", 0}, std::pair{"_in_one_slot", 1}, std::pair{"_of_two_owners", 2},
                              std::pair{"_of_many_slots", 4}, std::pair{"_by_proxy", 8}};
        for (const auto& [suffix, way] : ways)
            to.add(name + suffix, joined({{static_cast<std::uint8_t>(way)}, joined(steps)}));
    };
    add("served", {open, take, ask, take, reply, ask, take, reply});
    add("asked_before_it_is_open", {open, ask, take, take, reply});
    add("placed", {open, take, {3, 0, 7, 20, 30, 0}, take, reply, {3, 0, 15, 20, 30, 0}, take, reply});
    add("apart", {{0, 1}, take, take, {3, 1, 0, 20, 30, 0}, take, take, reply});
    add("stale_generation", {open, take, ask, take, reply, {3, 0, 0, 20, 30, 205}, take});
    add("several_at_once", {open, {0, 2}, ask, other, {3, 2, 0, 9, 9, 0}, take, take, take, take, take, reply, reply});
    add("word_alone", {open, take, {7, 0, 0, 129}, take, take});
    add("word_changes_while_held", {open, take, ask, take, {7, 0, 0, 130}, take, reply, take, take});
    add("word_becomes_zero", {open, take, ask, take, reply, {7, 0, 0, 127}, take, take});
    add("rewritten_while_held", {open, take, ask, take, early, take, reply, take, take});
    bytes many;
    for (int i = 0; i < 20; ++i) append_all(many, joined({early, take, reply}));
    add("more_than_it_takes", {open, take, stall, ask, take, reply, many, stall, later, take, later, take});
    add("more_than_it_takes_to_the_end", {open, take, stall, ask, take, reply, many});
    add("slot_before_the_last", {open, take, {3, 0, 2, 9, 9, 0}, take, reply, other, take});
    add("closed_while_held",
        {open, take, ask, take, close, later, take, reply, later, take, open, later, take, ask, take, reply});
    add("closed_with_a_request", {open, take, ask, close, {14, 20}, take, take, open, later, take, take});
    add("closed_unseen", {open, close, take, open, later, take, later, take, ask, take, reply});
    add("failed", {open, take, ask, {8, 0, 0}, {14, 3}, take, take, reply});
    add("failed_while_held",
        {open, take, ask, take, {8, 0, 0}, later, take, reply, close, later, take, open, later, take});
    add("completion_of_nothing", {open, take, ask, take, reply, {8, 0, 99}, later, take, take});
    add("completion_of_another_kind", {open, take, ask, take, reply, {8, 0, 200}, later, take, take});
    add("late", {open, take, {15, 0, 0}, later, take, {3, 0, 200, 20, 30, 0}, take, take});
    add("owned_anew", {open, take, ask, take, reply, {15, 0, 1}, take, ask, take, reply});
    add("owned_anew_before_it_is_open", {open, {15, 0, 1}, ask, take, take, reply});
    add("word_ahead", {open, take, ask, {7, 0, 0, 129}, take, take});
    add("answered_in_another_order", {open, take, ask, other, take, take, reply, reply, ask, other, take, take});
    add("target_shorter_than_the_answer", {open, take, {3, 0, 7, 20, 30, 0}, {6, 0, 1, 0xf0, 1, 5}, take, take});
    add("completions_left", {open, take, served, served, served, served, close, later, take, open, later, take, served,
                             later, take, later, take, later, take});
    add("many", {open,   take,   served, served, served, served, served, served, served, served,
                 served, served, served, served, served, served, served, served, served, served});
}

/// Calls in parts, as both targets of calling kernels take them: `release_part` is a step's number there, and the one
/// behind it brings a part. The call has slot 0, and its rooms have the slots behind it.
template <class Add>
void call_in_parts_seeds(std::uint8_t release_part, std::initializer_list<std::uint8_t> ways, const Add& add_to) {
    const auto brings = static_cast<std::uint8_t>(release_part + 1);
    const bytes begin{0};
    const bytes submit{2, 0, 8};  // with two parts and a trace
    const bytes poll{4, 0};
    const bytes first{brings, 1, 1, 20};
    const bytes second{brings, 2, 1, 30};
    const bytes given_back{brings, 2, 0};
    const bytes ahead{brings, 2, 229, 30};
    const bytes answer{10, 0, 20};
    const bytes release{release_part, 0};
    const auto add = [&](const std::string& name, std::initializer_list<bytes> steps) {
        for (const std::uint8_t way : ways) {
            bytes all{way};
            for (const bytes& step : steps) append_all(all, step);
            add_to("parts_" + name + "_" + std::to_string(way), all);
        }
    };
    add("in_order", {begin, submit, first, poll, second, poll, release, release, answer, poll, {8, 0}});
    add("given_back", {begin, submit, first, given_back, answer, poll, poll, release, {8, 0}});
    add("ahead", {begin, submit, ahead, poll, first, poll, poll, answer, poll, {8, 0}, release, release});
    add("cancelled", {begin, submit, first, poll, {7, 0}, poll, {8, 0}, second, release, answer, begin, begin});
    add("answered_early", {begin, submit, answer, poll, first, poll, {8, 0}});
    add("late", {begin, {2, 0, 44}, first, {14, 200}, poll, {14, 200}, poll, {8, 0}});
    add("ended", {begin, submit, first, {15, 240}, {14, 20}, poll, poll, {8, 0}, release});
}

/// Steps as fuzz_client_intake takes them.
void client_seeds(const seed_folder& to) {
    const bytes begin{0};
    const bytes submit{2, 0, 1};
    const bytes answer{10, 0, 20};
    const bytes poll{4, 0};
    const bytes cancel{7, 0};
    const bytes release{8, 0};
    const auto add = [&to](const std::string& name, std::initializer_list<bytes> steps) {
        for (const std::uint8_t engine : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{2}}) {
            bytes all{engine};
            for (const bytes& step : steps) append_all(all, step);
            to.add(name + std::array{"_direct", "_proxy", "_apart"}[engine], all);
        }
    };
    add("call", {begin, submit, answer, poll, release});
    add("late_answer", {begin, submit, cancel, release, answer, begin, begin, begin, begin});
    add("answer_twice", {begin, submit, answer, poll, answer, poll, release});
    add("answer_to_nobody", {answer, begin, submit, poll});
    add("too_long", {begin, submit, {10, 0, 57}, poll, release});
    add("ended", {begin, submit, {15, 240}, poll, poll, release});
    add("going_away", {begin, submit, {15, 232}, poll, begin, answer, poll, release});
    call_in_parts_seeds(16, {8, 9, 10}, [&to](const std::string& name, const bytes& steps) { to.add(name, steps); });
    // The last response counts a part that is still to come; the call is submitted again, with less room, meanwhile.
    constexpr auto parts_before = core::extension_room + offsetof(wire::slot_header, parts_before);
    to.add("parts_submitted_twice", joined({{8},
                                            begin,
                                            {2, 0, 4},
                                            answer,
                                            {12, 0, parts_before, 1, 1, 0},
                                            poll,
                                            {2, 0, 3},
                                            {17, 1, 1, 20},
                                            poll,
                                            poll}));
}

/// Steps as fuzz_owned_intake takes them.
void owner_seeds(const seed_folder& to) {
    const bytes begin{0};
    const bytes submit{2, 0, 1};
    const bytes answer{10, 0, 20};
    const bytes poll{4, 0};
    const bytes cancel{7, 0};
    const bytes release{8, 0};
    const bytes next_owner{16};
    const bytes some_time{14, 20};
    const auto add = [&to](const std::string& name, std::initializer_list<bytes> steps) {
        constexpr std::array ways{"_direct", "_proxy", "_apart", "_proxy_apart", "_plain"};
        for (std::uint8_t way = 0; way < ways.size(); ++way) {
            bytes all{way};
            for (const bytes& step : steps) append_all(all, step);
            to.add(name + ways[way], all);
        }
    };
    add("call", {begin, submit, answer, poll, release});
    add("late_answer", {begin, submit, cancel, release, answer, some_time, begin, poll, begin, begin});
    add("answer_before_release", {begin, submit, cancel, answer, poll, release, begin});
    add("answer_twice", {begin, submit, answer, poll, answer, poll, release});
    add("answer_to_nobody", {begin, answer, submit, poll, release});
    add("word_ahead_of_its_header", {begin, submit, {10, 15, 20}, poll, answer, poll, release});
    add("another_slots_header", {begin, submit, {10, 250, 20}, poll, release, begin});
    add("too_long", {begin, submit, {10, 0, 57}, poll, release});
    add("going_away", {begin, submit, {15, 232}, some_time, poll, begin, next_owner, begin, answer, poll, release});
    add("next_owner", {begin, submit, next_owner, answer, poll, release, next_owner, begin});
    add("more_slots_than_at_hand", {begin,
                                    begin,
                                    begin,
                                    begin,
                                    begin,
                                    begin,
                                    begin,
                                    begin,
                                    begin,
                                    begin,
                                    begin,
                                    {2, 9, 1},
                                    {10, 9, 20},
                                    {4, 9},
                                    {8, 9},
                                    begin});
    add("sends_fail", {begin, submit, {13, 1}, some_time, poll, poll, release});
    add("ended", {begin, submit, {15, 240}, some_time, poll, poll, release});
    call_in_parts_seeds(17, {8, 9, 10, 12},
                        [&to](const std::string& name, const bytes& steps) { to.add(name, steps); });
}

}  // namespace accel::tests
