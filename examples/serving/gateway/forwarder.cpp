// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/forwarder.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

/// The way of a request through the gateway, in the order in which it goes it. Nothing here allocates or blocks.
namespace accel::examples::gateway {
namespace {

/// For requests without a deadline; a day is as good as none.
constexpr std::chrono::nanoseconds longest_call = std::chrono::hours{24};
constexpr std::size_t longest_text = 256;
constexpr std::string_view no_server = "no server of this model is connected to the gateway";

}  // namespace

forwarder::forwarder(std::size_t in_flight, std::size_t waiting) : max_waiting_(waiting) {
    make_room(in_flight);
}

void forwarder::make_room(std::size_t in_flight) {
    while (passages_.size() < in_flight + max_waiting_) {
        passage& made = passages_.emplace_back();
        made.index = static_cast<std::uint32_t>(passages_.size() - 1);
        made.next = std::exchange(free_, &made);
    }
}

passage* forwarder::take_free() noexcept {
    if (free_ == nullptr) return nullptr;
    passage* const taken = std::exchange(free_, free_->next);
    taken->next = nullptr;
    ++open_;
    return taken;
}

void forwarder::put_free(passage& done) noexcept {
    done.one.reset();
    done.on = nullptr;
    done.cancelled = false;
    done.past = {};
    done.next = std::exchange(free_, &done);
    --open_;
}

// From the client to a server.

void forwarder::take(route& way, exchange one) noexcept {
    ++counts_.requests;
    counts_.request_bytes += one.request().size();
    if (one.in_parts() || one.continues())
        return fail(one, status::unsupported, 0, "this gateway does not forward requests or responses in parts");
    passage* const taken = take_free();
    if (taken == nullptr) return fail(one, status::overloaded, 0, "the gateway's queue is full");
    taken->way = &way;
    taken->one.emplace(std::move(one));
    // Those that wait are older. But where all of them have come back from a server, that one may have free slots.
    const bool may_pass = way.oldest == nullptr || way.youngest->past.last != 0;
    const sending done = may_pass ? send(*taken) : sending::full;
    if (done == sending::full) wait(*taken);
}

/// Gives it to the server it is meant for; those that are away or have no free slot are passed over. `full`: at least
/// one is connected, and none has a free slot.
forwarder::sending forwarder::send(passage& one) noexcept {
    route& way = *one.way;
    const auto described = read_tensors(*one.one);
    if (!described)
        return end(one, described.error(), "the gateway cannot read the request's description of its tensors");
    const auto metadata = read_metadata(*one.one);
    if (!metadata) return end(one, metadata.error(), "the gateway cannot read the request's metadata");
    const auto order = way.order_for(way.key_of(*one.one, *metadata));
    status why = status::ok;
    bool last_resort = false;
    const auto ask = [&](std::size_t i) {
        const std::size_t which = order[i];
        if (!way.may_ask(which, one.past, last_resort)) return offer::away;
        const offer said = give(one, way.server(which), {*described, *metadata}, why);
        if (said == offer::taken) way.asked(which);
        return said;
    };
    offered outcome = offer_in_turn(way.size(), one.past.losses, ask);
    last_resort = outcome.what == offer::away;
    if (last_resort) outcome = offer_in_turn(way.size(), one.past.losses, ask);
    switch (outcome.what) {
        case offer::taken:
            counts_.retried += outcome.passed_over ? 1 : 0;
            return sending::sent;
        case offer::full:
            return sending::full;
        case offer::refused:
            return end(one, why, "the gateway could not forward the request");
        case offer::lost:
            return end(one, status::peer_lost, "every server was lost while the gateway was sending the request");
        case offer::away:
            break;
    }
    return end(one, way.without_server(one.past.said), no_server);
}

offer forwarder::give(passage& one, upstream& to, const request_extras& described, status& why) noexcept {
    call_view call;
    line* const on = to.begin(call, why);
    if (on == nullptr) return why == status::again ? offer::full : offer::away;
    why = submit(one, *on, call, described);
    if (why == status::ok) return offer::taken;
    (void)on->path.release(call.id);
    return is_loss(why) ? offer::lost : offer::refused;
}

forwarder::sending forwarder::end(passage& one, status why, std::string_view text) noexcept {
    fail(*one.one, why, 0, text);
    put_free(one);
    return sending::ended;
}

/// Into `tensors_`. Ok also where it describes none.
result<std::span<tensor>, status> forwarder::read_tensors(const exchange& one) noexcept {
    const auto told = one.tensors(tensors_);
    if (told.code() == status::not_found) return std::span<tensor>{};
    return told;
}

/// Into `metadata_`. Ok also where there is none.
result<std::span<const metadata_entry>, status> forwarder::read_metadata(const exchange& one) noexcept {
    const auto told = one.metadata(metadata_);
    if (told.code() == status::not_found) return std::span<const metadata_entry>{};
    return told;
}

/// All that the client has said of its request is said again. The response goes to where the client's answer leaves
/// from, unless the tensors' description, or metadata after a request of full length, needs the room beside the header.
status forwarder::submit(passage& one, line& on, const call_view& call, const request_extras& described) noexcept {
    const exchange& from = *one.one;
    submit_options options;
    options.timeout = std::min(from.time_left(), longest_call);
    if (options.timeout <= std::chrono::nanoseconds{0}) return status::timed_out;
    options.tag = one.index;
    options.trace_id = from.trace_id();
    if (const auto trace = from.trace()) options.trace = *trace;
    std::array<char, max_baggage_bytes> room;
    if (const auto baggage = from.baggage(room)) options.baggage = *baggage;
    options.target = one.way->target();
    options.metadata = described.metadata;
    options.tensors = described.tensors;
    if (const auto into = from.response_slice()) options.response_into = *into;
    status sent = submit_payload(from, on, call, options);
    const bool no_table = sent == status::invalid_argument && !described.tensors.empty();
    const bool no_room = sent == status::message_too_large && !described.metadata.empty();
    if ((no_table || no_room) && !options.response_into.empty()) {
        options.response_into = {};
        sent = submit_payload(from, on, call, options);
    }
    if (sent != status::ok) return sent;
    one.on = &on;
    one.id = call.id;
    ++on.in_flight;
    return status::ok;
}

/// From where it lies; where that cannot be lent, through the slot of the call.
status forwarder::submit_payload(const exchange& one, line& on, const call_view& call,
                                 const submit_options& options) noexcept {
    if (const auto payload = one.request_slice()) return on.path.submit(call.id, *payload, options);
    const std::span<const std::byte> bytes = one.request();
    if (bytes.size() > call.request.size()) return status::message_too_large;
    if (!bytes.empty()) {
        std::memcpy(call.request.data(), bytes.data(), bytes.size());
        ++counts_.payload_copies;
    }
    return on.path.submit(call.id, bytes.size(), options);
}

void forwarder::wait(passage& one) noexcept {
    if (waiting_ >= max_waiting_) {
        fail(*one.one, status::overloaded, 0, "the gateway's queue is full");
        return put_free(one);
    }
    ++counts_.queued;
    ++waiting_;
    route& way = *one.way;
    one.next = nullptr;
    (way.oldest == nullptr ? way.oldest : way.youngest->next) = &one;
    way.youngest = &one;
}

/// One that a server has given back is older than those that wait, and was counted in. So those come first.
void forwarder::wait_first(passage& one) noexcept {
    ++counts_.queued;
    ++waiting_;
    route& way = *one.way;
    one.next = std::exchange(way.oldest, &one);
    if (one.next == nullptr) way.youngest = &one;
}

// From a server back to the client.

void forwarder::finish(line& on, completion& c) noexcept {
    passage& done = passages_[c.tag];
    route& way = *done.way;
    --on.in_flight;
    way.heard(*on.to, c);
    if (offer_again(done, on, c)) {
        if (way.oldest != nullptr) send_waiting(way);
        return;
    }
    if (c.status == status::ok) {
        answer(*done.one, c);
    } else if (c.unseen() && way.without_server(c.status) != c.status) {
        fail(*done.one, way.without_server(c.status), 0, no_server);
    } else {
        // The text may lie in the client's room for the response, and goes there again.
        std::array<char, longest_text> text;
        const std::size_t length = std::min(c.response.size(), text.size());
        if (length > 0) std::memcpy(text.data(), c.response.data(), length);
        fail(*done.one, c.status, c.code, {text.data(), length});
    }
    c.release();
    put_free(done);
    if (way.oldest != nullptr) send_waiting(way);
}

/// The request lies where the client's request has come in, until it is answered.
bool forwarder::offer_again(passage& one, line& on, completion& c) noexcept {
    if (!c.unseen() || one.one->cancelled()) return false;
    one.past = {one.past.losses + 1, on.to->serial(), c.status};
    if (!one.way->has_other(one.past)) return false;
    c.release();
    one.on = nullptr;
    if (send(one) == sending::full) wait_first(one);
    return true;
}

void forwarder::answer(exchange& one, const completion& c) noexcept {
    const std::span<std::byte> room = one.response();
    if (c.response.size() > room.size())
        return fail(one, status::message_too_large, 0, "the response is longer than the client accepts");
    if (!c.response.empty() && c.response.data() != room.data()) {
        std::memcpy(room.data(), c.response.data(), c.response.size());
        ++counts_.payload_copies;
    }
    const timeline& stages = c.timeline;
    if (stages.copy.count() > 0) one.record(stage::copy, stages.copy);
    if (stages.preprocessing.count() > 0) one.record(stage::preprocessing, stages.preprocessing);
    if (stages.inference.count() > 0) one.record(stage::inference, stages.inference);
    if (const status told = describe_answer(one, c); told != status::ok)
        return fail(one, told, 0, "the gateway cannot forward the answer's description of its tensors");
    if (const status told = reply(one, c); told != status::ok)
        return fail(one, told, 0, "the gateway cannot forward the answer's metadata");
    ++counts_.answers;
    counts_.response_bytes += c.response.size();
}

/// Not ok: nothing was sent.
status forwarder::reply(exchange& one, const completion& c) noexcept {
    const auto told = c.metadata(metadata_);
    if (!told && told.error() != status::not_found) return told.error();
    const status sent = told ? one.reply(c.response.size(), *told) : one.reply(c.response.size());
    const bool refused =
        sent == status::message_too_large || sent == status::unsupported || sent == status::invalid_argument;
    return refused ? sent : status::ok;
}

status forwarder::describe_answer(exchange& one, const completion& c) noexcept {
    const auto told = c.tensors(tensors_);
    if (told.code() == status::not_found) return status::ok;
    return told ? one.describe(c.response.size(), *told) : told.error();
}

void forwarder::fail(exchange& one, status why, std::uint32_t code, std::string_view text) noexcept {
    ++counts_.errors[static_cast<std::size_t>(why)];
    (void)one.fail(why, code, text);
}

// What waits.

/// One that has come back waits for another server than that; meanwhile it is passed by those that go anywhere.
void forwarder::send_waiting(route& way) noexcept {
    passage** at = &way.oldest;
    passage* before = nullptr;
    while (*at != nullptr) {
        passage& one = **at;
        passage* const behind = one.next;
        const bool as_before = before != nullptr && before->past.last == one.past.last;
        if (!as_before && send(one) != sending::full) {
            // Sent or ended: in either case it waits no longer.
            *at = behind;
            if (behind == nullptr) way.youngest = before;
            --waiting_;
            continue;
        }
        if (one.past.last == 0) return;
        before = &one;
        at = &one.next;
    }
}

void forwarder::drop_late(route& way) noexcept {
    passage** at = &way.oldest;
    passage* last = nullptr;
    while (*at != nullptr) {
        passage& one = **at;
        if (!one.one->cancelled()) {
            last = &one;
            at = &one.next;
            continue;
        }
        *at = one.next;
        --waiting_;
        const bool late = one.one->time_left().count() == 0;
        fail(*one.one, late ? status::timed_out : status::cancelled, 0,
             "the request waited for a free slot of the "
             "gateway");
        put_free(one);
    }
    way.youngest = last;
}

void forwarder::pass_on_cancels() noexcept {
    for (passage& each : passages_) {
        if (each.on == nullptr || each.cancelled || !each.one->cancelled()) continue;
        if (each.one->time_left().count() == 0) continue;  // its own deadline ends the call
        each.cancelled = true;
        (void)each.on->path.cancel(each.id);
    }
}

void forwarder::look_after(std::vector<route>& routes) noexcept {
    if (open_ == 0) return;
    if (open_ > waiting_) pass_on_cancels();
    for (route& each : routes) {
        if (each.oldest == nullptr) continue;
        drop_late(each);
        send_waiting(each);
    }
}

}  // namespace accel::examples::gateway
