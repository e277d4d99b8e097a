// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"
#include "core/context_state.hpp"
#include "core/handle.hpp"

#include <accel_transport/channel.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

/// The public face of a channel: each call is one hop into `channel_core`.
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
status channel::cancel(call_id id) noexcept {
    return behind(core_).cancel(id);
}
std::size_t channel::poll(std::span<completion> out) noexcept {
    return behind(core_).poll(out);
}
std::size_t channel::wait(std::span<completion> out, std::chrono::nanoseconds timeout) noexcept {
    return behind(core_).wait(out, timeout);
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
    if (why == status::again)
        return {why, 0, "no free slot; poll and release completed calls, or raise slots"};
    return {why, 0, fmt::format("the call was not sent: {}", to_string(why))};
}

error failed_answer(const completion& content) {
    const std::string_view text(reinterpret_cast<const char*>(content.response.data()),
                                content.response.size());
    const std::string_view separator = text.empty() ? "" : ": ";
    return {content.status, static_cast<int>(content.code),
            fmt::format("{}{}{}", to_string(content.status), separator, text)};
}

}  // namespace

result<response> channel::call(std::span<const std::byte> request, const submit_options& options) {
    if (behind(core_).inherited()) return core::made_before_fork();
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

response::response(core::channel_core* owner, const completion& content) noexcept
    : owner_(owner), content_(content) {}
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
void response::reset() noexcept {
    if (auto* owner = std::exchange(owner_, nullptr); owner != nullptr) owner->release(content_.id);
}

}  // namespace accel
