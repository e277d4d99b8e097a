// SPDX-License-Identifier: Apache-2.0
#include "core/client/call_error.hpp"
#include "core/client/channel_core.hpp"
#include "core/context_state.hpp"
#include "core/guarded.hpp"
#include "core/handle.hpp"
#include "core/internals.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

/// The public `channel`, except its data path.
namespace accel {
namespace {

core::channel_core& channel_of(core::channel_core* core) noexcept {
    return core::behind(core, "channel");
}

}  // namespace

channel::channel(channel&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
channel& channel::operator=(channel&& other) noexcept {
    core::channel_owner replaced{std::exchange(core_, std::exchange(other.core_, nullptr))};
    core::leave_to_parent(replaced);
    return *this;
}
channel::~channel() {
    core::channel_owner ended{core_};
    core::leave_to_parent(ended);
}

result<channel> channel::connect(context& ctx, std::string_view uri, const channel_options& options) {
    if (core::behind(core::internals::state_of(ctx), "context").inherited()) return core::made_before_fork();
    return core::guarded([&]() -> result<channel> {
        auto made = core::channel_core::connect(core::internals::state_of(ctx), uri, options);
        if (!made) return made.error();
        return channel{made->release()};
    });
}

result<target> channel::resolve(std::string_view name) {
    if (channel_of(core_).inherited()) return core::made_before_fork();
    return core::guarded([&] { return core_->resolve(name); });
}
result<std::vector<std::string>> channel::targets() {
    if (channel_of(core_).inherited()) return core::made_before_fork();
    return core::guarded([&] { return core_->targets(); });
}
result<health_state> channel::health(std::string_view name) {
    if (channel_of(core_).inherited()) return core::made_before_fork();
    return core::guarded([&] { return core_->health(name); });
}
int channel::event_fd() const noexcept {
    return channel_of(core_).inherited() ? -1 : core_->event_fd();
}
bool channel::arm() noexcept {
    if (channel_of(core_).inherited()) return true;
    [[maybe_unused]] const auto inside = core_->enter("arm");
    return core_->arm();
}
void channel::close() noexcept {
    if (channel_of(core_).inherited()) return;
    [[maybe_unused]] const auto inside = core_->enter("close");
    core_->close();
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
channel_capabilities channel::capabilities() const {
    const core::connect_request& request = channel_of(core_).request();
    const core::backend* const scheme = request.context->find_backend(request.peer.scheme);
    return {scheme != nullptr && scheme->writes_lent_memory()};
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
std::string_view channel::last_error() const noexcept {
    return channel_of(core_).last_error();
}
bool channel::connected() const noexcept {
    return channel_of(core_).connected();
}
channel_statistics channel::statistics() const noexcept {
    return channel_of(core_).inherited() ? channel_statistics{} : core_->statistics();
}

namespace core {

error failed_call(const channel_core& over, status why, std::size_t length, std::string_view reason) {
    const channel_options& granted = over.request().options;
    if (why == status::message_too_large && length > granted.request_bytes) {
        return {why, 0,
                fmt::format("the request has {} bytes, but this channel accepts {}; raise request_bytes", length,
                            granted.request_bytes)};
    }
    if (why == status::again) {
        const std::uint32_t late = over.statistics().quarantined;
        if (late == 0) return {why, 0, "no free slot; poll and release completed calls, or raise slots"};
        return {why, 0,
                fmt::format("no free slot: {} of {} slots wait for late answers of calls to {} that timed out or were "
                            "cancelled; does a handler never answer?",
                            late, granted.slots, over.request().peer.text())};
    }
    return {why, 0, fmt::format("the call was not sent: {}: {}", to_string(why), reason)};
}

error failed_answer(const call_outcome& content) {
    const std::string_view text(reinterpret_cast<const char*>(content.response.data()), content.response.size());
    const std::string_view separator = text.empty() ? "" : ": ";
    return {content.status, static_cast<int>(content.code),
            fmt::format("{}{}{}", to_string(content.status), separator, text)};
}

error no_parts_in_call() {
    return {status::invalid_argument, 0, "call sends one request and waits for one response; use call_parts"};
}

}  // namespace core

namespace {

/// Sends a call with a copy of `request`.
result<call_id> send_copy(channel& to, const core::channel_core& core, std::span<const std::byte> request,
                          const submit_options& options) {
    const auto begun = to.begin();
    if (!begun) return core::failed_call(core, begun.error(), request.size(), to.last_error());
    const std::size_t fitting = std::min(request.size(), begun->request.size());
    if (fitting > 0) std::memcpy(begun->request.data(), request.data(), fitting);
    if (const status unsent = to.submit(begun->id, request.size(), options); unsent != status::ok) {
        to.release(begun->id);
        return core::failed_call(core, unsent, request.size(), to.last_error());
    }
    return begun->id;
}

}  // namespace

result<completion> channel::call(std::span<const std::byte> request, const submit_options& options) {
    if (channel_of(core_).inherited()) return core::made_before_fork();
    [[maybe_unused]] const auto inside = core_->enter("call");
    if (options.parts > 0 || options.continues) return core::no_parts_in_call();
    const auto call = send_copy(*this, *core_, request, options);
    if (!call) return call.error();
    completion content = core_->wait_for(*call);
    if (content.status != status::ok) return core::failed_answer(content);
    return result<completion>{std::move(content)};
}

result<call_in_parts> channel::call_parts(std::span<const std::byte> request, const submit_options& options) {
    if (channel_of(core_).inherited()) return core::made_before_fork();
    if (options.parts == 0 && !options.continues)
        return error{status::invalid_argument, 0,
                     "set options.parts to the number of parts to have unread, or options.continues"};
    if (options.parts + (options.continues ? 1 : 0) >= slots()) {
        return error{status::invalid_argument, 0,
                     fmt::format("options.parts is {}, but this channel has {} slots, one of them for the call{}; "
                                 "raise slots",
                                 options.parts, slots(), options.continues ? " and one for its request's parts" : "")};
    }
    const auto call = send_copy(*this, *core_, request, options);
    if (!call) return call.error();
    core_->hold();
    return call_in_parts{core_, *call};
}

call_in_parts::call_in_parts(call_in_parts&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), call_(other.call_), part_(other.part_) {}
call_in_parts& call_in_parts::operator=(call_in_parts&& other) noexcept {
    if (this != &other) {
        reset();
        owner_ = std::exchange(other.owner_, nullptr);
        call_ = other.call_;
        part_ = other.part_;
    }
    return *this;
}
call_in_parts::~call_in_parts() {
    reset();
}
void call_in_parts::reset() noexcept {
    core::channel_core* const owner = std::exchange(owner_, nullptr);
    if (owner == nullptr) return;
    if (part_.id.generation != 0) (void)owner->release(part_.id);
    owner->end_parts(call_);
    owner->let_go();
}

result<completion> call_in_parts::next(std::chrono::nanoseconds timeout) {
    core::channel_core& owner = core::behind(owner_, "call_in_parts");
    if (owner.inherited()) return core::made_before_fork();
    completion content;
    const status none = owner.wait_for_part(call_, timeout, content);
    if (none == status::again) return error{none, 0, "nothing came within the timeout; the call goes on"};
    if (none != status::ok) return error{none, 0, "the call has ended, and its end was given before"};
    if (content.status != status::ok) return core::failed_answer(content);
    return result<completion>{std::move(content)};
}

std::span<std::byte> call_in_parts::part(std::chrono::nanoseconds timeout) noexcept {
    core::channel_core& owner = core::behind(owner_, "call_in_parts");
    if (owner.inherited()) return {};
    [[maybe_unused]] const auto inside = owner.enter("part");
    if (part_.id.generation != 0) return part_.request;
    const auto begun = owner.wait_to_begin_part(call_, timeout);
    if (begun) part_ = *begun;
    return part_.request;
}

status call_in_parts::send(std::size_t length) noexcept {
    core::channel_core& owner = core::behind(owner_, "call_in_parts");
    if (owner.inherited()) return status::invalid_state;
    [[maybe_unused]] const auto inside = owner.enter("send");
    if (part_.id.generation == 0) return owner.takes_parts(call_);
    const status sent = owner.submit_part(part_.id, length, {});
    if (sent == status::ok) part_ = {};
    return sent;
}

status call_in_parts::send(std::span<const std::byte> bytes, std::chrono::nanoseconds timeout) noexcept {
    return send(bytes, timeout, {});
}
status call_in_parts::finish(std::span<const std::byte> bytes, std::chrono::nanoseconds timeout) noexcept {
    return send(bytes, timeout, {.last = true});
}
status call_in_parts::send(std::span<const std::byte> bytes, std::chrono::nanoseconds timeout,
                           const part_options& options) noexcept {
    core::channel_core& owner = core::behind(owner_, "call_in_parts");
    if (owner.inherited()) return status::invalid_state;
    if (bytes.size() > owner.request().options.request_bytes) return status::message_too_large;
    const std::span<std::byte> room = part(timeout);
    if (part_.id.generation == 0) {
        const status none = owner.takes_parts(call_);
        return none == status::again ? status::timed_out : none;
    }
    if (!bytes.empty()) std::memcpy(room.data(), bytes.data(), bytes.size());
    const status sent = owner.submit_part(part_.id, bytes.size(), options);
    if (sent == status::ok) part_ = {};
    return sent;
}

}  // namespace accel
