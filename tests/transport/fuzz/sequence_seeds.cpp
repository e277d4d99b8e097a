// SPDX-License-Identifier: Apache-2.0
// Seeds of the targets that read sequences of steps.
#include "core/control/data_preamble.hpp"
#include "seeds.hpp"

#include <accel_transport/detail/wire/response_target.hpp>
#include <accel_transport/detail/wire/tensor_extension.hpp>

#include <array>
#include <string>
#include <utility>

namespace accel::tests {

using namespace accel::core;

/// Steps as fuzz_verbs_arrival takes them.
void arrival_seeds(const seed_folder& to) {
    const auto message = [](std::uint8_t length, std::uint8_t room, std::uint8_t extensions) {
        return bytes{1, 0, 5, length, room, extensions, 0};
    };
    const bytes announced{3, 0};
    bytes request{0};
    append_all(request, message(100, 80, 0));
    append_all(request, announced);
    to.add("request", request);
    bytes placed{0};
    append_all(placed, message(10, 80, sizeof(wire::response_target_extension)));
    wire::response_target_extension place;
    place.value = {0x7000, 80, 9, 0};
    append(placed, place);
    append_all(placed, announced);
    to.add("response_target", placed);
    bytes response{1};
    append_all(response, message(60, 0, 0));
    append_all(response, announced);
    to.add("response", response);
    bytes elsewhere{1, 2, 0, 80};  // room of 80 bytes is lent
    append_all(elsewhere, message(60, 0, 0));
    append_all(elsewhere, announced);
    to.add("response_elsewhere", elsewhere);
    bytes longer{1, 2, 0, 40};
    append_all(longer, message(60, 0, 0));
    append_all(longer, announced);
    to.add("response_longer_than_its_room", longer);
    to.add("a_slot_that_is_not_there", bytes{0, 3, 255});
}

/// The same where the server's slots lie on a GPU too. `message`: in slot 1, of 45 bytes.
void shm_gpu_seeds(const seed_folder& to, const bytes& message) {
    const bytes server{2};
    const bytes client{3, 0, 0, 0};  // the right descriptors, and all of them
    const bytes look{6};
    const bytes announced_on_host{2, 1, 0};
    const bytes announced_on_gpu{2, 1, 1};
    const bytes answer_wanted_there{2, 1, 3};
    const bytes call{5, 1, 100, 4 + 8};  // from the GPU, and the response goes there; the copy ends at once
    const bytes slow_call{5, 1, 100, 4 + 1};
    to.add("gpu_request", joined({server, message, announced_on_gpu, look, {5, 1, 100}}));
    to.add("gpu_request_and_answer", joined({server, message, answer_wanted_there, look, {5, 1, 100}}));
    to.add("gpu_slot_beyond", joined({server, {2, 253, 3}, look}));
    to.add("gpu_response", joined({client, call, look, message, announced_on_gpu, look, look, look}));
    to.add("gpu_response_on_the_host", joined({client, call, look, message, announced_on_host, look}));
    to.add("gpu_response_twice", joined({client, call, look, message, announced_on_gpu, announced_on_gpu, look}));
    to.add("gpu_response_too_early", joined({client, slow_call, look, message, announced_on_gpu, look}));
    to.add("gpu_response_for_nobody", joined({client, call, look, {5, 1, 0, 2}, message, announced_on_gpu, look}));
    to.add("gpu_response_on_the_host_is_wanted", joined({client, {5, 1, 100, 8}, message, announced_on_host, look}));
    to.add("gpu_requests_are_other_memory", joined({{3, 4, 0, 0}, call, look}));
    to.add("gpu_responses_are_a_device", joined({{3, 0, 7, 0}, call, look}));
    to.add("gpu_half", bytes{3, 0, 0, 255});
    const bytes cancelled{5, 1, 0, 2 + 1};
    const bytes copies_end{5, 2, 0, 8};
    to.add("gpu_server_dies_under_a_cancelled_call",
           joined({client, slow_call, cancelled, {4, 255}, copies_end, {7}, look}));
}

/// Steps as fuzz_shm_peer takes them.
void shm_seeds(const seed_folder& to) {
    const bytes server{0};
    const bytes client{1, 0, 0, 0, 0};  // the right descriptors and answer
    const auto message = [](std::uint8_t slot, std::uint8_t length, std::uint8_t extensions) {
        return bytes{1, slot, 0, 1, length, extensions};
    };
    const auto announce = [](std::uint8_t slot) { return bytes{2, slot}; };
    const bytes look{6};
    const bytes notice{7};
    const bytes wanted{5, 2, 200, 1};  // in slot 2, generation 1, in 200 bytes
    to.add("request", joined({server, message(1, 20, 0), announce(1), look}));
    to.add("answer", joined({server, message(1, 20, 0), announce(1), look, {5, 1, 100}}));
    to.add("client_asleep", joined({server, {3, 1}, {5, 1, 100}, {5, 2, 100}}));
    to.add("client_leaves", joined({server, {4, 254}, {4, 255}, notice}));
    to.add("slot_beyond", joined({server, announce(251), look}));
    to.add("header_of_another_slot", joined({server, {1, 1, 255, 1, 20, 0}, announce(1), look}));
    to.add("response", joined({client, message(3, 20, 0), announce(3), look}));
    to.add("response_elsewhere", joined({client, wanted, message(2, 20, 0), announce(2), look}));
    to.add("response_longer_than_its_room", joined({client, wanted, message(2, 40, 0), announce(2), look}));
    to.add("response_too_late", joined({client, {5, 2, 200, 3}, message(2, 20, 0), announce(2), look}));
    to.add("server_dies", joined({client, message(0, 1, 0), announce(0), announce(0), {4, 255}, notice, look}));
    to.add("server_asleep_and_deaf", joined({client, {3, 1}, wanted, {3, 3}, wanted, {4, 200}, notice}));
    const tensor described{{}, 2, 0, {2, 3}};
    bytes extension(wire::tensor_extension_bytes(&described, 1));
    wire::write_tensor_extension(reinterpret_cast<std::byte*>(extension.data()), &described, 1);
    const auto length = static_cast<std::uint8_t>(extension.size());
    to.add("tensors", joined({client, message(0, 20, length), extension, announce(0), look}));
    to.add("tensors_of_a_request", joined({server, message(0, 20, length), extension, announce(0), look}));
    for (std::uint8_t wrong = 1; wrong <= 8; ++wrong)
        for (std::size_t which = 0; which < 3; ++which) {
            bytes passed = client;
            passed[1 + which] = wrong;
            to.add("descriptor_" + std::to_string(which) + "_" + std::to_string(wrong), passed);
        }
    to.add("two_descriptors", bytes{1, 0, 0, 0, 1 + 4 * 2});
    to.add("no_descriptors", bytes{1, 0, 0, 0, 1});
    to.add("refusal", bytes{1, 0, 0, 0, 2 + 4 * 6, 8, 0, 2, 0, 'n', 'o'});
    to.add("half_an_answer", bytes{1, 0, 0, 0, 2 + 4 * 2, 0, 0});
    shm_gpu_seeds(to, message(1, 5, 0));
}

/// Steps as fuzz_channel takes them. Numbers of calls are slots; the first one that is free is 0.
void channel_seeds(const seed_folder& to) {
    const bytes begin{0};
    const bytes submit{1, 0, 20, 0, 0};       // call 0, 20 bytes, the channel's time-out, delivered
    const bytes submit_lent{2, 0, 83, 0, 0};  // the payload, and the room for the response
    const bytes answer{8, 0, 30};
    const bytes poll{3, 3};
    const bytes cancel{5, 0};
    const bytes release{6, 0};
    const auto add = [&to](const std::string& name, std::uint8_t kind, std::initializer_list<const bytes*> steps) {
        bytes all{kind};
        for (const bytes* step : steps) append_all(all, *step);
        to.add(name, all);
    };
    const bytes retract_later{5, 0, 1};
    const bytes released{11, 0};
    const bytes submit_in_vain{1, 0, 20, 0, 1};  // the link has no room
    const bytes lost{15, 0};
    const bytes stale{8, 224, 30};  // of the generation before
    const bytes submit_for_a_while{1, 0, 20, 2, 0};
    const bytes ended{15, 96};  // by the control plane, which says why
    const bytes poll_still_held{3, 3, 1};
    const bytes poll_given_back{3, 3, 0};
    const bytes submit_behind{1, 1, 20, 0};  // call 1; the link is not asked
    const bytes poll_with_room{3, 3, 0, 0};
    const bytes submit_with_too_much_room{2, 0, 58, 0, 0};
    for (const std::uint8_t kind : {std::uint8_t{0}, std::uint8_t{1}}) {
        const std::string way = kind == 0 ? "_borrowed" : "_in_slots";
        add("call" + way, kind, {&begin, &submit, &answer, &poll, &release});
        add("lent" + way, kind, {&begin, &submit_lent, &answer, &poll, &release});
        add("late_answer" + way, kind, {&begin, &submit, &cancel, &poll, &release, &answer, &poll, &begin});
        add("answer_twice" + way, kind, {&begin, &submit, &answer, &poll, &answer, &poll, &release});
        add("released_later" + way, kind,
            {&begin, &submit_lent, &retract_later, &poll, &released, &poll, &release, &answer, &poll});
        add("held_back" + way, kind, {&begin, &submit_in_vain, &poll, &answer, &poll, &release});
        add("lost" + way, kind, {&begin, &submit_lent, &lost, &poll, &poll, &release, &begin});
        add("stale_answer" + way, kind, {&begin, &submit, &stale, &poll, &release, &answer, &poll, &release});
        add("stale_answer_in_quarantine" + way, kind,
            {&begin, &submit, &cancel, &poll, &release, &stale, &poll, &answer, &poll, &begin});
        add("held_back_in_order" + way, kind,
            {&begin, &submit_in_vain, &begin, &submit_behind, &poll_with_room, &answer, &poll, &release});
        add("lent_more_than_a_response" + way, kind, {&begin, &submit_with_too_much_room, &answer, &poll, &release});
        add("with_a_deadline" + way, kind, {&begin, &submit_for_a_while, &answer, &poll, &release});
        add("lost_while_lent" + way, kind,
            {&begin, &submit_lent, &ended, &poll_still_held, &poll_given_back, &release, &begin});
    }
}

/// Steps as fuzz_channel_parts takes them. The first call is in slot 0, its room in the slots behind it.
void channel_parts_seeds(const seed_folder& to) {
    const bytes submit{0, 2, 0, 0, 0};  // two parts; the link takes room, room, request
    const bytes submit_for_a_while{0, 128, 0, 0, 0};
    const bytes submit_with_time_between_parts{0, 194, 0, 0, 0};
    const bytes part{7, 1};  // in slot 1
    const bytes other{7, 2};
    const bytes other_passes{7, 197};
    const bytes back{11, 1};
    const bytes answer{10, 0};
    const bytes answer_passes{10, 195};
    const bytes poll{2, 3};
    const bytes release{4, 0};  // an input that is too short has the link take what is lent again
    const bytes cancel{6, 0};
    const bytes some_time{14, 60};
    const bytes look{2, 195};  // sees one event
    const bytes lost{15, 0};   // with all that was on its way
    const auto add = [&to](const std::string& name, std::initializer_list<bytes> steps) {
        for (const std::uint8_t way : {std::uint8_t{0}, std::uint8_t{1}})
            to.add(name + (way == 0 ? "_borrowed" : "_in_slots"), joined({{way}, joined(steps)}));
    };
    add("parts", {submit, part, poll, release, {0}, part, other, poll, answer, release, release, poll, release});
    add("no_parts", {{0, 0, 0}, answer, poll, release});
    add("two_calls", {{0, 1, 0, 0}, {0, 1, 0, 0}, part, {7, 3}, {10, 2}, poll, answer, poll, release, release});
    add("parts_pass_each_other", {submit, part, other_passes, look, poll, answer, poll});
    add("response_passes_its_parts", {submit, part, other, answer_passes, look, poll, release, release});
    add("room_comes_back", {submit, back, poll, other, answer, poll});
    add("room_waits", {submit, part, poll, release, {1}, {2, 3, 1}, {2, 3, 0}, part, poll});
    add("room_crosses_the_response", {submit, part, poll, answer, release, {0}, poll, back, poll});
    add("cancelled", {submit, part, poll, cancel, poll, release, other, answer, poll});
    add("cancelled_with_a_part_that_waits", {submit, part, other_passes, look, cancel, poll, release});
    add("cancelled_before_anything_left", {{0, 2, 1}, cancel, poll, release});
    add("cancelled_behind_its_room", {{0, 2, 0, 1}, cancel, {2, 3, 0}, release, answer, back, poll});
    add("late", {submit_for_a_while, part, some_time, poll, release, answer, poll});
    add("late_between_parts", {submit_with_time_between_parts, part, poll, some_time, poll, release});
    add("lost", {submit, part, poll, other, lost, poll, release});
    add("lost_while_room_leaves", {{0, 2, 0, 2}, poll, cancel, poll});
    add("lost_while_a_call_waits_for_parts", {submit, part, other, answer_passes, look, lost, {14, 255}, poll});
    add("number_twice", {submit, part, poll, release, {0}, {12, 6, 0}, poll});
    add("part_without_room", {submit, part, poll, release, {1}, {12, 6, 1}, poll});
    add("counts_too_many", {submit, part, {12, 15, 5}, poll, release});
    add("counts_too_few", {submit, part, poll, {12, 15, 0}, poll, release});
    add("part_that_failed", {submit, {12, 136, 0, 1}, poll});
    add("part_far_ahead", {submit, {12, 6, 7}, poll});
    const bytes submit_asking{0, 12, 0};  // the request continues; the link takes it
    const bytes ask{17, 0, 100, 0};       // a part of the first call's request
    const bytes ask_last{17, 0, 10, 0};
    const bytes asked{16, 1};  // slot 1 comes back
    const bytes other_asked{16, 2};
    add("request_parts", {submit_asking, ask, ask_last, other_asked, asked, poll, answer, poll, release});
    add("request_parts_both_ways", {{0, 13, 0, 0}, ask, part, poll, release, {0}, ask_last, other_asked, answer, poll});
    add("request_parts_cancelled", {submit_asking, ask, cancel, poll, release, asked, answer, poll});
    add("request_parts_wait", {submit_asking, {17, 0, 100, 1}, ask_last, cancel, poll, {2, 3, 0}, answer, poll});
    add("request_parts_after_the_answer", {submit_asking, ask, answer, ask, poll, release, ask, asked, poll});
    add("request_parts_lost", {submit_asking, ask, {17, 0, 250}, lost, {14, 255}, poll, ask});
}

/// Steps as fuzz_worker takes them.
void worker_seeds(const seed_folder& to) {
    const bytes request{0, 0, 0, 10, 30};  // session 0, slot 0
    const bytes round{4};
    const auto add = [&to](const std::string& name, std::initializer_list<bytes> steps) {
        for (const std::uint8_t batches : {std::uint8_t{0}, std::uint8_t{1}}) {
            bytes all{batches};
            for (const bytes& step : steps) append_all(all, step);
            to.add(name + (batches == 0 ? "" : "_in_batches"), all);
        }
    };
    const bytes replied{2, 5, 0};  // how the handler, the exchange and the link decide
    const bytes kept{0};
    const bytes settled{7, 0, 2, 0};
    const bytes lent{2, 3, 0};
    add("reply", {request, round, replied, request, round, replied});
    add("kept", {request, round, kept, settled, round});
    add("lent", {request, round, lent, {9, 0, 0}, round});
    add("twice_in_a_slot", {request, request, round, kept, round});
    add("lost_while_kept", {request, round, kept, {11, 0, 0}, round, settled, round, round});
    add("too_late", {{0, 0, 200, 10, 30}, round, {0}});
    add("closed", {request, round, kept, {15, 0, 0}, round, settled, round});
    add("generation_twice", {request, round, replied, {0, 0, 252, 10, 30}, round, round});
    add("more_room_than_agreed", {{0, 0, 0, 10, 57}, round, kept, round});
    add("lent_too_much", {request, round, {2, 63, 0}, round});
    add("lost_while_lent", {request, round, lent, {11, 0, 0}, round, round});
    add("lent_twice_in_a_slot", {request, round, lent, request, round, {2, 3}, {9, 0, 0}, {4, 0}});
    add("target", {{0, 0, 21, 10, 30}, round, replied});
    add("unknown_target", {{0, 0, 6, 10, 30}, round, {0}});
    add("target_while_lost", {{0, 0, 21, 10, 30}, round, kept, {11, 0, 0}, round, settled, round});
    add("closes_later", {request, round, replied, {11, 0, 0}, {4, 1}, {4, 0}});
}

/// Steps as fuzz_control_server takes them. Peers and sessions are numbers.
void control_server_seeds(const seed_folder& to) {
    const bytes all_go{1, 0};
    const bytes silent{1, 1};
    const bytes few{1 + 4 + 8 + 16, 1};
    const bytes connect{0, 0};
    const bytes other{0, 1};
    const bytes greet{2, 0};
    const bytes hello{3, 0, 2, 2, 0};
    const bytes granted{13, 0, 0};
    const bytes second{12, 4};
    to.add("session", joined({all_go, connect, hello, granted, {5, 0, 1}, second}));
    to.add("silent", joined({silent, connect, greet, hello, granted, {4, 0, 2, 2, 2}, second, second}));
    to.add("refused", joined({silent, connect, hello, {13, 0, 0xd0}, second}));
    to.add("other_version", joined({silent, connect, hello, {13, 0, 0xb9}}));
    to.add("ended_at_once", joined({silent, connect, hello, {13, 0, 0xa0}, second}));
    to.add("ended_by_the_host", joined({silent, connect, hello, granted, {14, 1}, second, {5, 0, 1}}));
    to.add("stolen", joined({silent, connect, hello, granted, other, {5, 1, 1}, {5, 1, 1}, {5, 1, 255}}));
    to.add("half_closed", joined({silent, connect, hello, granted, {9, 0}, {12, 0}}));
    to.add("gone_while_opening", joined({silent, connect, hello, {10, 0}, granted, {12, 0}}));
    to.add("too_many_openings", joined({silent, connect, {3, 0, 2, 2, 255}, {12, 1}, {13, 79}, bytes(80, 0), {12, 1}}));
    to.add("does_not_read", joined({{33, 1}, connect, {11, 0}, {6, 0, 255}, {6, 0, 255}, {12, 0}, {12, 3}}));
    to.add("targets", joined({silent, connect, hello, granted, {6, 0, 5}, {6, 0, 13}, second}));
    to.add("cancel", joined({silent, connect, hello, granted, {6, 0, 6, 1, 3}, {6, 0, 6, 1, 0xff}, second}));
    to.add("cancel_of_another_client", joined({silent, connect, hello, granted, other, {6, 1, 6, 1, 3}, second}));
    to.add("target_of_a_stranger", joined({silent, connect, {6, 0, 5}, second, {12, 6}}));
    to.add("floods", joined({silent, connect, {6, 0, 255}, {6, 0, 255}, {12, 1}, {12, 3}}));
    to.add("many_strangers", joined({few, connect, connect, other, other, connect, second, {12, 6}}));
    to.add("too_many_of_one_client", joined({few, connect, greet, connect, {2, 1}, other, {2, 2}, second}));
    to.add("data", joined({silent, connect, hello, granted, connect, {15, 1, 1, 0}, other, {15, 2, 2, 0}}));
    to.add("data_of_another_version", joined({silent, connect, {15, 0, 1, 250}}));
    to.add("tls_where_there_are_no_keys", joined({silent, connect, {1, 0, 3, 0x16, 3, 1}, second, second}));
    to.add("malformed", joined({silent, connect, {8, 0, 2, 6, 1, 0}, {8, 0, 2, 20, 255, 3}, {7, 0, 0}, {7, 0, 1}}));
    to.add("too_long_a_frame", joined({silent, connect, greet, {1, 0, 4, 0, 0, 1, 0}}));
    to.add("one_byte_at_a_time", joined({silent, connect, {1, 0, 1, 'A'}, {1, 0, 1, 'C'}, {1, 0, 2, 'C', 'L'}}));
    to.add("endless_patience", joined({{3, 0}, connect, hello, granted, {12, 7}, {12, 7}}));
}

/// Steps as fuzz_control_client takes them. Calls and sessions are numbers.
void control_client_seeds(const seed_folder& to) {
    const bytes one{0};
    const bytes ask{0, 2};
    const bytes ask_offers{1, 2};
    const bytes ask_target{1, 6};
    const bytes round{3, 0};
    const bytes welcome{4, 1, 0, 0};
    const bytes second{3, 4};
    to.add("session", joined({one, ask, round, round, welcome, {8, 2, 2, 2}, {2, 0}, second, second}));
    to.add("offers", joined({{1}, ask_offers, round, round, {7, 1}, second, second}));
    to.add("target", joined({one, ask_target, round, round, {7, 1, 1}, second}));
    to.add("target_of_another_name", joined({one, ask_target, round, round, {7, 1, 2}, second}));
    to.add("offers_for_a_target", joined({one, ask_target, round, round, {7, 1, 0}, second}));
    to.add("a_target_for_offers", joined({one, ask_offers, round, round, {7, 1, 1}, second}));
    to.add("a_target_refused", joined({one, ask_target, round, round, {6, 1, 18}, second}));
    to.add("refused", joined({{3}, ask, round, round, {6, 1, 4}}));
    to.add("all_refused", joined({one, ask, ask_offers, round, round, {6, 0, 4}}));
    to.add("not_what_was_asked", joined({one, ask, round, round, {4, 1, 1, 0}}));
    to.add("other_version", joined({one, ask, round, round, {4, 1, 2, 0}}));
    to.add("the_same_session_twice", joined({one, ask, ask, round, round, welcome, {4, 2, 0, 0}, round}));
    // A server that was restarted gives the number of a session that is lost to another.
    to.add("closed_late", joined({one, ask, ask, round, round, welcome, {9, 1, 3}, {4, 2, 0, 0}, {2, 0}, round}));
    to.add("offers_for_a_session", joined({one, ask, round, round, {7, 1}, round}));
    to.add("a_session_for_offers", joined({one, ask_offers, round, round, {4, 1, 1, 0}, round}));
    to.add("clocks", joined({one, ask, round, round, {4, 1, 32, 0, 5, 3, 3}, {8, 1, 3, 3}, {8, 5, 1, 0}}));
    to.add("same_host", joined({one, ask, round, round, {4, 1, 4, 0}, {8, 1, 3, 3}}));
    to.add("silent", joined({one, {0, 6}, round, round, welcome, {3, 3}, second}));
    to.add("goodbye", joined({one, ask, round, round, welcome, {9, 1, 3}, second, second}));
    to.add("goodbye_to_all", joined({one, ask, ask_offers, round, round, welcome, {9, 0, 3}, round, second}));
    to.add("breaks", joined({one, ask, ask, round, round, welcome, {12}, round, {3, 3}, {12}, {3, 3}, {12}, {3, 3}}));
    to.add("half_closes", joined({one, ask, round, round, welcome, {13}, round, second}));
    to.add("given_up", joined({one, ask, round, round, {14, 0}, welcome, second, second}));
    to.add("malformed", joined({one, ask, round, round, {11, 1, 20, 255, 0}, {11, 1, 5, 1, 9}, {15, 1}}));
    to.add("too_long_a_frame", joined({one, ask, round, round, {10, 4, 0, 0, 1, 0}}));
    to.add("late", joined({one, {0, 1}, round, round, {3, 3}, welcome, round, second, second}));
}

/// Steps as fuzz_first_bytes takes them.
void first_bytes_seeds(const seed_folder& to) {
    const bytes control{0, 2};
    const bytes data{0, 1};
    const bytes shake{0};
    const bytes say_all{7, 99, 7, 99};
    to.add("control", joined({control, shake, say_all, shake}));
    to.add("control_in_pieces", joined({control, shake, {7, 3, 7, 4, 7, 20, 7, 99, 7, 99}, shake}));
    to.add("data", joined({data, shake, say_all, shake}));
    to.add("data_in_pieces", joined({data, shake, {7, 3, 7, 30, 7, 99}, shake}));
    to.add("data_too_much", joined({{0, 3}, shake, say_all, shake}));
    to.add("data_of_another_session", joined({{0, 5}, shake, say_all, shake}));
    to.add("greets_as_what_it_is_not", joined({{0, 9}, shake, say_all, shake}));
    to.add("stranger", joined({{2, 0}, shake, say_all, shake}));
    to.add("stranger_with_data", joined({{2, 1}, shake, say_all, shake}));
    to.add("plain_control", joined({{3, 2}, say_all, shake}));
    to.add("plain_data", joined({{3, 1}, {7, 9, 7, 99}, shake}));
    to.add("hello_in_pieces", joined({control, {9, 2, 1, 13, 0, 2, 4, 13, 0, 2, 100, 13, 0}, shake, say_all}));
    to.add("hello_changed", joined({control, {9, 2, 0, 4, 0, 30, 5}, shake, shake}));
    to.add("answer_changed", joined({control, {9, 3, 5, 0, 200, 7}, shake, shake}));
    to.add("a_record_twice", joined({control, shake, {7, 50, 2, 0, 4, 0, 0, 1}, shake}));
    to.add("an_error_of_another", joined({control, shake, {12, 13, 0}, shake, {12}, say_all, shake}));
    to.add("keys_change", joined({control, shake, say_all, shake, {13, 255}, shake}));
    to.add("half_closed", joined({control, {9, 2, 40, 10}, shake}));
    to.add("late", joined({control, {9, 2, 40, 11, 2, 11, 3}}));
    to.add("http", joined({{3, 0},
                           {6, 16},
                           {'G', 'E', 'T', ' ', '/', ' ', 'H', 'T', 'T', 'P', '/', '1', '.', '1', '\r', '\n'},
                           shake}));
    for (const status code : {status::ok, status::unauthorized}) {
        bytes answer{0xf0};
        for (const std::byte each : encode_data_answer(code, code == status::ok ? "" : "no such session"))
            answer.push_back(std::to_integer<std::uint8_t>(each));
        to.add(code == status::ok ? "answer" : "answer_refused", answer);
    }
    bytes preamble{0xf0};
    append(preamble, data_preamble{});
    to.add("preamble", preamble);
}

/// Steps of fuzz_tls_records.cpp.
void tls_records_seeds(const seed_folder& to) {
    const bytes round{13};
    const bytes some{0, 99};
    const bytes drops{3, 200};
    const bytes nothing{4, 31};
    std::uint8_t who = 0;
    for (const char* reader : {"data_server", "data_client", "control_server", "control_client"}) {
        const bytes begin{who++, 40};
        const auto add = [&](const std::string& name, const bytes& steps) {
            to.add(std::string(reader).append("_").append(name), joined({begin, steps, round, some}));
        };
        add("cut", joined({some, {0, 0}, {2, 0x3f, 0xff}, round, {0, 7}, {12, 20}, round, {12, 3}}));
        add("drops", joined({drops, round, drops, nothing, {5, 9, 0x20, 0}, round, round}));
        add("empty", joined({some, nothing, {0, 0}, nothing, nothing, round}));
        add("renewal", joined({some, {7, 0}, {7, 1}, drops, round, {7, 1}}));
        add("alerts", joined({{6, 1, 90}, {6, 1, 90}, some, round, {6, 2, 40}}));
        add("end", joined({some, {6, 1, 0}, some}));
        add("ticket", joined({some, {8, 22, 9, 4, 0, 0, 5, 0, 0, 0, 0, 0}, some}));
        add("spoilt", joined({some, {9, 3}, some, round}));
        add("long", joined({some, {10}, some}));
        add("raw", joined({{11, 6, 20, 3, 3, 0, 1, 1}, some, round}));
    }
}

}  // namespace accel::tests
