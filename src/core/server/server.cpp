// SPDX-License-Identifier: Apache-2.0
#include "core/context_state.hpp"
#include "core/guarded.hpp"
#include "core/handle.hpp"
#include "core/internals.hpp"
#include "core/region_state.hpp"
#include "core/server/gpu_exchanges.hpp"
#include "core/server/server_core.hpp"
#include "core/server/worker.hpp"
#include "core/tensor_description.hpp"
#include "core/trace_description.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

/// The public `exchange` and `server`. Each call is one hop, after the checks of what the application gave.
namespace accel {
namespace {

/// The checked precondition of every method: the exchange is still open.
core::exchange_state& open_state(core::exchange_state* state) noexcept {
    if (state == nullptr) core::exchange_server::misuse();
    return *state;
}

/// Made by the parent of this process, which answers it.
bool is_inherited(const core::exchange_state& state) noexcept {
    return state.owner->owner().inherited();
}

status as_failure(status reason) noexcept {
    const bool failure = reason != status::ok && static_cast<std::uint16_t>(reason) < status_count;
    return failure ? reason : status::application_error;
}

bool takes_parts(const core::exchange_state& state) noexcept {
    return (state.extras & core::exchange_extra::in_parts) != 0;
}

core::server_core& server_of(const std::shared_ptr<core::server_core>& core) noexcept {
    return core::behind(core, "server");
}

/// Its last owner may be one of its handlers.
void end_server(std::shared_ptr<core::server_core> core) noexcept {
    core::leave_to_parent(core);
    if (core == nullptr) return;
    core->in_handler() ? core::server_core::stop_later(std::move(core)) : core->stop();
}

}  // namespace

exchange& exchange::operator=(exchange&& other) noexcept {
    if (this != &other) {
        if (state_ != nullptr) (void)fail(status::abandoned);
        state_ = std::exchange(other.state_, nullptr);
    }
    return *this;
}

void exchange::abandon() noexcept {
    if (std::uncaught_exceptions() > 0 && core::exchange_server::abandon_later(*state_)) return;
    (void)fail(status::abandoned);
}

std::span<const std::byte> exchange::request() const noexcept {
    const core::exchange_state& state = open_state(state_);
    const core::own_memory* own = state.own.load(std::memory_order_acquire);
    return own == nullptr ? state.request : own->request;
}
std::span<std::byte> exchange::response() const noexcept {
    return open_state(state_).room();
}
status exchange::request_slice(slice& out) const noexcept {
    const core::exchange_state& state = open_state(state_);
    out = {};
    if (is_inherited(state)) return status::invalid_state;
    return state.owner->lends().find_request(state.request, out);
}
status exchange::response_slice(slice& out) const noexcept {
    const core::exchange_state& state = open_state(state_);
    out = {};
    if (is_inherited(state)) return status::invalid_state;
    return state.owner->lends().find_response(state.response_room, out);
}
status exchange::tensors(std::span<tensor> out, std::size_t& count) const noexcept {
    const core::exchange_state& state = open_state(state_);
    count = 0;
    if (state.own.load(std::memory_order_acquire) != nullptr) return status::peer_lost;
    const std::byte* const header = state.owner->path().receive().header(state.slot);
    return core::read_description(header, state.generation, state.request, state.device == nullptr, out, count);
}
status exchange::trace(trace_context& out) const noexcept {
    const core::exchange_state& state = open_state(state_);
    out = {};
    if (state.own.load(std::memory_order_acquire) != nullptr) return status::peer_lost;
    return core::read_trace(state.owner->path().receive().header(state.slot), state.generation, out);
}
status exchange::baggage(std::span<char> out, std::size_t& length) const noexcept {
    const core::exchange_state& state = open_state(state_);
    length = 0;
    if (state.own.load(std::memory_order_acquire) != nullptr) return status::peer_lost;
    return core::read_baggage(state.owner->path().receive().header(state.slot), state.generation, out, length);
}
std::uint64_t exchange::trace_id() const noexcept {
    return open_state(state_).trace_id;
}
std::uint64_t exchange::session_id() const noexcept {
    return open_state(state_).owner->id();
}
std::string_view exchange::scheme() const noexcept {
    return open_state(state_).owner->scheme();
}
std::string_view exchange::peer() const noexcept {
    return open_state(state_).owner->client().name;
}

std::chrono::nanoseconds exchange::time_left() const noexcept {
    const auto deadline = open_state(state_).deadline;
    if (deadline == core::never) return deadline;
    return std::max(deadline - core::now(), std::chrono::nanoseconds{0});
}

bool exchange::cancelled() const noexcept {
    const core::exchange_state& state = open_state(state_);
    if (state.owner->cancels().cancelled({state.slot, state.generation})) return true;
    return state.deadline != core::never && state.deadline <= core::now();
}

std::stop_token exchange::stop_token() const {
    core::exchange_state& state = open_state(state_);
    if (is_inherited(state)) return {};
    state.ends.fetch_or(core::exchange_end::watched, std::memory_order_relaxed);
    return state.owner->cancels().watch({state.slot, state.generation}, state.deadline);
}

void exchange::record(stage what, std::chrono::nanoseconds duration) noexcept {
    open_state(state_).answer.record(what, duration);
}

memory_kind exchange::memory() const noexcept {
    const core::exchange_state& state = open_state(state_);
    return state.device == nullptr ? memory_kind::host()
                                   : state.owner->owner().exchanges().gpu()->streams().device().kind();
}

CUstream_st* exchange::stream() const noexcept {
    const core::exchange_state& state = open_state(state_);
    return state.device == nullptr ? nullptr : state.device->lane->stream->native();
}

void exchange::mark(stage what) noexcept {
    const core::exchange_state& state = open_state(state_);
    if (state.device == nullptr || what == stage::copy || is_inherited(state)) return;
    state.device->lane->stream->mark(what == stage::inference ? core::stream_mark::inference
                                                              : core::stream_mark::preprocessing);
}

status exchange::describe(std::size_t length, std::span<const tensor> list) noexcept {
    const core::exchange_state& state = open_state(state_);
    return describe({state.response_room.data(), length}, state.device == nullptr, list);
}

status exchange::describe(slice payload, std::span<const tensor> list) noexcept {
    (void)open_state(state_);
    if (payload.region() == nullptr) return status::invalid_argument;
    return describe(payload.bytes(), payload.region()->gpu() == nullptr, list);
}

/// The room for extensions belongs to the exchange, as the room for the response does.
status exchange::describe(std::span<std::byte> payload, bool on_host, std::span<const tensor> list) noexcept {
    core::exchange_state& state = *state_;
    if (state.response_room.size() < payload.size()) return status::message_too_large;
    if (is_inherited(state)) return status::invalid_state;
    if (state.own.load(std::memory_order_acquire) != nullptr) return status::peer_lost;
    std::uint16_t bytes = 0;
    const status done = core::describe_message({state.header, payload, on_host}, list, bytes);
    if (done != status::ok) return done;
    state.extension_bytes = bytes;
    state.extras |= core::exchange_extra::described;
    return done;
}

bool exchange::in_parts() const noexcept {
    return takes_parts(open_state(state_));
}

std::span<std::byte> exchange::part() noexcept {
    const core::exchange_state& state = open_state(state_);
    // Over `local`, a client that is gone may use its slots anew.
    if (!takes_parts(state) || is_inherited(state) || state.owner->gone()) return {};
    const core::exchange_state* const room = state.owner->parts_of(state).next();
    return room == nullptr ? std::span<std::byte>{} : room->response_room;
}

status exchange::send(std::size_t length) noexcept {
    const core::exchange_state& state = open_state(state_);
    if (is_inherited(state)) return status::invalid_state;
    if (!takes_parts(state)) return status::unsupported;
    if (state.owner->gone()) return status::peer_lost;
    if (state.owner->cancels().cancelled({state.slot, state.generation})) return status::cancelled;
    core::part_credits& parts = state.owner->parts_of(state);
    if (parts.named() == nullptr) return status::again;  // room that has come since was not written
    if (length > parts.named()->response_room.size()) return status::message_too_large;
    core::exchange_state& part = parts.take();
    part.payload = part.response_room.first(length);
    part.trace_id = parts.count();  // lies where a part has its number
    part.arrival = state.arrival;
    part.handler_start = state.handler_start;
    part.counts = state.counts;
    return core::exchange_server::post_part(part);
}

status exchange::send(std::span<const std::byte> bytes) noexcept {
    const std::span<std::byte> room = part();
    if (bytes.size() <= room.size() && !bytes.empty()) std::memcpy(room.data(), bytes.data(), bytes.size());
    return send(bytes.size());
}

bool exchange::await_part(part_waiter& who) noexcept {
    const core::exchange_state& state = open_state(state_);
    if (!takes_parts(state) || is_inherited(state)) return true;
    core::part_credits& parts = state.owner->parts_of(state);
    return parts.await(who, [&] { return state.owner->cancels().cancelled({state.slot, state.generation}); });
}

status exchange::reply(std::size_t length) noexcept {
    core::exchange_state& state = open_state(state_);
    if (length > state.response_room.size()) return status::message_too_large;
    state.payload = state.response_room.first(length);
    state_ = nullptr;
    return core::exchange_server::answer(state);
}

status exchange::reply(slice payload, std::atomic<std::uint32_t>& leases) noexcept {
    core::exchange_state& state = open_state(state_);
    if (payload.size() > state.response_room.size()) return status::message_too_large;
    if (payload.region() == nullptr) return status::invalid_argument;
    if (payload.region()->inherited()) return status::invalid_state;
    const bool on_gpu = payload.region()->gpu() != nullptr;
    if (on_gpu && state.device == nullptr && !state.owner->path().reaches(*payload.region(), false))
        return status::unsupported;
    if (payload.empty()) return reply(std::size_t{0});  // nothing is lent
    leases.fetch_add(1, std::memory_order_relaxed);
    state.payload = payload.bytes();
    state.answer.lent = payload.region();
    state.leases = &leases;
    state_ = nullptr;
    return core::exchange_server::answer(state);
}

status exchange::fail(status reason, std::uint32_t code, std::string_view message) noexcept {
    core::exchange_state& state = open_state(state_);
    if (is_inherited(state)) {
        state_ = nullptr;
        return status::invalid_state;
    }
    state.answer.fail(as_failure(reason));
    state.answer.application_code = code;
    core::exchange_server::write_failure(state, message);
    state_ = nullptr;
    return core::exchange_server::answer(state);
}

// The server.

server::server(std::shared_ptr<core::server_core> core) noexcept : core_(std::move(core)) {}
server::server(server&&) noexcept = default;
server& server::operator=(server&& other) noexcept {
    if (this != &other) end_server(std::exchange(core_, std::move(other.core_)));
    return *this;
}
server::~server() {
    end_server(std::move(core_));
}

result<server> server::listen(context& ctx, std::span<const std::string> uris, handler service,
                              const server_options& options) {
    return core::guarded([&] { return listen(ctx, uris, service_table{{}, std::move(service)}, options); });
}

result<server> server::listen(context& ctx, std::span<const std::string> uris, const service_table& services,
                              const server_options& options) {
    if (core::behind(core::internals::state_of(ctx), "context").inherited()) return core::made_before_fork();
    return core::guarded([&]() -> result<server> {
        auto made =
            core::server_core::listen(core::internals::state_of(ctx), {uris.begin(), uris.end()}, services, options);
        if (!made) return made.error();
        return server{std::move(*made)};
    });
}

result<server> server::listen(context& ctx, std::initializer_list<std::string_view> uris, const service_table& services,
                              const server_options& options) {
    return core::guarded([&] {
        const std::vector<std::string> copies(uris.begin(), uris.end());
        return listen(ctx, std::span<const std::string>{copies}, services, options);
    });
}

result<server> server::listen(context& ctx, std::initializer_list<std::string_view> uris, handler service,
                              const server_options& options) {
    return core::guarded([&] {
        const std::vector<std::string> copies(uris.begin(), uris.end());
        return listen(ctx, std::span<const std::string>{copies}, std::move(service), options);
    });
}

std::vector<std::string> server::endpoints() const {
    return server_of(core_).endpoints();
}
server_statistics server::statistics() const {
    return server_of(core_).inherited() ? server_statistics{} : core_->statistics();
}
std::size_t server::poll() noexcept {
    return server_of(core_).inherited() ? 0 : core_->poll();
}
int server::event_fd() const noexcept {
    return server_of(core_).inherited() ? -1 : core_->event_fd();
}
bool server::arm() noexcept {
    return server_of(core_).inherited() || core_->arm();
}
result<void> server::reload_keys() {
    if (server_of(core_).inherited()) return core::made_before_fork();
    return core_->reload_keys();
}
status server::drain(std::chrono::nanoseconds timeout) {
    return server_of(core_).inherited() ? status::invalid_state : core_->drain(timeout);
}
void server::stop() {
    if (server_of(core_).inherited()) return;
    core_->in_handler() ? core::server_core::stop_later(core_) : core_->stop();
}

}  // namespace accel
