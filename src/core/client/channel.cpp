// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"
#include "core/context_state.hpp"
#include "core/guarded.hpp"
#include "core/handle.hpp"
#include "core/internals.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

/// The public `channel` and `response`, but for the data path of `channel`, which channel_core.cpp ends with.
namespace accel {
namespace {

core::channel_core& channel_of(const std::unique_ptr<core::channel_core>& core) noexcept {
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
    if (core::behind(core::internals::state_of(ctx), "context").inherited()) return core::made_before_fork();
    return core::guarded([&]() -> result<channel> {
        auto made = core::channel_core::connect(core::internals::state_of(ctx), uri, options);
        if (!made) return made.error();
        return channel{std::move(*made)};
    });
}

result<target> channel::resolve(std::string_view name) {
    if (channel_of(core_).inherited()) return core::made_before_fork();
    return core::guarded([&] { return core_->resolve(name); });
}
int channel::event_fd() const noexcept {
    return channel_of(core_).inherited() ? -1 : core_->event_fd();
}
bool channel::arm() noexcept {
    return channel_of(core_).inherited() || core_->arm();
}
void channel::close() noexcept {
    if (!channel_of(core_).inherited()) core_->close();
}
status channel::tensors(const completion& c, std::span<tensor> out, std::size_t& count) const noexcept {
    return channel_of(core_).tensors(c, out, count);
}

std::size_t channel::max_request_bytes() const noexcept {
    return channel_of(core_).request().options.request_bytes;
}
std::size_t channel::max_response_bytes() const noexcept {
    return channel_of(core_).request().options.response_bytes;
}
std::uint32_t channel::slots() const noexcept {
    return channel_of(core_).request().options.slots;
}
std::string_view channel::scheme() const noexcept {
    return channel_of(core_).request().peer.scheme;
}
std::string_view channel::why() const noexcept {
    return channel_of(core_).request().why;
}
std::string channel::endpoint() const {
    return channel_of(core_).request().peer.text();
}
channel_event channel::take_event() noexcept {
    return channel_of(core_).take_event();
}
bool channel::connected() const noexcept {
    return channel_of(core_).connected();
}
channel_statistics channel::statistics() const noexcept {
    return channel_of(core_).inherited() ? channel_statistics{} : core_->statistics();
}

namespace {

error failed_call(const channel& target, status why, std::size_t length) {
    if (why == status::message_too_large) {
        return {why, 0,
                fmt::format("the request has {} bytes, but this channel accepts {}; raise request_bytes", length,
                            target.max_request_bytes())};
    }
    if (why == status::again) {
        const std::uint32_t late = target.statistics().quarantined;
        if (late == 0) return {why, 0, "no free slot; poll and release completed calls, or raise slots"};
        return {why, 0,
                fmt::format("no free slot: {} of {} slots wait for late answers of calls to {} that timed out or were "
                            "cancelled; does a handler never answer?",
                            late, target.slots(), target.endpoint())};
    }
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
    bool sent = false;
    return call(request, options, sent);
}

result<response> channel::call(std::span<const std::byte> request, const submit_options& options, bool& sent) {
    sent = false;
    if (channel_of(core_).inherited()) return core::made_before_fork();
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
    sent = true;
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
