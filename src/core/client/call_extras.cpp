// SPDX-License-Identifier: Apache-2.0
#include "core/client/call_extras.hpp"

#include "core/region_state.hpp"
#include "core/tensor_description.hpp"
#include "core/trace_description.hpp"

#include <accel_transport/detail/wire/response_target.hpp>

#include <algorithm>

namespace accel::core {

call_extras::call_extras(const connect_request& request, channel_lifecycle& life, channel_calls& calls,
                         channel_loss& loss)
    : request_(request), life_(life), calls_(calls), loss_(loss) {}

/// Checks the options that most calls leave out.
status call_extras::check_more(const submit_options& options) const noexcept {
    if (options.parts > 0)
        if (const status bad = check_parts(options); bad != status::ok) return bad;
    if (!options.response_ranges.empty() && options.parts > 0) return status::unsupported;
    if (options.response_into.empty()) return status::ok;
    if (!options.response_ranges.empty()) return status::invalid_argument;
    const region_state* const into = options.response_into.region();
    if (into == nullptr) return status::invalid_argument;
    return into->inherited() ? status::invalid_state : status::ok;
}

/// Each unread part takes a slot.
status call_extras::check_parts(const submit_options& options) const noexcept {
    const bool sane = options.parts < request_.options.slots && options.part_timeout >= nanoseconds{0};
    if (!sane) return status::invalid_argument;
    return calls_.slots().free() < options.parts ? status::again : status::ok;
}

/// Lent memory of a GPU that the link does not reach.
bool call_extras::is_staged(const region_state* lent, bool written) const noexcept {
    return lent != nullptr && lent->gpu() != nullptr && !life_.path().reaches(*lent, written);
}

/// Writes the description of the tensors: in front of the header, before it is stamped, or into the payload itself.
status call_extras::describe(outgoing& message, const submit_options& options) const noexcept {
    if (options.tensors.empty()) return status::ok;
    // Its slot, or memory that the application has lent for this.
    auto* const bytes = const_cast<std::byte*>(message.payload.data());
    const bool on_host = message.ranges.empty() && (message.region == nullptr || message.region->gpu() == nullptr);
    const std::size_t others = options.response_into.empty() ? 0 : sizeof(wire::response_target_extension);
    return describe_message({request_.requests->header(message.slot), {bytes, message.length()}, on_host, others},
                            options.tensors, message.extension_bytes);
}

/// In front of what describes the payload, if there is room. A trace never makes a call fail.
void call_extras::trace(channel_slot& slot, outgoing& message, const submit_options& options) const noexcept {
    slot.content.trace = nullptr;
    if (!options.trace.valid()) return;
    slot.trace = options.trace;
    slot.content.trace = &slot.trace;
    const std::size_t others = options.response_into.empty() ? 0 : sizeof(wire::response_target_extension);
    message.extension_bytes =
        write_trace({request_.requests->header(message.slot), message.extension_bytes, others}, options.trace);
}

/// After the trace, which takes its room first.
void call_extras::add_baggage(outgoing& message, const submit_options& options) const noexcept {
    if (options.baggage.empty()) return;
    const std::size_t others = options.response_into.empty() ? 0 : sizeof(wire::response_target_extension);
    message.extension_bytes =
        write_baggage({request_.requests->header(message.slot), message.extension_bytes, others}, options.baggage);
}

[[gnu::noinline]] status call_extras::submit(channel_slot& slot, outgoing message,
                                             const submit_options& options) noexcept {
    if (const status bad = check_more(options); bad != status::ok) return bad;
    if (const status bad = describe(message, options); bad != status::ok) return bad;
    trace(slot, message, options);
    add_baggage(message, options);
    const bool scatters = !options.response_ranges.empty();
    if (scatters)
        if (const status bad = keep_scattered(message, options); bad != status::ok) return bad;
    const slice into = options.response_into;
    const bool on_gpu = !into.empty() && into.region()->gpu() != nullptr;
    if (on_gpu || scatters) slot.elsewhere = slot.content.id.generation;
    const staged_parts staged{is_staged(message.payload.empty() ? nullptr : message.region, false),
                              is_staged(into.empty() ? nullptr : into.region(), true)};
    const bool goes_through_slot = staged.payload || staged.response;
    if (goes_through_slot && scatters) return status::unsupported;
    if (options.parts > 0) return goes_through_slot ? status::unsupported : submit_in_parts(slot, message, options);
    if (goes_through_slot) return submit_staged(slot, message, staged, options);
    stamp_more(slot, message, options);
    const status sent = hand_over(message);
    const status done = sent == status::ok ? calls_.accept_sent(slot, message.lends(), life_.epoch(), options)
                                           : hold_back(slot, message, sent, options);
    slot.scatters = scatters && message.response_ranges.empty() && done == status::ok;
    return done;
}

status call_extras::hand_over(const outgoing& message) noexcept {
    if (calls_.queues_behind_others()) return status::again;
    return message.plain() ? life_.path().deliver_plain(message.slot, message.payload) : life_.path().deliver(message);
}

/// Room for parts leaves before the request, so that its handler finds it.
status call_extras::submit_in_parts(channel_slot& slot, const outgoing& message,
                                    const submit_options& options) noexcept {
    part_reader& parts = calls_.parts();
    parts.start(slot, options, life_);
    if (!calls_.backlog().empty()) calls_.set_detours(true);
    stamp_more(slot, message, options);
    reinterpret_cast<slot_header*>(slot.header)->flags = header_flag::parts;
    const status sent = hand_over(message);
    const status done = sent == status::ok ? calls_.accept_sent(slot, message.lends(), life_.epoch(), options)
                                           : hold_back(slot, message, sent, options);
    done == status::ok ? parts.accept(slot, slot.submitted) : parts.undo(slot);
    return done;
}

void call_extras::stamp_more(channel_slot& slot, const outgoing& message,
                             const submit_options& options) const noexcept {
    const std::size_t room = std::min(response_room(slot, options), request_.options.response_bytes);
    calls_.stamp(slot, now(), {message.length(), room, options.target.number}, options, life_);
    reinterpret_cast<slot_header*>(slot.header)->extension_bytes = message.extension_bytes;
}

[[gnu::noinline]] status call_extras::hold_back(channel_slot& slot, const outgoing& message, status unsent,
                                                const submit_options& options) noexcept {
    if (unsent != status::again && !loss_.doubt(unsent)) return life_.loss();
    slot.owed = slot.staged = false;
    slot.lent = !message.ranges.empty();  // the link may have sent some of them
    calls_.backlog().push(message);
    calls_.set_detours(true);
    calls_.accept(slot, options);
    return status::ok;
}

[[gnu::noinline]] status call_extras::submit_staged(channel_slot& slot, const outgoing& message, staged_parts staged,
                                                    const submit_options& options) noexcept {
    channel_staging& staging = calls_.staging();
    if (const status bad = staging.prepare(message, staged); bad != status::ok) return bad;
    life_.be_watched();  // waits are for the copy, too
    stamp_more(slot, message, options);
    calls_.set_detours(true);
    if (staged.payload) {
        staging.copy_out(slot);
    } else {
        const status sent = link_takes_calls() ? staging.deliver(slot, life_.path(), life_.epoch()) : status::again;
        if (sent != status::ok && sent != status::again && !loss_.doubt(sent)) return life_.loss();
        if (sent != status::ok) staging.wait_for_link(slot);
    }
    slot.staged = true;
    calls_.accept(slot, options);
    return status::ok;
}

/// Before calls of the backlog no other leaves.
bool call_extras::link_takes_calls() const noexcept {
    return life_.has_link() && calls_.backlog().empty() && !life_.in_doubt();
}

[[gnu::noinline]] void call_extras::follow_detours() noexcept {
    if (life_.inherited()) return;
    channel_staging& staging = calls_.staging();
    status failure = status::ok;
    if (staging.active()) failure = staging.poll(link_takes_calls() ? &life_.path() : nullptr, life_.epoch());
    if (failure == status::ok && life_.has_link() && !life_.in_doubt())
        failure = calls_.backlog().send(life_.path(), life_.epoch(), calls_.slots());
    if (failure != status::ok) (void)loss_.doubt(failure);
    if (life_.in_doubt() && now() >= life_.doubt_ends()) loss_.lose(status::peer_lost);
    calls_.set_detours(staging.active() || !calls_.backlog().empty() || life_.in_doubt());
}

}  // namespace accel::core
