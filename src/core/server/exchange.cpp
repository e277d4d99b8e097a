// SPDX-License-Identifier: Apache-2.0
#include "core/region_state.hpp"
#include "core/server/gpu_exchanges.hpp"
#include "core/server/session.hpp"
#include "core/server/worker.hpp"

#include <accel_transport/server.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

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

std::span<std::byte> room_of(const core::exchange_state& state) noexcept {
    const core::own_memory* own = state.own.load(std::memory_order_acquire);
    return own == nullptr ? state.response_room : own->response_room;
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
    (void)fail(status::abandoned);
}

std::span<const std::byte> exchange::request() const noexcept {
    const core::exchange_state& state = open_state(state_);
    const core::own_memory* own = state.own.load(std::memory_order_acquire);
    return own == nullptr ? state.request : own->request;
}
std::span<std::byte> exchange::response() const noexcept {
    return room_of(open_state(state_));
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

void exchange::record(stage what, std::chrono::nanoseconds duration) noexcept {
    open_state(state_).answer.stages[static_cast<std::size_t>(what)] += duration;
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
    state.answer.code = reason == status::ok ? status::application_error : reason;
    state.answer.application_code = code;
    const std::span<std::byte> room = state.device == nullptr ? room_of(state) : state.device->text;
    const std::size_t length = std::min(message.size(), room.size());
    if (length > 0) std::memcpy(room.data(), message.data(), length);
    state.payload = room.first(length);
    state_ = nullptr;
    return core::exchange_server::answer(state);
}

}  // namespace accel
