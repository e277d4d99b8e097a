// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"

#include "core/client/connect_attempts.hpp"
#include "core/context_state.hpp"
#include "core/handle.hpp"
#include "core/log.hpp"
#include "core/region_state.hpp"
#include "core/tensor_description.hpp"

#include <algorithm>
#include <bit>
#include <utility>

/// A channel's data path, in the order a call travels, and that of the public `channel` at the end. Nothing here
/// allocates, locks or logs, but for the end of a connection.
namespace accel::core {
namespace {

/// True: the call has more than bytes in its slot. One comparison asks for all of it.
[[gnu::always_inline]] inline bool asks_for_more(const submit_options& options) noexcept {
    const auto parent = std::bit_cast<std::uint64_t>(options.trace.parent_id);
    return (options.response_into.size() | options.response_ranges.size() | options.tensors.size() |
            options.target.number | options.parts | options.baggage.size() | parent) != 0;
}

/// How often a link is asked for answers when its session has ended: in all, and in a row without one. All that a
/// socket holds is read in fewer.
constexpr int most_last_looks = 10'000;
constexpr int looks_in_vain = 64;

}  // namespace

result<std::unique_ptr<channel_core>> channel_core::connect(std::shared_ptr<context_state> context,
                                                            std::string_view uri, const channel_options& options) {
    using made = std::unique_ptr<channel_core>;
    return connect_to_any<made>(uri, options, [&](const connect_attempts& now) -> result<made> {
        auto request = prepare_connection(context, now.uri(), options, now.time());
        if (!request) return request.error();
        auto connection = open_by_any_scheme(*request);
        if (!connection) return connection.error();
        connect_request kept;  // as far as the end of a session needs it
        kept.context = context;
        kept.security = request->security;
        const client_session session = connection->session;
        try {
            now.restore(*request);
            auto core = std::make_unique<channel_core>(std::move(*request), std::move(*connection));
            if (auto good = core->wakeups_.check(); !good) return good.error();
            return core;
        } catch (...) {
            close_session(kept, session);
            throw;
        }
    });
}

channel_core::channel_core(connect_request request, channel_connection made)
    : request_(std::move(request)),
      life_(request_, std::move(made), wakeups_),
      calls_(request_, wakeups_),
      loss_(request_, life_, calls_),
      extras_(request_, life_, calls_, loss_),
      replaceable_(request_.options.reconnect),
      spinner_(request_.options.poll) {}

status channel_core::begin(call_view& out) noexcept {
    channel_slot* slot = life_.connected() ? calls_.slots().take_free() : nullptr;
    if (slot == nullptr) [[unlikely]] {
        if (const status none = take_late(slot); none != status::ok) return none;
    }
    out.id = slot->content.id;
    out.request = {slot->header + header_bytes, request_.options.request_bytes};
    return status::ok;
}

/// A slot for an application that may never poll: a late answer frees one, and a new connection has all.
[[gnu::noinline]] status channel_core::take_late(channel_slot*& slot) noexcept {
    if (!life_.inherited()) {
        completion_room none;
        progress(none);
    }
    if (!life_.connected()) return life_.why_unusable();
    slot = calls_.slots().take_free();
    if (slot != nullptr) return status::ok;
    if (!leave_late_answers(1)) return status::again;
    return life_.why_unusable();
}

/// The same for slots that parts take. What the channel can never have is left to the checks of the call.
inline status channel_core::make_room(const submit_options& options) noexcept {
    if (options.parts == 0) [[likely]]
        return status::ok;
    return make_room(options.parts);
}
[[gnu::noinline]] status channel_core::make_room(std::uint32_t parts) noexcept {
    if (parts <= calls_.slots().free() || parts >= calls_.slots().count()) return status::ok;
    completion_room none;
    progress(none);
    if (!life_.connected()) return life_.why_unusable();
    if (parts <= calls_.slots().free()) return status::ok;
    return leave_late_answers(parts + 1) ? life_.why_unusable() : status::again;
}

/// A server that never answers keeps slots for ever, unless the session ends. It does where another takes its place, or
/// where the `wanted` slots of a call will never be free. True: it is about to end.
bool channel_core::leave_late_answers(std::uint32_t wanted) noexcept {
    const std::uint32_t late = calls_.late();
    if (late == 0 || !(replaceable_ || late + wanted > calls_.slots().count())) return false;
    if (!calls_.gives_up_on_late_answers(now_)) return false;
    warn_of_end("slots wait for late answers, some for longer than quarantine_timeout; does a handler never answer?");
    life_.leave(status::peer_lost);
    if (calls_.slots().open() == 0) loss_.lose(status::peer_lost);
    return true;
}

// Sending.

status channel_core::submit(call_id id, std::size_t length, const submit_options& options) noexcept {
    const nanoseconds submitted = clock_.now();  // first, while little has to survive the call
    channel_slot* slot = calls_.slots().find(id);
    if (const status bad = check_submit(slot, length, options); bad != status::ok) [[unlikely]]
        return bad;
    calls_.count_submission();
    const std::span<const std::byte> payload{slot->header + header_bytes, length};
    if (asks_for_more(options)) [[unlikely]] {
        if (const status full = make_room(options); full != status::ok) return calls_.settle_submission(full);
        return calls_.settle_submission(
            extras_.submit(*slot, {id.slot, payload, nullptr, options.response_into}, options));
    }
    slot->content.trace = nullptr;
    calls_.stamp(*slot, submitted, {length, request_.options.response_bytes, 0}, options, life_);
    const status sent = calls_.queues_behind_others() ? status::again : life_.path().deliver_plain(id.slot, payload);
    if (sent != status::ok) [[unlikely]]
        return calls_.settle_submission(extras_.hold_back(*slot, {id.slot, payload, nullptr, {}}, sent, options));
    return calls_.accept_sent(*slot, false, life_.epoch(), options);
}

status channel_core::submit(call_id id, slice payload, const submit_options& options) noexcept {
    channel_slot* slot = calls_.slots().find(id);
    if (const status bad = check_submit(slot, payload.size(), options); bad != status::ok) return bad;
    if (payload.region() == nullptr) return status::invalid_argument;
    if (payload.region()->inherited()) return status::invalid_state;
    if (const status full = make_room(options); full != status::ok) return full;
    calls_.count_submission();
    return calls_.settle_submission(
        extras_.submit(*slot, {id.slot, payload.bytes(), payload.region(), options.response_into}, options));
}

status channel_core::submit(call_id id, std::span<const slice> ranges, const submit_options& options) noexcept {
    channel_slot* slot = calls_.slots().find(id);
    if (const status bad = check_submit(slot, 0, options); bad != status::ok) return bad;
    if (const status full = make_room(options); full != status::ok) return full;
    calls_.count_submission();
    return calls_.settle_submission(extras_.submit_ranges(*slot, ranges, options));
}

inline status channel_core::check_submit(const channel_slot* slot, std::size_t length,
                                         const submit_options& options) const noexcept {
    if (slot == nullptr || slot->state != slot_state::begun) return status::invalid_state;
    if (!life_.connected()) return life_.why_unusable();
    if (length > request_.options.request_bytes) return status::message_too_large;
    return options.timeout < nanoseconds{0} ? status::invalid_argument : status::ok;
}

// Receiving.

std::size_t channel_core::poll(std::span<completion> out) noexcept {
    completion_room room{out.data(), out.size()};
    if (calls_.slots().ready() > 0) [[unlikely]]
        room = hand_out(room);
    progress(room);
    if (calls_.slots().ready() > 0) [[unlikely]]
        room = hand_out(room);
    return out.size() - room.left;
}

/// The room by value, as in `end_session`.
[[gnu::noinline]] completion_room channel_core::hand_out(completion_room out) noexcept {
    return life_.inherited() ? out : calls_.hand_out(out);
}

/// Takes what the transport has, then what time and the control plane say. Answers go straight into `out`, as
/// far as there is room and none is waiting before them.
[[gnu::always_inline]] inline void channel_core::progress(completion_room& out) noexcept {
    if (calls_.has_detours()) [[unlikely]]
        extras_.follow_detours();
    if (life_.connected()) [[likely]] {
        bool goes_on = take_events(out);
        if (now_ >= calls_.slots().next_deadline()) [[unlikely]]
            goes_on = expire();
        if (goes_on && life_.watch().good()) [[likely]]
            return;
    }
    out = end_session(out);
}

/// False: the connection is lost.
[[gnu::always_inline]] inline bool channel_core::take_events(completion_room& out) noexcept {
    const link_event* event = events_.data();
    std::size_t left = life_.events().poll(events_);
    const nanoseconds taken_at = now_ = clock_.now();
    for (; left > 0; --left, ++event) {
        const bool arrived = event->kind == event_kind::arrived;
        if (arrived && calls_.on_response(*event, taken_at, life_, out)) [[likely]]
            continue;
        arrived ? loss_.lose(status::protocol_error) : on_event(*event);
        if (!life_.has_link()) return false;
    }
    return true;
}

[[gnu::noinline]] void channel_core::on_event(const link_event& event) noexcept {
    if (event.kind == event_kind::lost) return static_cast<void>(loss_.doubt(event.reason));
    calls_.on_buffer_released(event.header.slot);
}

/// False: the connection is lost. A server that has kept lent memory for too long cannot reach it any more
/// without its session.
[[gnu::noinline]] bool channel_core::expire() noexcept {
    if (calls_.expire(now_, life_) && life_.has_link()) {
        warn_of_end("its server has not released lent memory within peer_timeout of the end of a call");
        loss_.lose(status::peer_lost);
    }
    return life_.has_link();
}

/// If memory has run out, nothing is logged.
void channel_core::warn_of_end(std::string_view why) const noexcept {
    try {
        limited_log(request_.peer.host).warn("{}: the session ends, because {}", request_.peer.text(), why);
    } catch (const std::bad_alloc&) {
        return;
    }
}

/// The room by value, so that in `progress` it stays in registers.
[[gnu::noinline]] completion_room channel_core::end_session(completion_room out) noexcept {
    if (life_.inherited()) return out;
    if (life_.has_link()) out = leave_session(out);
    if (life_.has_link()) return out;
    now_ = clock_.now();
    loss_.settle(now_);
    return out;
}

/// Goes on with calls in flight while the server drains, or the session is about to be replaced.
completion_room channel_core::leave_session(completion_room out) noexcept {
    if (life_.connected() && life_.watch().drains()) life_.leave(status::closed);
    const status ended = life_.watch().ended();
    if (ended != status::ok) {
        take_rest(out);
        // An answer that is still being copied was given.
        const bool copies = calls_.staging().active() || (life_.has_link() && life_.path().receives());
        loss_.lose(ended == status::closed && copies ? status::peer_lost : ended);
    } else if (life_.leaving() && take_events(out)) {
        if (now_ >= calls_.slots().next_deadline()) (void)expire();
        if (calls_.slots().open() == 0) loss_.lose(life_.loss());
    }
    return out;
}

/// Answers that came before the end. A correct server has sent none after it. A long one takes several looks.
void channel_core::take_rest(completion_room& out) noexcept {
    int in_vain = 0;
    for (int looks = most_last_looks; looks > 0 && in_vain < looks_in_vain; --looks) {
        const auto open = calls_.slots().open();
        const auto ready = calls_.slots().ready() + out.left;
        if (!take_events(out) || calls_.slots().open() == 0) return;
        const bool same = open == calls_.slots().open() && ready == calls_.slots().ready() + out.left;
        in_vain = same ? in_vain + 1 : 0;
    }
}

status channel_core::cancel(call_id id) noexcept {
    channel_slot* slot = calls_.slots().find(id);
    if (life_.inherited() || slot == nullptr) return status::invalid_state;
    if (slot->state == slot_state::settling) return status::ok;  // it has ended, and completes in time
    if (!is_awaited(slot->state)) return status::invalid_state;
    now_ = clock_.now();
    calls_.end_early(*slot, status::cancelled, now_, life_);
    if (slot->owed && life_.has_link()) life_.tell_cancelled(id);
    return status::ok;
}

status channel_core::release(call_id id) noexcept {
    channel_slot* slot = calls_.slots().find(id);
    if (life_.inherited() || slot == nullptr) return status::invalid_state;
    const bool simple = slot->state == slot_state::taken && !slot->holds_response && !slot->owed;
    if (!simple) [[unlikely]]
        return calls_.release(*slot, life_);
    calls_.slots().put_free(*slot);
    return status::ok;
}

/// The header of every response lies in its slot, wherever its payload does.
status channel_core::tensors(const completion& of, std::span<tensor> out, std::size_t& count) noexcept {
    count = 0;
    const channel_slot* slot = calls_.slots().find(of.id);
    if (life_.inherited() || slot == nullptr || slot->state != slot_state::taken || of.status != status::ok)
        return status::invalid_state;
    return read_description(request_.responses->header(of.id.slot), of.id.generation, of.response,
                            slot->elsewhere != of.id.generation, out, count);
}

// Waiting.

template <class Done>
void channel_core::spin_then_sleep(completion_room& out, nanoseconds deadline, Done done) noexcept {
    const poll_mode mode = request_.options.poll;
    const nanoseconds start = now_;
    const nanoseconds spin_end = mode == poll_mode::busy       ? deadline
                                 : mode == poll_mode::adaptive ? std::min(deadline, start + request_.options.spin)
                                                               : start;
    spinner_.restart();
    while (!done() && now_ < deadline) {
        if (now_ < spin_end)
            spinner_.pause();
        else if (mode != poll_mode::busy && (!life_.has_link() || life_.in_doubt() || life_.events().arm()))
            sleep(deadline);
        progress(out);
    }
}

/// How a wait begins. One that goes to sleep anyway need not look first: `arm` does.
void channel_core::look(completion_room& out, nanoseconds timeout) noexcept {
    const bool sleeps = request_.options.poll == poll_mode::block && life_.has_link();
    if (!sleeps || timeout <= nanoseconds{0}) return progress(out);
    now_ = clock_.now();
}

std::size_t channel_core::wait(std::span<completion> out, nanoseconds timeout) noexcept {
    if (life_.inherited()) return 0;
    completion_room room{out.data(), out.size()};
    look(room, timeout);
    const nanoseconds deadline = timeout >= never - now_ ? never : now_ + timeout;
    spin_then_sleep(room, deadline, [&] {
        const bool nothing_to_come = life_.over() && calls_.slots().open() == 0;
        return room.left < out.size() || calls_.slots().ready() > 0 || nothing_to_come;
    });
    if (calls_.slots().ready() > 0) [[unlikely]]
        room = hand_out(room);
    return out.size() - room.left;
}

completion channel_core::wait_for(call_id id) noexcept {
    completion_room none;
    look(none, never);
    channel_slot& slot = calls_.slots()[id.slot];
    spin_then_sleep(none, never, [&slot] { return slot.state == slot_state::done; });
    calls_.slots().take_done(slot);
    calls_.count(slot, slot.content);
    return slot.content;
}

/// When there is something to do though nothing says so: a deadline, or a link that may have room by now.
nanoseconds channel_core::next_look() const noexcept {
    const nanoseconds deadline = std::min(calls_.slots().next_deadline(), life_.doubt_ends());
    return calls_.backlog().empty() ? deadline : std::min(deadline, now() + std::chrono::milliseconds{1});
}

void channel_core::sleep(nanoseconds deadline) noexcept {
    const channel_staging& staging = calls_.staging();
    nanoseconds until = std::min(deadline, next_look());
    if (staging.active() && !staging.wakes()) until = std::min(until, now() + std::chrono::microseconds{50});
    life_.sleep(until, staging.active() ? staging.event_fd() : -1);
}

bool channel_core::arm() noexcept {
    life_.be_watched();
    if (calls_.slots().ready() > 0) return false;
    const channel_staging& staging = calls_.staging();
    if (staging.active() && !staging.wakes()) return false;
    // A copy's end may be told after it was seen.
    if (!staging.active()) staging.clear_event();
    wakeups_.set_timer(next_look());
    return life_.arm();
}

// Control path.

result<target> channel_core::resolve(std::string_view name) const {
    if (!life_.connected())
        return error{life_.why_unusable(), 0, "the channel has lost its server, or the server stops"};
    auto found = resolve_target(request_, name);
    metrics_registry* const metrics = request_.context->metrics();
    if (found && metrics != nullptr) metrics->name_target(name);
    return found;
}

std::size_t channel_core::host() const noexcept {
    const auto at = std::ranges::find_if(request_.hosts, [this](const uri& each) {
        return each.host == request_.peer.host && each.port == request_.peer.port;
    });
    return at == request_.hosts.end() ? request_.first_host : static_cast<std::size_t>(at - request_.hosts.begin());
}

channel_statistics channel_core::statistics() const noexcept {
    channel_statistics out = calls_.statistics();
    out.reconnects = life_.epoch() - 1;
    return out;
}

}  // namespace accel::core

/// The data path of the public `channel`: one hop each, which the compiler can take away here.
namespace accel {

status channel::begin(call_view& out) noexcept {
    return core::behind(core_, "channel").begin(out);
}
status channel::submit(call_id id, std::size_t length, const submit_options& options) noexcept {
    return core::behind(core_, "channel").submit(id, length, options);
}
status channel::submit(call_id id, slice payload, const submit_options& options) noexcept {
    return core::behind(core_, "channel").submit(id, payload, options);
}
status channel::submit(call_id id, std::span<const slice> ranges, const submit_options& options) noexcept {
    return core::behind(core_, "channel").submit(id, ranges, options);
}
status channel::cancel(call_id id) noexcept {
    return core::behind(core_, "channel").cancel(id);
}
std::size_t channel::poll(std::span<completion> out) noexcept {
    return core::behind(core_, "channel").poll(out);
}
std::size_t channel::wait(std::span<completion> out, std::chrono::nanoseconds timeout) noexcept {
    return core::behind(core_, "channel").wait(out, timeout);
}
status channel::release(call_id id) noexcept {
    return core::behind(core_, "channel").release(id);
}

}  // namespace accel
