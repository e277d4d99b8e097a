// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"

#include "core/client/connect_attempts.hpp"
#include "core/context_state.hpp"
#include "core/handle.hpp"
#include "core/log.hpp"
#include "core/region_state.hpp"
#include "core/tensor_description.hpp"
#include "core/trace_description.hpp"

#include <accel_transport/device/detail/wire/response_target.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

/// A channel's data path, in the order a call travels, and the public face at the end: one hop each, which
/// the compiler can take away here. Nothing here allocates, locks or logs, but for the loss and the end of a
/// connection, and `channel::call`.
namespace accel::core {
namespace {

/// True: the call has more than bytes in its slot. One comparison asks for all of it.
[[gnu::always_inline]] inline bool asks_for_more(const submit_options& options) noexcept {
    const auto parent = std::bit_cast<std::uint64_t>(options.trace.parent_id);
    return (options.response_into.size() | options.response_ranges.size() | options.tensors.size() |
            options.target.number | options.parts | parent) != 0;
}

/// How long a link may take to give back what its server keeps.
constexpr nanoseconds release_grace = std::chrono::milliseconds{1'100};

}  // namespace

result<std::unique_ptr<channel_core>> channel_core::connect(std::shared_ptr<context_state> context,
                                                            std::string_view uri, const channel_options& options) {
    using made = std::unique_ptr<channel_core>;
    return connect_to_any<made>(uri, options, [&](const connect_attempts& now) -> result<made> {
        auto request = prepare_connection(context, now.uri(), options);
        if (!request) return request.error();
        auto connection = open_connection(*request);
        if (!connection) return connection.error();
        now.restore(*request);
        return std::make_unique<channel_core>(std::move(*request), std::move(*connection));
    });
}

channel_core::channel_core(connect_request request, channel_connection made)
    : request_(std::move(request)),
      life_(request_, std::move(made), wakeups_),
      calls_(request_, wakeups_),
      spinner_(request_.options.poll) {}

status channel_core::begin(call_view& out) noexcept {
    if (!life_.connected()) [[unlikely]]
        return life_.why_unusable();
    channel_slot* slot = calls_.slots().take_free();
    if (slot == nullptr) return status::again;
    out.id = slot->content.id;
    out.request = {slot->header + header_bytes, request_.options.request_bytes};
    return status::ok;
}

// Sending.

status channel_core::submit(call_id id, std::size_t length, const submit_options& options) noexcept {
    channel_slot* slot = calls_.slots().find(id);
    if (const status bad = check_submit(slot, length, options); bad != status::ok) [[unlikely]]
        return bad;
    calls_.count_submission();
    const std::span<const std::byte> payload{slot->header + header_bytes, length};
    if (asks_for_more(options)) [[unlikely]]
        return calls_.settle_submission(
            submit_more(*slot, {id.slot, payload, nullptr, options.response_into}, options));
    slot->content.trace = nullptr;
    stamp(*slot, length, request_.options.response_bytes, 0, options);
    const status sent = queues_behind_others() ? status::again : life_.path().deliver_plain(id.slot, payload);
    if (sent != status::ok) [[unlikely]]
        return calls_.settle_submission(hold_back(*slot, {id.slot, payload, nullptr, {}}, sent, options));
    return accept(*slot, false, options);
}

status channel_core::submit(call_id id, slice payload, const submit_options& options) noexcept {
    channel_slot* slot = calls_.slots().find(id);
    if (const status bad = check_submit(slot, payload.size(), options); bad != status::ok) return bad;
    if (payload.region() == nullptr) return status::invalid_argument;
    if (payload.region()->inherited()) return status::invalid_state;
    calls_.count_submission();
    return calls_.settle_submission(
        submit_more(*slot, {id.slot, payload.bytes(), payload.region(), options.response_into}, options));
}

status channel_core::submit(call_id id, std::span<const slice> ranges, const submit_options& options) noexcept {
    channel_slot* slot = calls_.slots().find(id);
    if (const status bad = check_submit(slot, 0, options); bad != status::ok) return bad;
    if (const status bad = calls_.gathered().keep(id.slot, ranges, request_.options.request_bytes); bad != status::ok)
        return bad;
    if (const status bad = check_more(options); bad != status::ok) return bad;
    outgoing message{id.slot, {}, nullptr, options.response_into};
    if (const status bad = gather(*slot, options, message); bad != status::ok) return bad;
    calls_.count_submission();
    return calls_.settle_submission(submit_more(*slot, message, options));
}

inline status channel_core::check_submit(const channel_slot* slot, std::size_t length,
                                         const submit_options& options) const noexcept {
    if (slot == nullptr || slot->state != slot_state::begun) return status::invalid_state;
    if (!life_.connected()) return life_.why_unusable();
    if (length > request_.options.request_bytes) return status::message_too_large;
    return options.timeout < nanoseconds{0} ? status::invalid_argument : status::ok;
}

/// Of what most calls leave out.
status channel_core::check_more(const submit_options& options) const noexcept {
    const bool named = options.target.number != 0;
    if (named && life_.version() < session_version::targets) return status::unsupported;
    if (options.parts > 0)
        if (const status bad = check_parts(options); bad != status::ok) return bad;
    if (!options.response_ranges.empty() && (options.parts > 0 || !options.response_into.empty()))
        return options.parts > 0 ? status::unsupported : status::invalid_argument;
    if (options.response_into.empty()) return status::ok;
    const region_state* const into = options.response_into.region();
    if (into == nullptr) return status::invalid_argument;
    return into->inherited() ? status::invalid_state : status::ok;
}

/// Each unread part takes a slot.
status channel_core::check_parts(const submit_options& options) const noexcept {
    if (life_.version() < session_version::parts) return status::unsupported;
    const bool sane = options.parts < request_.options.slots && options.part_timeout >= nanoseconds{0};
    if (!sane) return status::invalid_argument;
    return calls_.slots().free() < options.parts ? status::again : status::ok;
}

/// Calls of the backlog leave before later ones.
[[gnu::always_inline]] inline bool channel_core::queues_behind_others() const noexcept {
    return calls_.has_detours() && !calls_.backlog().empty();
}

/// Lent memory of a GPU that the link does not reach.
bool channel_core::is_staged(const region_state* lent, bool written) const noexcept {
    return lent != nullptr && lent->gpu() != nullptr && !life_.path().reaches(*lent, written);
}

/// `room`: for the response. `number`: of the target.
[[gnu::always_inline]] inline void channel_core::stamp(channel_slot& slot, std::size_t length, std::size_t room,
                                                       std::uint32_t number,
                                                       const submit_options& options) const noexcept {
    const nanoseconds submitted = now();
    const nanoseconds timeout = options.timeout > nanoseconds{0} ? options.timeout : request_.options.call_timeout;
    const nanoseconds deadline = timeout >= never - submitted ? never : submitted + timeout;
    slot.submitted = submitted;
    slot.deadline = deadline;
    slot.asked = channel_slot::asked_for(length, number);
    // Read before anything is written: the compiler cannot know that the header lies apart.
    const call_id id = slot.content.id;
    const std::int64_t at_server = (deadline == never ? never : deadline + life_.clock_offset()).count();
    const std::uint64_t trace_id = options.trace_id;
    auto& header = *new (slot.header) slot_header;
    header.slot = id.slot;
    header.generation = id.generation;
    header.length = length;
    header.trace_id = trace_id;
    header.target = number;
    header.response_room = static_cast<std::uint32_t>(room);
    header.deadline_ns = at_server;
}

[[gnu::always_inline]] inline status channel_core::accept(channel_slot& slot, bool lends,
                                                          const submit_options& options) noexcept {
    slot.owed = true;
    slot.lent = lends;
    slot.staged = false;
    slot.epoch = life_.epoch();
    calls_.accept(slot, options);
    return status::ok;
}

/// What the payload holds: in front of the header, before it is stamped, or in the payload itself.
status channel_core::describe(outgoing& message, const submit_options& options) const noexcept {
    if (options.tensors.empty()) return status::ok;
    // Its slot, or memory that the application has lent for this.
    auto* const bytes = const_cast<std::byte*>(message.payload.data());
    const bool on_host = message.ranges.empty() && (message.region == nullptr || message.region->gpu() == nullptr);
    const std::size_t others = options.response_into.empty() ? 0 : sizeof(wire::response_target_extension);
    return describe_message(
        {request_.requests->header(message.slot), {bytes, message.length()}, on_host, life_.version(), others},
        options.tensors, message.extension_bytes);
}

/// In front of what describes the payload, if there is room: no call fails for its trace.
void channel_core::trace(channel_slot& slot, outgoing& message, const submit_options& options) const noexcept {
    slot.content.trace = nullptr;
    if (!options.trace.valid()) return;
    slot.trace = options.trace;
    slot.content.trace = &slot.trace;
    const std::size_t others = options.response_into.empty() ? 0 : sizeof(wire::response_target_extension);
    message.extension_bytes = write_trace(
        {request_.requests->header(message.slot), message.extension_bytes, life_.version(), others}, options.trace);
}

/// A call with a lent payload, a place for its response, tensors, a target, or a trace.
[[gnu::noinline]] status channel_core::submit_more(channel_slot& slot, outgoing message,
                                                   const submit_options& options) noexcept {
    if (const status bad = check_more(options); bad != status::ok) return bad;
    if (const status bad = describe(message, options); bad != status::ok) return bad;
    trace(slot, message, options);
    const bool scatters = !options.response_ranges.empty();
    if (scatters)
        if (const status bad = keep_scattered(slot, options); bad != status::ok) return bad;
    const slice into = options.response_into;
    if (!into.empty() && into.region()->gpu() != nullptr) slot.on_gpu = slot.content.id.generation;
    const staged_parts staged{is_staged(message.payload.empty() ? nullptr : message.region, false),
                              is_staged(into.empty() ? nullptr : into.region(), true)};
    const bool goes_through_slot = staged.payload || staged.response;
    if (goes_through_slot && scatters) return status::unsupported;
    if (options.parts > 0) return goes_through_slot ? status::unsupported : submit_in_parts(slot, message, options);
    if (goes_through_slot) return submit_staged(slot, message, staged, options);
    stamp_more(slot, message, options);
    const status sent = hand_over(message);
    const status done =
        sent == status::ok ? accept(slot, message.lends(), options) : hold_back(slot, message, sent, options);
    slot.scatters = scatters && done == status::ok;
    return done;
}

status channel_core::hand_over(const outgoing& message) noexcept {
    if (queues_behind_others()) return status::again;
    return message.plain() ? life_.path().deliver_plain(message.slot, message.payload) : life_.path().deliver(message);
}

/// Room for parts leaves before the request, so that its handler finds it.
status channel_core::submit_in_parts(channel_slot& slot, const outgoing& message,
                                     const submit_options& options) noexcept {
    part_reader& parts = calls_.parts();
    parts.start(slot, options, life_);
    if (!calls_.backlog().empty()) calls_.set_detours(true);
    stamp_more(slot, message, options);
    reinterpret_cast<slot_header*>(slot.header)->flags = header_flag::parts;
    const status sent = hand_over(message);
    const status done =
        sent == status::ok ? accept(slot, message.lends(), options) : hold_back(slot, message, sent, options);
    done == status::ok ? parts.accept(slot, slot.submitted) : parts.undo(slot);
    return done;
}

/// … that the call's own memory has, if it goes there.
std::size_t channel_core::response_room(const channel_slot& slot, const submit_options& options) const noexcept {
    if (!options.response_ranges.empty()) return calls_.scattered().of(slot.content.id.slot).bytes;
    return options.response_into.empty() ? request_.options.response_bytes : options.response_into.size();
}

void channel_core::stamp_more(channel_slot& slot, const outgoing& message,
                              const submit_options& options) const noexcept {
    const std::size_t most = request_.options.response_bytes;
    const std::size_t room = std::min(response_room(slot, options), most);
    stamp(slot, message.length(), room, options.target.number, options);
    reinterpret_cast<slot_header*>(slot.header)->extension_bytes = message.extension_bytes;
}

/// A message that the link has no room for waits in the backlog, as does every one behind it.
[[gnu::noinline]] status channel_core::hold_back(channel_slot& slot, const outgoing& message, status unsent,
                                                 const submit_options& options) noexcept {
    if (unsent != status::again && !doubt(unsent)) return life_.loss();
    slot.owed = slot.staged = false;
    slot.lent = !message.ranges.empty();  // the link may have sent some of them
    calls_.backlog().push(message);
    calls_.set_detours(true);
    calls_.accept(slot, options);
    return status::ok;
}

[[gnu::noinline]] status channel_core::submit_staged(channel_slot& slot, const outgoing& message, staged_parts staged,
                                                     const submit_options& options) noexcept {
    channel_staging& staging = calls_.staging();
    if (const status bad = staging.prepare(message, staged); bad != status::ok) return bad;
    stamp_more(slot, message, options);
    calls_.set_detours(true);
    if (staged.payload) {
        staging.copy_out(slot);
    } else {
        const status sent = link_takes_calls() ? staging.deliver(slot, life_.path(), life_.epoch()) : status::again;
        if (sent != status::ok && sent != status::again && !doubt(sent)) return life_.loss();
        if (sent != status::ok) staging.wait_for_link(slot);
    }
    slot.staged = true;
    calls_.accept(slot, options);
    return status::ok;
}

/// Before calls of the backlog no other leaves.
bool channel_core::link_takes_calls() const noexcept {
    return life_.has_link() && calls_.backlog().empty() && !life_.in_doubt();
}

/// Calls that wait for a copy, for room, or for the reason of a loss.
[[gnu::noinline]] void channel_core::follow_detours() noexcept {
    if (life_.inherited()) return;
    channel_staging& staging = calls_.staging();
    status failure = status::ok;
    if (staging.active()) failure = staging.poll(link_takes_calls() ? &life_.path() : nullptr, life_.epoch());
    if (failure == status::ok && life_.has_link() && !life_.in_doubt())
        failure = calls_.backlog().send(life_.path(), life_.epoch(), calls_.slots());
    if (failure != status::ok) (void)doubt(failure);
    if (life_.in_doubt() && now() >= life_.doubt_ends()) lose(status::peer_lost);
    calls_.set_detours(staging.active() || !calls_.backlog().empty() || life_.in_doubt());
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
        follow_detours();
    if (life_.connected()) [[likely]] {
        bool goes_on = take_events(out);
        if (now_ >= calls_.slots().next_deadline()) [[unlikely]]
            goes_on = expire();
        if (goes_on && life_.watch().ended() == status::ok) [[likely]]
            return;
    }
    out = end_session(out);
}

/// False: the connection is lost.
[[gnu::always_inline]] inline bool channel_core::take_events(completion_room& out) noexcept {
    const link_event* event = events_.data();
    std::size_t left = life_.events().poll(events_);
    const nanoseconds taken_at = now_ = now();
    for (; left > 0; --left, ++event) {
        const bool arrived = event->kind == event_kind::arrived;
        if (arrived && calls_.on_response(*event, taken_at, life_, out)) [[likely]]
            continue;
        arrived ? lose(status::protocol_error) : on_event(*event);
        if (!life_.has_link()) return false;
    }
    return true;
}

[[gnu::noinline]] void channel_core::on_event(const link_event& event) noexcept {
    if (event.kind == event_kind::lost) return static_cast<void>(doubt(event.reason));
    calls_.on_buffer_released(event.header.slot);
}

/// False: the connection is lost. A server that has kept lent memory for too long cannot reach it any more
/// without its session.
[[gnu::noinline]] bool channel_core::expire() noexcept {
    if (calls_.expire(now_, life_) && life_.has_link()) {
        log().warn(
            "{}: the session ends, because its server has not released lent memory within peer_timeout of the end of a "
            "call",
            request_.peer.text());
        lose(status::peer_lost);
    }
    return life_.has_link();
}

/// The room by value, so that in `progress` it stays in registers.
[[gnu::noinline]] completion_room channel_core::end_session(completion_room out) noexcept {
    if (life_.inherited()) return out;
    const status ended = life_.watch().ended();
    if (life_.has_link() && ended != status::ok) {
        take_events(out);  // answers that came before the end, but after the look before
        lose(ended);
    }
    if (life_.has_link()) return out;
    now_ = now();
    settle_lost();
    return out;
}

status channel_core::cancel(call_id id) noexcept {
    channel_slot* slot = calls_.slots().find(id);
    if (life_.inherited() || slot == nullptr) return status::invalid_state;
    if (slot->state == slot_state::settling) return status::ok;  // it has ended, and completes in time
    if (!is_awaited(slot->state)) return status::invalid_state;
    now_ = now();
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
                            slot->on_gpu != of.id.generation, out, count);
}

// Losing.

/// The link has failed. True: calls that come now wait for the reason. False: the channel is lost.
bool channel_core::doubt(status why) noexcept {
    if (const status loss = life_.doubt(why); loss != status::ok) {
        lose(loss);
        return false;
    }
    calls_.set_detours(true);
    return true;
}

/// Ends the connection. Calls whose memory nobody touches complete at once, the others when the link has closed.
void channel_core::lose(status why) noexcept {
    if (!life_.lose(why)) return;
    now_ = now();
    calls_.end_all(now_, life_);
}

/// Closes the lost link as far as it goes now; once nothing touches our memory, every call is settled.
void channel_core::settle_lost() noexcept {
    if (life_.losing()) {
        if (!life_.close_link(now_)) return;
        calls_.settle_all();
        life_.end_session();
    }
    if (!life_.can_renew()) return;
    life_.renew(calls_.hold_responses(life_.epoch()));
    request_.peer.host = life_.renewed_peer().host;
    request_.peer.port = life_.renewed_peer().port;
    calls_.count_reconnect();
}

result<target> channel_core::resolve(std::string_view name) const {
    if (!life_.connected()) return error{life_.why_unusable(), 0, "the channel has lost its server"};
    auto found = resolve_target(request_, life_.version(), name);
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

void channel_core::close() noexcept {
    if (life_.closed()) return;
    life_.begin_end();
    lose(status::closed);
    const nanoseconds deadline = deadline_after(request_.options.close_timeout + release_grace);
    close_lost(deadline);
    if (!calls_.staging().finish(deadline)) {
        limited_log(request_.peer.host)
            .warn("{}: a GPU still copies lent memory after close_timeout", request_.peer.text());
    }
    life_.end();
}

void channel_core::close_lost(nanoseconds deadline) noexcept {
    for (; life_.losing(); sleep_on({}, now_ + std::chrono::microseconds{200})) {
        now_ = now();
        settle_lost();
        if (!life_.losing()) return;
        if (now_ < deadline) continue;
        limited_log(request_.peer.host)
            .warn("{}: the transport still holds lent memory after close_timeout", request_.peer.text());
        calls_.settle_all();
        return life_.end_session();
    }
}

channel_statistics channel_core::statistics() const noexcept {
    channel_statistics out = calls_.statistics();
    out.reconnects = life_.epoch() - 1;
    return out;
}

// Waiting.

template <class Done>
void channel_core::spin_then_sleep(nanoseconds deadline, Done done) noexcept {
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
        completion_room none;
        progress(none);
    }
}

/// How a wait begins. One that goes to sleep anyway need not look first: `arm` does.
void channel_core::look(nanoseconds timeout) noexcept {
    const bool sleeps = request_.options.poll == poll_mode::block && life_.has_link();
    completion_room none;
    if (!sleeps || timeout <= nanoseconds{0}) return progress(none);
    now_ = now();
}

std::size_t channel_core::wait(std::span<completion> out, nanoseconds timeout) noexcept {
    if (life_.inherited()) return 0;
    look(timeout);
    const nanoseconds deadline = timeout >= never - now_ ? never : now_ + timeout;
    spin_then_sleep(deadline, [this] {
        const bool nothing_to_come = life_.over() && calls_.slots().open() == 0;
        return calls_.slots().ready() > 0 || nothing_to_come;
    });
    return out.size() - hand_out({out.data(), out.size()}).left;
}

completion channel_core::wait_for(call_id id) noexcept {
    look(never);
    channel_slot& slot = calls_.slots()[id.slot];
    spin_then_sleep(never, [&slot] { return slot.state == slot_state::done; });
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
    if (calls_.slots().ready() > 0) return false;
    const channel_staging& staging = calls_.staging();
    if (staging.active() && !staging.wakes()) return false;
    // A copy's end may be told after it was seen.
    if (!staging.active()) staging.clear_event();
    wakeups_.set_timer(next_look());
    return life_.arm();
}

}  // namespace accel::core

