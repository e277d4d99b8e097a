// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"
#include "core/handle.hpp"
#include "core/metadata_description.hpp"
#include "core/region_state.hpp"
#include "core/tensor_description.hpp"
#include "core/trace_description.hpp"

#include <accel_transport/detail/wire/response_target.hpp>
#include <accel_transport/interceptor.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

/// A request from its slot to the link.
namespace accel::core {
namespace {

/// True: the call has more than bytes in its slot. One comparison asks for all of it.
[[gnu::always_inline]] inline bool asks_for_more(const submit_options& options) noexcept {
    const auto parent = std::bit_cast<std::uint64_t>(options.trace.parent_id);
    return (options.response_into.size() | options.response_ranges.size() | options.tensors.size() |
            options.target.number | options.parts | options.continues | options.baggage.size() |
            options.metadata.size() | parent) != 0;
}

/// The slots that a call needs beside its own to get on: for the parts of its response, and for one of its request.
std::uint32_t further_slots(const submit_options& options) noexcept {
    return options.parts + (options.continues ? 1 : 0);
}

/// How long slots wait for late answers before a session may end for them.
nanoseconds quarantine_timeout(const channel_options& options) noexcept {
    if (options.quarantine_timeout > nanoseconds{0}) return options.quarantine_timeout;
    return options.call_timeout > never / 4 ? never : 4 * options.call_timeout;
}

/// Ranges that are shorter on average are copied: handing each to the transport would cost more.
constexpr std::size_t worth_listing = 256;

bool is_worth_listing(const range_list& list) noexcept {
    return list.bytes / list.ranges.size() >= worth_listing;
}

/// All of a list with memory of a device: what is not reached cannot be copied together with it.
bool reaches_all(link& path, std::span<const lent_range> ranges) noexcept {
    const region_state* known = nullptr;
    return std::ranges::all_of(ranges, [&](const lent_range& each) {
        if (each.region == known) return true;
        known = each.region;
        return path.reaches(*known, false);
    });
}

/// Why a call of the application fails with this status, unless somebody knows better.
constexpr std::string_view usual_reason(status code) noexcept {
    switch (code) {
        case status::again:
            return "no slot is free: poll, and release completed calls";
        case status::peer_lost:
            return "the server is lost";
        case status::closed:
            return "the channel was closed, or its server is draining or has stopped";
        case status::device_lost:
            return "the GPU or its driver has failed";
        case status::message_too_large:
            return "the request is longer than max_request_bytes()";
        case status::invalid_argument:
            return "the timeout is negative";
        case status::out_of_memory:
            return "no memory is left";
        case status::unsupported:
            return "memory is on a GPU that the transport cannot reach";
        default:
            return "the id is stale, its call is in another state, or this process is a child of the channel's";
    }
}

constexpr std::string_view unregistered = "lent memory must be part of a region (context::allocate, register_memory)";
constexpr std::string_view from_the_parent = "the memory was registered before fork()";

/// Why a list of ranges was refused with this status.
std::string_view reason_of(status code, std::span<const slice> ranges) noexcept {
    if (code == status::invalid_state) return from_the_parent;
    if (code != status::invalid_argument) return usual_reason(code);
    if (ranges.size() > max_ranges) return "there are more than max_ranges ranges";
    const auto is_unregistered = [](const slice& each) { return !each.empty() && each.region() == nullptr; };
    return std::ranges::any_of(ranges, is_unregistered) ? unregistered : "a range reaches beyond its region";
}

/// Bytes of a request's extensions that only the link writes.
std::size_t extensions_of_link(const submit_options& options) noexcept {
    return options.response_into.empty() ? 0 : sizeof(wire::response_target_extension);
}

/// Bytes of a request's extensions that are written after tensors, trace and baggage.
std::size_t later_extensions(const submit_options& options) noexcept {
    return extensions_of_link(options) + (options.metadata.empty() ? 0 : metadata_after_bytes);
}

bool is_on_device(const region_state* region) noexcept {
    return region != nullptr && region->device() != nullptr;
}

bool is_on_device(const outgoing& message) noexcept {
    return is_on_device(message.region) ||
           std::ranges::any_of(message.ranges, [](const lent_range& each) { return is_on_device(each.region); });
}

}  // namespace

result<call_view, status> channel_core::begin() noexcept {
    channel_slot* slot = life_.connected() ? slots_.take_free() : nullptr;
    if (slot == nullptr) [[unlikely]]
        return begin_late();
    return view_of(*slot);
}

[[gnu::noinline]] status channel_core::fail(status code) noexcept {
    return fail(code, usual_reason(code));
}

/// For an application that may never poll: a late answer frees a slot, and a new connection has all.
[[gnu::noinline]] result<call_view, status> channel_core::begin_late() noexcept {
    if (!life_.inherited()) {
        completion_room none;
        progress(none);
    }
    if (!life_.connected()) return fail(life_.why_unusable());
    if (const channel_slot* const slot = slots_.take_free(); slot != nullptr) return view_of(*slot);
    if (!leave_late_answers(1)) return fail(status::again);
    return fail(life_.why_unusable());
}

/// The same for slots that parts take. What the channel can never have is left to the checks of the call.
inline status channel_core::make_room(const submit_options& options) noexcept {
    if (options.parts == 0 && !options.continues) [[likely]]
        return status::ok;
    return make_room(further_slots(options));
}
[[gnu::noinline]] status channel_core::make_room(std::uint32_t parts) noexcept {
    if (parts <= slots_.free() || parts >= slots_.count()) return status::ok;
    completion_room none;
    progress(none);
    if (!life_.connected()) return life_.why_unusable();
    if (parts <= slots_.free()) return status::ok;
    return leave_late_answers(parts + 1) ? life_.why_unusable() : status::again;
}

/// A server that never answers keeps slots for ever, unless the session ends. It does where another takes its place, or
/// where the `wanted` slots of a call will never be free. True: it is about to end.
bool channel_core::leave_late_answers(std::uint32_t wanted) noexcept {
    const std::uint32_t waiting = late();  // slots that only a late answer frees
    if (waiting == 0 || !(replaceable_ || waiting + wanted > slots_.count())) return false;
    request_parts_.note_left_behind(now_);
    if (now_ < quarantine_ends()) return false;
    warn_of_end("slots wait for late answers, some for longer than quarantine_timeout; does a handler never answer?");
    life_.leave(status::peer_lost);
    if (slots_.open() == 0) lose(status::peer_lost);
    return true;
}

/// A call that has ended keeps when it began and how long it took.
nanoseconds channel_core::quarantine_ends() const noexcept {
    nanoseconds first = request_parts_.left_since();
    for (const channel_slot& slot : slots_.all())
        if (slot.state == slot_state::quarantined)
            first = std::min(first, slot.submitted + slot.content.timeline.total);
    const nanoseconds patience = quarantine_timeout(request_.options);
    return patience >= never - first ? never : first + patience;
}

// Most calls.

inline status channel_core::check_submit(const channel_slot* slot, std::size_t length,
                                         const submit_options& options) const noexcept {
    if (slot == nullptr || slot->state != slot_state::begun) return status::invalid_state;
    if (!life_.connected()) return life_.why_unusable();
    if (length > request_.options.request_bytes) return status::message_too_large;
    return options.timeout < nanoseconds{0} ? status::invalid_argument : status::ok;
}

/// Writes the header of a request into its slot, and when the call ends.
[[gnu::always_inline]] inline void channel_core::stamp(channel_slot& slot, nanoseconds submitted,
                                                       const request_shape& shape,
                                                       const submit_options& options) const noexcept {
    const nanoseconds timeout = options.timeout > nanoseconds{0} ? options.timeout : request_.options.call_timeout;
    std::int64_t ends = 0;
    std::int64_t at_server = never.count();
    if (__builtin_add_overflow(submitted.count(), timeout.count(), &ends)) [[unlikely]]
        ends = never.count();
    else if (__builtin_add_overflow(ends, life_.clock_offset().count(), &at_server)) [[unlikely]]
        at_server = never.count();
    slot.submitted = submitted;
    slot.deadline = nanoseconds{ends};
    slot.ask(shape.length, shape.target);
    // Read before anything is written: the compiler cannot know that the header lies apart.
    const call_id id = slot.content.id;
    const std::uint64_t trace_id = options.trace_id;
    auto& header = *new (slot.header) slot_header;
    header.slot = id.slot;
    header.generation = id.generation;
    header.length = shape.length;
    header.trace_id = trace_id;
    header.target = shape.target;
    header.response_room = static_cast<std::uint32_t>(shape.room);
    header.deadline_ns = at_server;
}

/// The call is submitted.
inline void channel_core::accept(channel_slot& slot, const submit_options& options) noexcept {
    slot.content.tag = options.tag;
    slot.content.trace_id = options.trace_id;
    slots_.set_in_flight(slot);
}

/// … and the link has it.
inline status channel_core::accept_sent(channel_slot& slot, bool lends, const submit_options& options) noexcept {
    slot.owed = true;
    slot.lent = lends;
    slot.staged = false;
    slot.epoch = life_.epoch();
    accept(slot, options);
    return status::ok;
}

/// Takes back the count of a call that was not submitted.
inline status channel_core::settle_submission(status outcome) noexcept {
    if (outcome != status::ok) submitted_.add(~std::uint64_t{0});
    return outcome;
}

/// `submit` gets the options as the interceptors leave them.
template <class Submit>
[[gnu::noinline]] status channel_core::intercept(call_id id, std::size_t length, const submit_options& options,
                                                 Submit submit) noexcept {
    outgoing_call call(number_, id, length, options);
    std::size_t seen = 0;
    status done = ask_interceptors(call, seen);
    if (done == status::ok) {
        intercepted_ = false;
        done = submit(changed_by(call, options));
        intercepted_ = true;
    }
    if (done == status::ok) return done;
    call_outcome unsent;
    unsent.id = unsent.call = id;
    unsent.status = done;
    unsent.tag = options.tag;
    unsent.trace_id = call.options.trace_id;
    unsent.trace = call.options.trace.valid() ? &call.options.trace : nullptr;
    tell_interceptors(unsent, seen);
    return done;
}

status channel_core::submit(call_id id, std::size_t length, const submit_options& options) noexcept {
    const nanoseconds submitted = clock_.now();  // first, while little has to survive the call
    channel_slot* slot = slots_.find(id);
    if (const status bad = check_submit(slot, length, options); bad != status::ok) [[unlikely]]
        return fail(bad);
    submitted_.add();
    const std::span<const std::byte> payload{slot->header + header_bytes, length};
    if (asks_for_more(options) || intercepted_) [[unlikely]] {
        if (const status full = make_room(options); full != status::ok) return settle_submission(fail(full));
        if (intercepted_) {
            (void)settle_submission(status::again);
            return intercept(id, length, options, [&](const auto& changed) { return submit(id, length, changed); });
        }
        return settle_submission(submit_more(*slot, {id.slot, payload, nullptr, options.response_into}, options));
    }
    slot->content.trace = nullptr;
    stamp(*slot, submitted, {length, request_.options.response_bytes, 0}, options);
    const status sent = queues_after_others() ? status::again : life_.path().deliver_plain(id.slot, payload);
    if (sent != status::ok) [[unlikely]]
        return settle_submission(hold_back(*slot, {id.slot, payload, nullptr, {}}, sent, options));
    return accept_sent(*slot, false, options);
}

/// A message that the link has no room for waits in the backlog, as does every later one.
[[gnu::noinline]] status channel_core::hold_back(channel_slot& slot, const outgoing& message, status unsent,
                                                 const submit_options& options) noexcept {
    if (unsent != status::again && !doubt_unsent(unsent)) return fail(life_.loss());
    slot.owed = slot.staged = false;
    slot.lent = !message.ranges.empty();  // the link may have sent some of them
    backlog_.push(message);
    detours_ = true;
    accept(slot, options);
    return status::ok;
}

// What few calls have.

status channel_core::submit(call_id id, slice payload, const submit_options& options) noexcept {
    channel_slot* slot = slots_.find(id);
    if (const status bad = check_submit(slot, payload.size(), options); bad != status::ok) return fail(bad);
    if (payload.region() == nullptr) return fail(status::invalid_argument, unregistered);
    if (payload.region()->inherited()) return fail(status::invalid_state, from_the_parent);
    if (const status full = make_room(options); full != status::ok) return fail(full);
    if (intercepted_)
        return intercept(id, payload.size(), options,
                         [&](const auto& changed) { return submit(id, payload, changed); });
    submitted_.add();
    return settle_submission(
        submit_more(*slot, {id.slot, payload.bytes(), payload.region(), options.response_into}, options));
}

status channel_core::submit(call_id id, std::span<const slice> ranges, const submit_options& options) noexcept {
    channel_slot* slot = slots_.find(id);
    if (const status bad = check_submit(slot, 0, options); bad != status::ok) return fail(bad);
    if (const status full = make_room(options); full != status::ok) return fail(full);
    if (intercepted_) {
        std::size_t length = 0;
        for (const slice& each : ranges) length += each.size();
        return intercept(id, length, options, [&](const auto& changed) { return submit(id, ranges, changed); });
    }
    const status unfit = gathered_.keep(id.slot, ranges, request_.options.request_bytes);
    if (unfit != status::ok) return fail(unfit, reason_of(unfit, ranges));
    if (const status bad = check_more(options); bad != status::ok) return bad;
    outgoing message{id.slot, {}, nullptr, options.response_into};
    if (const status bad = gather(*slot, options, message); bad != status::ok) return bad;
    submitted_.add();
    return settle_submission(submit_more(*slot, message, options));
}

[[gnu::noinline]] status channel_core::submit_more(channel_slot& slot, outgoing message,
                                                   const submit_options& options) noexcept {
    if (const status bad = check_more(options); bad != status::ok) return bad;
    const bool scatters = !options.response_ranges.empty();
    if (scatters)
        if (const status bad = keep_scattered(message, options); bad != status::ok) return bad;
    const slice into = options.response_into;
    const bool on_device = !into.empty() && into.region()->device() != nullptr;
    const staged_parts staged{is_staged(message.payload.empty() ? nullptr : message.region, false),
                              is_staged(into.empty() ? nullptr : into.region(), true)};
    const bool goes_through_slot = staged.payload || staged.response;
    if (goes_through_slot && (scatters || options.parts > 0 || options.continues)) return fail(status::unsupported);
    // These write into the slot, which is left as it is for a submission that cannot be.
    if (const status bad = describe(message, options); bad != status::ok) return bad;
    add_trace(slot, message, options);
    add_baggage(message, options);
    if (const status bad = add_metadata(message, options); bad != status::ok) return bad;
    status done = status::ok;
    if (options.parts > 0) {
        done = submit_in_parts(slot, message, options);
    } else if (goes_through_slot) {
        done = submit_staged(slot, message, staged, options);
    } else {
        stamp_more(slot, message, options);
        const status sent = hand_over(message);
        done =
            sent == status::ok ? accept_sent(slot, message.lends(), options) : hold_back(slot, message, sent, options);
        slot.scatters = scatters && message.response_ranges.empty() && done == status::ok;
    }
    if (options.continues && done == status::ok) request_parts_.start(slot);
    const bool elsewhere = done == status::ok && (on_device || scatters);
    slot.elsewhere = elsewhere ? slot.content.id.generation : 0;
    return done;
}

/// Checks the options that most calls leave out.
status channel_core::check_more(const submit_options& options) noexcept {
    if (options.parts > 0 || options.continues)
        if (const status bad = check_parts(options); bad != status::ok) return bad;
    if (!options.response_ranges.empty() && options.parts > 0)
        return fail(status::unsupported, "a response in parts cannot fill response_ranges");
    if (options.response_into.empty()) return status::ok;
    if (!options.response_ranges.empty())
        return fail(status::invalid_argument, "response_into and response_ranges cannot both be given");
    const region_state* const into = options.response_into.region();
    if (into == nullptr) return fail(status::invalid_argument, unregistered);
    return into->inherited() ? fail(status::invalid_state, from_the_parent) : status::ok;
}

/// Each unread part takes a slot.
status channel_core::check_parts(const submit_options& options) noexcept {
    if (options.parts >= request_.options.slots)
        return fail(status::invalid_argument, "parts must be less than slots(): each unread part takes a slot");
    if (options.continues && options.parts + 1 >= request_.options.slots)
        return fail(status::invalid_argument, "no slot is left for a further part of the request; raise slots");
    if (options.part_timeout < nanoseconds{0}) return fail(status::invalid_argument, "part_timeout is negative");
    return slots_.free() < further_slots(options) ? fail(status::again) : status::ok;
}

/// Writes the description of the tensors: in front of the header, before it is stamped, or into the payload itself.
status channel_core::describe(outgoing& message, const submit_options& options) noexcept {
    if (options.tensors.empty()) return status::ok;
    // Its slot, or memory that the application has lent for this.
    auto* const bytes = const_cast<std::byte*>(message.payload.data());
    const bool on_host = message.ranges.empty() && (message.region == nullptr || message.region->device() == nullptr);
    const status written = describe_message(
        {request_.requests->header(message.slot), {bytes, message.length()}, on_host, later_extensions(options)},
        options.tensors, message.extension_bytes);
    if (written == status::ok) return written;
    if (written == status::unsupported)
        return fail(written, "the tensors need a table, which cannot be written to lent ranges or to a GPU");
    return fail(written, options.tensors.size() > max_tensors
                             ? "there are more than max_tensors tensors"
                             : "a tensor is not valid or not within the payload, after the table (place_tensors)");
}

/// In front of what describes the payload, if there is room. A trace never makes a call fail.
void channel_core::add_trace(channel_slot& slot, outgoing& message, const submit_options& options) const noexcept {
    slot.content.trace = nullptr;
    if (!options.trace.valid()) return;
    slot.trace = options.trace;
    slot.content.trace = &slot.trace;
    message.extension_bytes = write_trace(
        {request_.requests->header(message.slot), message.extension_bytes, later_extensions(options)}, options.trace);
}

/// After the trace, which takes its room first.
void channel_core::add_baggage(outgoing& message, const submit_options& options) const noexcept {
    if (options.baggage.empty()) return;
    message.extension_bytes = write_baggage(
        {request_.requests->header(message.slot), message.extension_bytes, later_extensions(options)}, options.baggage);
}

/// Beside all others if there is room, else after the payload.
status channel_core::add_metadata(outgoing& message, const submit_options& options) noexcept {
    if (options.metadata.empty()) return status::ok;
    const std::size_t bytes = metadata_bytes(options.metadata);
    if (bytes == 0)
        return fail(status::invalid_argument,
                    "metadata has a key or value that is not valid, a key twice, or too many entries or bytes");
    const extended_message to{request_.requests->header(message.slot), message.extension_bytes,
                              extensions_of_link(options)};
    message.extension_bytes = write_metadata(to, options.metadata, bytes);
    if (message.extension_bytes != to.extension_bytes) return status::ok;
    if (is_on_device(message))
        return fail(status::unsupported, "metadata does not fit beside the header, and the payload is on a GPU");
    if (message.length() + bytes > request_.options.request_bytes)
        return fail(status::message_too_large,
                    "metadata does not fit beside the header, nor after the request in max_request_bytes()");
    const std::span<std::byte> all = bring_into_slot(message, bytes);
    message.extension_bytes = write_metadata_after(to, all.data() + all.size() - bytes, options.metadata, bytes);
    return status::ok;
}

/// Copies a lent payload into the slot, where `more` bytes follow it.
std::span<std::byte> channel_core::bring_into_slot(outgoing& message, std::size_t more) noexcept {
    std::byte* const room = request_.requests->header(message.slot) + header_bytes;
    const std::size_t length = message.length();
    if (!message.ranges.empty())
        range_cursor{}.copy_out(message.ranges, room, length);
    else if (message.region != nullptr && length > 0)
        std::memcpy(room, message.payload.data(), length);
    if (message.region != nullptr) count_copied(length);
    message.ranges = {};
    message.range_bytes = 0;
    message.region = nullptr;
    message.payload = {room, length + more};
    return {room, length + more};
}

/// The list of `slot` as a payload: as it is, where the link gathers, or copied into the slot.
status channel_core::gather(channel_slot& slot, const submit_options& options, outgoing& out) noexcept {
    const range_list& list = gathered_.of(out.slot);
    std::byte* const room = slot.header + header_bytes;
    link& path = life_.path();
    if (list.ranges.empty()) {
        out.payload = {room, 0};
        return status::ok;
    }
    const lent_range& first = list.ranges.front();
    if (list.ranges.size() == 1) {
        out.payload = {first.data, first.size};
        out.region = first.region;
        return status::ok;
    }
    const slice into = options.response_into;
    const bool stages = is_staged(into.empty() ? nullptr : into.region(), true);
    const bool gathers = path.gathers() && !stages;
    if (list.on_device && !(gathers && reaches_all(path, list.ranges))) return fail(status::unsupported);
    const bool copies = !gathers || (!list.on_device && !is_worth_listing(list));
    if (copies) {
        range_cursor{}.copy_out(list.ranges, room, list.bytes);
        count_copied(list.bytes);
        out.payload = {room, list.bytes};
        return status::ok;
    }
    out.ranges = list.ranges;
    out.range_bytes = list.bytes;
    out.region = first.region;
    return status::ok;
}

/// Where the response goes, piece by piece: by the link, or copied from its slot when it has arrived.
status channel_core::keep_scattered(outgoing& message, const submit_options& options) noexcept {
    const status bad = scattered_.keep(message.slot, options.response_ranges, max_payload_bytes);
    if (bad == status::message_too_large) return fail(bad, "response_ranges hold more than a response may have");
    if (bad != status::ok) return fail(bad, reason_of(bad, options.response_ranges));
    const range_list& list = scattered_.of(message.slot);
    if (list.on_device) return fail(status::unsupported, "response_ranges must be on the host");
    const bool by_link = life_.path().scatters() && !list.ranges.empty() && is_worth_listing(list);
    if (!by_link) return status::ok;
    message.response_ranges = list.ranges;
    message.response_bytes = list.bytes;
    return status::ok;
}

/// Lent memory of a device that the link does not reach.
bool channel_core::is_staged(const region_state* lent, bool written) const noexcept {
    return lent != nullptr && lent->device() != nullptr && !life_.path().reaches(*lent, written);
}

/// For a response: where the call's own memory is shorter than a slot, the server may fill no more.
std::size_t channel_core::response_room(const channel_slot& slot, const submit_options& options) const noexcept {
    if (!options.response_ranges.empty()) return scattered_.of(slot.content.id.slot).bytes;
    return options.response_into.empty() ? request_.options.response_bytes : options.response_into.size();
}

void channel_core::stamp_more(channel_slot& slot, const outgoing& message,
                              const submit_options& options) const noexcept {
    const std::size_t room = std::min(response_room(slot, options), request_.options.response_bytes);
    stamp(slot, now(), {message.length(), room, options.target.number}, options);
    auto& header = *reinterpret_cast<slot_header*>(slot.header);
    header.extension_bytes = message.extension_bytes;
    header.flags = static_cast<std::uint16_t>((options.parts > 0 ? header_flag::parts : 0) |
                                              (options.continues ? header_flag::continues : 0));
}

status channel_core::hand_over(const outgoing& message) noexcept {
    if (queues_after_others()) return status::again;
    return message.plain() ? life_.path().deliver_plain(message.slot, message.payload) : life_.path().deliver(message);
}

/// Room for parts leaves before the request, so that its handler finds it.
status channel_core::submit_in_parts(channel_slot& slot, const outgoing& message,
                                     const submit_options& options) noexcept {
    parts_.start(slot, options);
    if (!backlog_.empty()) detours_ = true;
    stamp_more(slot, message, options);
    const status sent = hand_over(message);
    const status done =
        sent == status::ok ? accept_sent(slot, message.lends(), options) : hold_back(slot, message, sent, options);
    done == status::ok ? parts_.accept(slot, slot.submitted) : parts_.undo(slot);
    return done;
}

[[gnu::noinline]] status channel_core::submit_staged(channel_slot& slot, const outgoing& message, staged_parts staged,
                                                     const submit_options& options) noexcept {
    if (const status bad = staging_.prepare(message, staged); bad != status::ok) return fail(bad);
    life_.be_watched();  // waits are for the copy, too
    stamp_more(slot, message, options);
    detours_ = true;
    if (staged.payload) {
        staging_.copy_out(slot);
    } else {
        const status sent = link_takes_calls() ? staging_.deliver(slot, life_.path(), life_.epoch()) : status::again;
        if (sent != status::ok && sent != status::again && !doubt_unsent(sent)) return fail(life_.loss());
        if (sent != status::ok) staging_.wait_for_link(slot);
    }
    slot.staged = true;
    accept(slot, options);
    return status::ok;
}

// Parts of a request.

result<call_view, status> channel_core::begin_part(call_id call) noexcept {
    if (life_.inherited() || !request_parts_.is_open(call)) return refuse_part(call);
    if (slots_.free() == 0) {
        completion_room none;
        progress(none);
        if (!request_parts_.is_open(call)) return refuse_part(call);
    }
    channel_slot* const slot = slots_.take_free();
    if (slot == nullptr) return fail(status::again);
    request_parts_.begin(*slot, call);
    return view_of(*slot);
}

status channel_core::submit_part(call_id part, std::size_t length, const part_options& options) noexcept {
    channel_slot* const slot = slots_.find(part);
    if (life_.inherited() || slot == nullptr || slot->state != slot_state::part_begun)
        return fail(status::invalid_state);
    const call_id call = request_parts_.call_of(*slot);
    if (!request_parts_.is_open(call)) return refuse_part(call);
    if (request_.options.request_bytes < length) return fail(status::message_too_large);
    request_parts_.send(*slot, length, options.last);
    if (metrics_ != nullptr) metrics_->count_request_part(slots_[call.slot].asked, length);
    if (!backlog_.empty()) detours_ = true;
    return status::ok;
}

/// Of a call that does not take them.
status channel_core::refuse_part(call_id call) noexcept {
    const channel_slot* const slot = slots_.find(call);
    const bool open = !life_.inherited() && slot != nullptr && is_awaited(slot->state);
    if (!open) return fail(status::invalid_state, "the call has ended, and takes no part of a request any more");
    return fail(status::invalid_state, "the last part of the request was sent, or it was sent without `continues`");
}

}  // namespace accel::core

