// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/backend.hpp"

#include "serving/gateway/offering.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <unistd.h>

namespace accel::examples::serving::doors {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

namespace {

/// How soon one that waits learns that a server has come back, or that all are lost.
constexpr std::chrono::milliseconds between_looks{20};

door_channel& channel_of(const gateway::line& one) {
    return *static_cast<door_channel*>(one.user);
}

/// As `backend::begin`, at this server.
status begin_at(gateway::upstream& server, const slot_wish& wish, call_slot& to) {
    const auto parts_on = [&](const gateway::line& one) { return std::min(wish.parts, channel_of(one).most_parts()); };
    bool none_left = false;
    const auto may = [&](const gateway::line& one) {
        const bool has = channel_of(one).has_share({parts_on(one), wish.body_follows});
        none_left = none_left || !has;
        return has;
    };
    call_view call;
    status why = status::ok;
    gateway::line* const line = server.begin(call, why, may);
    if (line == nullptr) return none_left ? status::overloaded : why;
    ++line->in_flight;
    door_channel& on = channel_of(*line);
    to = {&on, call.id, call.request, parts_on(*line)};
    if (!on.has_free(to.parts)) {
        on.undo(call.id);
        return status::again;
    }
    if (wish.body_follows) on.expect_body(call.id);
    return status::ok;
}

}  // namespace

void backend::ask_slot(const std::shared_ptr<caller>& who, slot_wish wish) {
    waiting_.push_back({who, wish});
    if (waiting_.size() == 1 || waiting_.front().wish.is_shared()) serve_waiting();
    if (!waiting_.empty()) all_.watch_waiting();
}

void backend::forget(const caller& who) {
    std::erase_if(waiting_, [&](const auto& each) { return each.who.get() == &who; });
}

bool backend::connected() const {
    return connected_servers() > 0;
}

std::size_t backend::connected_servers() const {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < servers_.size(); ++i) sum += servers_.server(i).connected() ? 1U : 0U;
    return sum;
}

status backend::begin(std::uint64_t key, const slot_wish& wish, call_slot& to, const gateway::upstream* left) {
    const std::size_t first = servers_.first_for(key);
    status out = status::peer_lost;
    for (std::size_t i = 0; i < servers_.size(); ++i) {
        gateway::upstream& server = servers_.server(first + i);
        if (&server == left) continue;
        const status why = begin_at(server, wish, to);
        if (why == status::ok) return why;
        if (why == status::again || (why == status::overloaded && out != status::again)) out = why;
    }
    return out;
}

status backend::submit(call_slot& slot, std::size_t length, submit_options options,
                       const std::shared_ptr<caller>& who) {
    for (;;) {
        options.parts = slot.parts;
        const status sent = slot.on->submit(slot.id, length, options, who);
        if (!move_on(sent, slot, length, *who)) return sent;
    }
}

bool backend::move_on(status sent, call_slot& slot, std::size_t length, const caller& who) {
    const auto losses = static_cast<std::uint8_t>(slot.losses + 1);
    if (!gateway::is_loss(sent) || losses >= gateway::most_losses) return false;
    call_slot other;
    if (begin(who.sticky_key(), {.parts = slot.parts}, other, &slot.on->server()) != status::ok) return false;
    other.losses = losses;
    if (other.request.size() < length) {
        other.on->release(other.id);
        return false;
    }
    std::memcpy(other.request.data(), slot.request.data(), length);
    const call_slot lost = std::exchange(slot, other);
    lost.on->release(lost.id);
    return true;
}

/// A caller may give its slot back at once: the round that is under way goes on with it.
void backend::serve_waiting() {
    if (std::exchange(serving_, true)) return;
    while (serve_next()) {
    }
    serving_ = false;
}

/// False: there is nobody, or no slot.
bool backend::serve_next() {
    bool parts_left = true;
    bool bodies_left = true;
    for (auto next = waiting_.begin(); next != waiting_.end(); ++next) {
        const slot_wish wish = next->wish;
        if ((wish.parts > 0 && !parts_left) || (wish.body_follows && !bodies_left)) continue;
        call_slot slot;
        const status got = begin(next->who->sticky_key(), wish, slot);
        if (got == status::again) return false;
        if (got == status::overloaded) {
            parts_left = parts_left && wish.parts == 0;
            bodies_left = bodies_left && !wish.body_follows;
            continue;
        }
        const auto who = std::move(next->who);
        waiting_.erase(next);
        who->on_slot(got, slot);
        return true;
    }
    return false;
}

backends::backends(boost::asio::io_context& loop, const gateway::reach_settings& reach)
    : loop_(loop), reach_(reach), timer_(loop), opened_(loop) {}

backend& backends::add(std::span<gateway::upstream* const> servers) {
    backend& made = models_.emplace_back(*this, reach_.balance);
    for (gateway::upstream* const each : servers) made.add(*each);
    return made;
}

result<void> backends::open(context& ctx) {
    opener_ = std::make_unique<gateway::opener>(ctx, reach_, servers_);
    if (auto reached = opener_->wait_for_servers(reach_.patience); !reached) return reached;
    opened_.assign(dup(opener_->event_fd()));
    take_opened();
    return {};
}

void backends::take_opened() {
    for (gateway::opener::opened& each : opener_->take())
        for (channel& made : each.channels)
            channels_.push_back(std::make_unique<door_channel>(loop_, each.to->add(std::move(made)), *this));
    await_opened();
}

void backends::await_opened() {
    opened_.async_wait(stream_descriptor::wait_read, [this](const error_code& failed) {
        if (!failed) take_opened();
    });
}

void backends::serve_waiting() {
    for (backend& each : models_)
        if (!each.waiting_.empty()) each.serve_waiting();
}

void backends::watch_waiting() {
    if (std::exchange(watching_, true)) return;
    timer_.expires_after(between_looks);
    timer_.async_wait([this](const error_code& failed) {
        watching_ = false;
        if (failed) return;
        serve_waiting();
        if (std::ranges::any_of(models_, [](const backend& each) { return !each.waiting_.empty(); })) watch_waiting();
    });
}

}  // namespace accel::examples::serving::doors
