// SPDX-License-Identifier: Apache-2.0
#include "core/client/shared_state.hpp"
#include "core/context_state.hpp"
#include "core/guarded.hpp"
#include "core/handle.hpp"
#include "core/internals.hpp"

#include <utility>

/// The public `shared_channel`, `shared_call` and `shared_response`.
namespace accel {
namespace {

core::shared_state& shared_behind(const std::shared_ptr<core::shared_state>& state) noexcept {
    return core::behind(state, "shared_channel");
}

template <class Request>
result<shared_response> shared_run(const std::shared_ptr<core::shared_state>& state, Request request,
                                   const submit_options& options) {
    if (shared_behind(state).inherited()) return core::made_before_fork();
    return core::guarded([&] {
        core::shared_operation what{request, options};
        return core::shared_state::call(state, what);
    });
}

template <class Request>
result<shared_call> shared_submit(const std::shared_ptr<core::shared_state>& state, Request request,
                                  const submit_options& options) {
    if (shared_behind(state).inherited()) return core::made_before_fork();
    return core::guarded(
        [&] { return core::shared_state::submit(state, std::make_unique<core::pending_call>(request, options)); });
}

}  // namespace

shared_channel::shared_channel(std::shared_ptr<core::shared_state> state) noexcept : state_(std::move(state)) {}
shared_channel::shared_channel(shared_channel&&) noexcept = default;
shared_channel& shared_channel::operator=(shared_channel&& other) noexcept {
    if (this != &other) {
        shared_channel old{std::move(state_)};
        state_ = std::move(other.state_);
    }
    return *this;
}
shared_channel::~shared_channel() {
    core::leave_to_parent(state_);
    if (state_ != nullptr) state_->close();
}

result<shared_channel> shared_channel::connect(context& ctx, std::string_view uri, const channel_options& options) {
    if (core::behind(core::internals::state_of(ctx), "context").inherited()) return core::made_before_fork();
    return core::guarded([&]() -> result<shared_channel> {
        auto core = core::channel_core::connect(core::internals::state_of(ctx), uri, options);
        if (!core) return core.error();
        auto made = core::shared_state::make(std::move(*core));
        if (!made) return made.error();
        return shared_channel{std::move(*made)};
    });
}

result<target> shared_channel::resolve(std::string_view name) {
    if (shared_behind(state_).inherited()) return core::made_before_fork();
    return core::guarded([&] { return state_->resolve(name); });
}
result<shared_response> shared_channel::call(std::span<const std::byte> request, const submit_options& options) {
    return shared_run(state_, request, options);
}
result<shared_response> shared_channel::call(slice payload, const submit_options& options) {
    return shared_run(state_, payload, options);
}
result<shared_call> shared_channel::submit(std::span<const std::byte> request, const submit_options& options) {
    return shared_submit(state_, request, options);
}
result<shared_call> shared_channel::submit(slice payload, const submit_options& options) {
    return shared_submit(state_, payload, options);
}

std::size_t shared_channel::max_request_bytes() const noexcept {
    return shared_behind(state_).options().request_bytes;
}
std::size_t shared_channel::max_response_bytes() const noexcept {
    return shared_behind(state_).options().response_bytes;
}
std::uint32_t shared_channel::slots() const noexcept {
    return shared_behind(state_).options().slots;
}
std::string_view shared_channel::scheme() const noexcept {
    return shared_behind(state_).scheme();
}
std::string shared_channel::endpoint() const {
    return shared_behind(state_).inherited() ? std::string{} : state_->endpoint();
}
bool shared_channel::connected() const noexcept {
    return !shared_behind(state_).inherited() && state_->connected();
}
channel_statistics shared_channel::statistics() const noexcept {
    return shared_behind(state_).inherited() ? channel_statistics{} : state_->statistics();
}
void shared_channel::close() noexcept {
    if (!shared_behind(state_).inherited()) state_->close();
}

shared_call::shared_call(std::shared_ptr<core::shared_state> owner, std::unique_ptr<core::pending_call> call) noexcept
    : owner_(std::move(owner)), call_(std::move(call)) {}
shared_call::shared_call(shared_call&&) noexcept = default;
shared_call& shared_call::operator=(shared_call&& other) noexcept {
    if (this != &other) {
        reset();
        owner_ = std::move(other.owner_);
        call_ = std::move(other.call_);
    }
    return *this;
}
shared_call::~shared_call() {
    reset();
}
void shared_call::reset() noexcept {
    core::leave_to_parent(owner_);
    if (owner_ != nullptr && call_ != nullptr) owner_->abandon(call_->call);
    call_.reset();
    owner_.reset();
}
result<shared_response> shared_call::wait() {
    if (owner_ == nullptr) return error{status::invalid_state, 0, "the call has been waited for, or moved from"};
    if (owner_->inherited()) return core::made_before_fork();
    owner_->await(call_->call);
    return core::guarded([&] {
        const auto ended = std::move(call_);
        return core::shared_state::outcome(std::move(owner_), ended->call);
    });
}
bool shared_call::done() noexcept {
    return owner_ == nullptr || owner_->inherited() || owner_->done(call_->call);
}
status shared_call::cancel() noexcept {
    if (owner_ == nullptr || owner_->inherited()) return status::invalid_state;
    return owner_->cancel(call_->call);
}

shared_response::shared_response(std::shared_ptr<core::shared_state> owner, const call_outcome& content) noexcept
    : call_outcome(content), owner_(std::move(owner)) {}
shared_response::shared_response(shared_response&& other) noexcept
    : call_outcome(other), owner_(std::move(other.owner_)) {}
shared_response& shared_response::operator=(shared_response&& other) noexcept {
    if (this != &other) {
        reset();
        owner_ = std::move(other.owner_);
        call_outcome::operator=(other);
    }
    return *this;
}
shared_response::~shared_response() {
    reset();
}
result<std::span<tensor>, accel::status> shared_response::tensors(std::span<tensor> room) const noexcept {
    if (owner_ == nullptr || owner_->inherited()) return status::invalid_state;
    return owner_->tensors(*this, room);
}
result<std::span<const metadata_entry>, accel::status> shared_response::metadata(metadata_room& room) const noexcept {
    if (owner_ == nullptr || owner_->inherited()) return status::invalid_state;
    return owner_->metadata(*this, room);
}
void shared_response::reset() noexcept {
    core::leave_to_parent(owner_);
    if (owner_ != nullptr) owner_->release(id);
    owner_.reset();
}

}  // namespace accel