/// The public face.
namespace accel {
namespace {

core::channel_core& behind(const std::unique_ptr<core::channel_core>& core) noexcept {
    return core::behind(core, "channel");
}

}  // namespace

channel::channel(std::unique_ptr<core::channel_core> core) noexcept : core_(std::move(core)) {}
channel::channel(channel&&) noexcept = default;
channel& channel::operator=(channel&& other) noexcept {
    core::leave_to_parent(core_);
    core_ = std::move(other.core_);
    return *this;
}
channel::~channel() {
    core::leave_to_parent(core_);
}

result<channel> channel::connect(context& ctx, std::string_view uri, const channel_options& options) {
    if (core::behind(ctx.state(), "context").inherited()) return core::made_before_fork();
    auto made = core::channel_core::connect(ctx.state(), uri, options);
    if (!made) return made.error();
    return channel{std::move(*made)};
}

result<target> channel::resolve(std::string_view name) {
    if (behind(core_).inherited()) return core::made_before_fork();
    return core_->resolve(name);
}
int channel::event_fd() const noexcept {
    return behind(core_).inherited() ? -1 : core_->event_fd();
}
bool channel::arm() noexcept {
    return behind(core_).inherited() || core_->arm();
}
void channel::close() noexcept {
    if (!behind(core_).inherited()) core_->close();
}

status channel::begin(call_view& out) noexcept {
    return behind(core_).begin(out);
}
status channel::submit(call_id id, std::size_t length, const submit_options& options) noexcept {
    return behind(core_).submit(id, length, options);
}
status channel::submit(call_id id, slice payload, const submit_options& options) noexcept {
    return behind(core_).submit(id, payload, options);
}
status channel::submit(call_id id, std::span<const slice> ranges, const submit_options& options) noexcept {
    return behind(core_).submit(id, ranges, options);
}
status channel::cancel(call_id id) noexcept {
    return behind(core_).cancel(id);
}
std::size_t channel::poll(std::span<completion> out) noexcept {
    return behind(core_).poll(out);
}
std::size_t channel::wait(std::span<completion> out, std::chrono::nanoseconds timeout) noexcept {
    return behind(core_).wait(out, timeout);
}
status channel::tensors(const completion& c, std::span<tensor> out, std::size_t& count) const noexcept {
    return behind(core_).tensors(c, out, count);
}
status channel::release(call_id id) noexcept {
    return behind(core_).release(id);
}

std::size_t channel::max_request_bytes() const noexcept {
    return behind(core_).request().options.request_bytes;
}
std::size_t channel::max_response_bytes() const noexcept {
    return behind(core_).request().options.response_bytes;
}
std::uint32_t channel::slots() const noexcept {
    return behind(core_).request().options.slots;
}
std::string_view channel::scheme() const noexcept {
    return behind(core_).request().peer.scheme;
}
std::string_view channel::why() const noexcept {
    return behind(core_).request().why;
}
std::string channel::endpoint() const {
    return behind(core_).request().peer.text();
}
channel_event channel::take_event() noexcept {
    return behind(core_).take_event();
}
bool channel::connected() const noexcept {
    return behind(core_).connected();
}
channel_statistics channel::statistics() const noexcept {
    return behind(core_).inherited() ? channel_statistics{} : core_->statistics();
}

namespace {

error failed_call(const channel& target, status why, std::size_t length) {
    if (why == status::message_too_large) {
        return {why, 0,
                fmt::format("the request has {} bytes, this channel takes {}; raise request_bytes", length,
                            target.max_request_bytes())};
    }
    if (why == status::again) return {why, 0, "no free slot; poll and release completed calls, or raise slots"};
    return {why, 0, fmt::format("the call was not sent: {}", to_string(why))};
}

error failed_answer(const completion& content) {
    const std::string_view text(reinterpret_cast<const char*>(content.response.data()), content.response.size());
    const std::string_view separator = text.empty() ? "" : ": ";
    return {content.status, static_cast<int>(content.code),
            fmt::format("{}{}{}", to_string(content.status), separator, text)};
}

}  // namespace

result<response> channel::call(std::span<const std::byte> request, const submit_options& options) {
    if (behind(core_).inherited()) return core::made_before_fork();
    if (options.parts > 0)
        return error{status::invalid_argument, 0, "call waits for one response; submit a request that takes parts"};
    call_view view;
    if (const status none = begin(view); none != status::ok) return failed_call(*this, none, request.size());
    const std::size_t fitting = std::min(request.size(), view.request.size());
    if (fitting > 0) std::memcpy(view.request.data(), request.data(), fitting);
    if (const status unsent = submit(view.id, request.size(), options); unsent != status::ok) {
        release(view.id);
        return failed_call(*this, unsent, request.size());
    }
    const completion content = core_->wait_for(view.id);
    if (content.status != status::ok) {
        error failure = failed_answer(content);
        release(content.id);
        return failure;
    }
    return response{core_.get(), content};
}

response::response(core::channel_core* owner, const completion& content) noexcept : owner_(owner), content_(content) {}
response::response(response&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), content_(other.content_) {}
response& response::operator=(response&& other) noexcept {
    if (this != &other) {
        reset();
        owner_ = std::exchange(other.owner_, nullptr);
        content_ = other.content_;
    }
    return *this;
}
response::~response() {
    reset();
}
status response::tensors(std::span<tensor> out, std::size_t& count) const noexcept {
    return core::behind(owner_, "response").tensors(content_, out, count);
}
void response::reset() noexcept {
    if (auto* owner = std::exchange(owner_, nullptr); owner != nullptr) owner->release(content_.id);
}

}  // namespace accel
