// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/door_channel.hpp"

#include "serving/doors/configuration/settings.hpp"
#include "serving/doors/servers/backend.hpp"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <unistd.h>

namespace accel::examples::serving::doors {

using boost::asio::posix::stream_descriptor;

door_channel::door_channel(boost::asio::io_context& loop, gateway::line& on, backends& all)
    : loop_(loop),
      line_(on),
      all_(all),
      events_(loop, dup(on.path.event_fd())),
      calls_(on.path.slots()),
      answers_(on.path.slots()),
      holds_part_(on.path.slots()),
      has_body_(on.path.slots()) {
    on.user = this;
    wake();
}

bool door_channel::has_share(const slot_wish& wish) const {
    const std::uint32_t slots = line_.path.slots();
    const bool for_parts = wish.parts == 0 || in_parts_ == 0 || in_parts_ + wish.parts + 1 <= slots / 4 * 3;
    const bool for_body = !wish.body_follows || bodies_ == 0 || bodies_ + 1 <= slots / 2;
    return for_parts && for_body;
}

void door_channel::expect_body(call_id id) {
    has_body_[id.slot] = true;
    ++bodies_;
}

void door_channel::end_body(call_id id) {
    if (!has_body_[id.slot]) return;
    has_body_[id.slot] = false;
    --bodies_;
}

bool door_channel::has_free(std::uint32_t slots) {
    std::array<call_id, max_parts> begun;
    const std::size_t wanted = std::min(slots, max_parts);
    std::size_t count = 0;
    for (; count < wanted; ++count) {
        const auto call = line_.path.begin();
        if (!call) break;
        begun[count] = call->id;
    }
    for (const call_id each : std::span{begun}.first(count)) static_cast<void>(line_.path.release(each));
    return count == wanted;
}

void door_channel::undo(call_id id) {
    static_cast<void>(line_.path.release(id));
    --line_.in_flight;
}

status door_channel::submit(call_id id, std::size_t length, const submit_options& options,
                            const std::shared_ptr<caller>& who) {
    return expect(line_.path.submit(id, length, options), id, {who, options.parts});
}

status door_channel::submit(call_id id, std::span<const slice> lent, const submit_options& options,
                            const std::shared_ptr<caller>& who) {
    // One slice alone may be on a GPU that the channel does not reach.
    const status sent =
        lent.size() == 1 ? line_.path.submit(id, lent.front(), options) : line_.path.submit(id, lent, options);
    return expect(sent, id, {who, options.parts});
}

status door_channel::expect(status sent, call_id id, open_call one) {
    if (sent != status::ok) return sent;
    if (one.parts > 0) in_parts_ += one.parts + 1;
    calls_[id.slot] = std::move(one);
    const bool had_body = has_body_[id.slot];
    end_body(id);
    // The descriptor has to tell of this call's deadline as well, though the loop sleeps on it already.
    if (!line_.path.arm()) wake();
    if (had_body) all_.serve_waiting();
    return sent;
}

void door_channel::release(call_id id) {
    if (completion& answer = answers_[id.slot]; answer.id == id)
        answer.release();
    else
        static_cast<void>(line_.path.release(id));
    end_body(id);
    if (holds_part_[id.slot])
        holds_part_[id.slot] = false;
    else
        --line_.in_flight;
    all_.serve_waiting();
}

std::span<const tensor> door_channel::tensors(const completion& answer) {
    const auto described = answer.tensors(described_);
    return described ? *described : std::span<tensor>{};
}

/// The last answer of a call takes it away.
std::shared_ptr<caller> door_channel::owner_of(const completion& answer) {
    open_call& one = calls_[answer.call.slot];
    if (answer.more) {
        holds_part_[answer.id.slot] = true;
        return one.who;
    }
    if (one.parts > 0) in_parts_ -= one.parts + 1;
    return std::exchange(one, {}).who;
}

std::size_t door_channel::take_answers() {
    std::array<completion, 16> arrived;
    const std::size_t count = line_.path.poll(arrived);
    for (completion& each : std::span{arrived}.first(count)) {
        completion& answer = answers_[each.id.slot];
        answer = std::move(each);
        if (const auto who = owner_of(answer); who != nullptr) who->on_answer(*this, answer);
    }
    return count;
}

/// Answers first; sockets get their turn between two rounds.
void door_channel::drive() {
    driven_soon_ = false;
    if (ended_) return;
    const std::size_t taken = take_answers();
    if (line_.path.take_event() != channel_event::none) all_.look_for_missed();
    all_.serve_waiting();
    if (taken > 0 || !line_.path.arm())
        wake();
    else
        sleep();
}

/// Parts of answers may be held longer than their calls.
bool door_channel::end() {
    if (std::ranges::find(holds_part_, true) != holds_part_.end()) return false;
    ended_ = true;
    boost::system::error_code ignored;
    static_cast<void>(events_.cancel(ignored));
    return !sleeping_ && !driven_soon_;
}

void door_channel::wake() {
    if (!std::exchange(driven_soon_, true)) boost::asio::post(loop_, [this] { drive(); });
}

void door_channel::sleep() {
    if (std::exchange(sleeping_, true)) return;
    events_.async_wait(stream_descriptor::wait_read, [this](const boost::system::error_code& failed) {
        sleeping_ = false;
        if (!failed) drive();
    });
}

}  // namespace accel::examples::serving::doors
