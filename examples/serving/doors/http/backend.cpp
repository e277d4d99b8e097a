// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/backend.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <boost/asio/post.hpp>
#include <unistd.h>

namespace accel::examples::serving::doors {

using boost::asio::posix::stream_descriptor;

backend::backend(boost::asio::io_context& loop, channel to)
    : loop_(loop), channel_(std::move(to)), events_(loop, dup(channel_.event_fd())), calls_(channel_.slots()) {
    wake();
}

void backend::ask_slot(const std::shared_ptr<caller>& who, std::uint32_t parts) {
    waiting_.push_back({who, parts});
    serve_waiting();
}

void backend::forget(const caller& who) {
    std::erase_if(waiting_, [&](const auto& each) { return each.who.get() == &who; });
}

status backend::submit(call_id id, std::size_t length, const submit_options& options,
                       const std::shared_ptr<caller>& who) {
    return expect(channel_.submit(id, length, options), id, {who, options.parts});
}

status backend::submit(call_id id, std::span<const slice> lent, const submit_options& options,
                       const std::shared_ptr<caller>& who) {
    // One slice alone may be on a GPU that the channel does not reach.
    const status sent =
        lent.size() == 1 ? channel_.submit(id, lent.front(), options) : channel_.submit(id, lent, options);
    return expect(sent, id, {who, options.parts});
}

status backend::expect(status sent, call_id id, open_call one) {
    if (sent != status::ok) return sent;
    if (one.parts > 0) in_parts_ += one.parts + 1;
    calls_[id.slot] = std::move(one);
    // The descriptor has to tell of this call's deadline as well, though the loop sleeps on it already.
    if (!channel_.arm()) wake();
    return sent;
}

void backend::release(call_id id) {
    static_cast<void>(channel_.release(id));
    serve_waiting();
}

std::span<const tensor> backend::tensors(const completion& answer) {
    std::size_t count = 0;
    if (channel_.tensors(answer, described_, count) != status::ok) return {};
    return std::span{described_}.first(count);
}

/// A caller may give its slot back at once: the round that is under way goes on with it.
void backend::serve_waiting() {
    if (std::exchange(serving_, true)) return;
    while (serve_next()) {
    }
    serving_ = false;
}

bool backend::may_begin(const waiting_call& one) const {
    return one.parts == 0 || in_parts_ == 0 || in_parts_ + one.parts + 1 <= channel_.slots() / 4 * 3;
}

/// Begins a call while `parts` slots are free besides.
status backend::begin(std::uint32_t parts, call_view& call) {
    std::array<call_view, max_parts> besides;
    status got = channel_.begin(call);
    const bool begun = got == status::ok;
    std::uint32_t count = 0;
    while (got == status::ok && count < parts)
        if (got = channel_.begin(besides[count]); got == status::ok) ++count;
    for (const call_view& each : std::span{besides}.first(count)) static_cast<void>(channel_.release(each.id));
    if (begun && got != status::ok) static_cast<void>(channel_.release(call.id));
    return got;
}

/// False: there is nobody, or no slot.
bool backend::serve_next() {
    const auto next = std::ranges::find_if(waiting_, [this](const auto& each) { return may_begin(each); });
    if (next == waiting_.end()) return false;
    call_view call;
    const status got = begin(next->parts, call);
    if (got == status::again) return false;
    const auto who = std::move(next->who);
    waiting_.erase(next);
    who->on_slot(got, call);
    return true;
}

/// The last answer of a call takes it away.
std::shared_ptr<caller> backend::owner_of(const completion& answer) {
    open_call& one = calls_[answer.call.slot];
    if (answer.more) return one.who;
    if (one.parts > 0) in_parts_ -= one.parts + 1;
    return std::exchange(one, {}).who;
}

std::size_t backend::take_answers() {
    std::array<completion, 16> answers;
    const std::size_t count = channel_.poll(answers);
    for (const completion& each : std::span{answers}.first(count))
        if (const auto who = owner_of(each); who != nullptr) who->on_answer(each);
    return count;
}

/// Answers first; sockets get their turn between two rounds.
void backend::drive() {
    driven_soon_ = false;
    const std::size_t taken = take_answers();
    static_cast<void>(channel_.take_event());
    serve_waiting();
    if (taken > 0 || !channel_.arm())
        wake();
    else
        sleep();
}

void backend::wake() {
    if (!std::exchange(driven_soon_, true)) boost::asio::post(loop_, [this] { drive(); });
}

void backend::sleep() {
    if (std::exchange(sleeping_, true)) return;
    events_.async_wait(stream_descriptor::wait_read, [this](const boost::system::error_code& failed) {
        sleeping_ = false;
        if (!failed) drive();
    });
}

}  // namespace accel::examples::serving::doors