/// The public `channel`: one hop each, which the compiler can take away here.
namespace accel {

result<call_view, status> channel::begin() noexcept {
    core::channel_core& own = core::behind(core_, "channel");
    [[maybe_unused]] const auto inside = own.enter("begin");
    return own.begin();
}
status channel::submit(call_id id, std::size_t length, const submit_options& options) noexcept {
    core::channel_core& own = core::behind(core_, "channel");
    [[maybe_unused]] const auto inside = own.enter("submit");
    return own.submit(id, length, options);
}
status channel::submit(call_id id, slice payload, const submit_options& options) noexcept {
    core::channel_core& own = core::behind(core_, "channel");
    [[maybe_unused]] const auto inside = own.enter("submit");
    return own.submit(id, payload, options);
}
status channel::submit(call_id id, std::span<const slice> ranges, const submit_options& options) noexcept {
    core::channel_core& own = core::behind(core_, "channel");
    [[maybe_unused]] const auto inside = own.enter("submit");
    return own.submit(id, ranges, options);
}
result<call_view, status> channel::begin_part(call_id call) noexcept {
    core::channel_core& own = core::behind(core_, "channel");
    [[maybe_unused]] const auto inside = own.enter("begin_part");
    return own.begin_part(call);
}
status channel::submit_part(call_id part, std::size_t length, const part_options& options) noexcept {
    core::channel_core& own = core::behind(core_, "channel");
    [[maybe_unused]] const auto inside = own.enter("submit_part");
    return own.submit_part(part, length, options);
}

}  // namespace accel
