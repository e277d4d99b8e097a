// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/backend.hpp"

#include "serving/doors/servers/question.hpp"
#include "serving/models/loaded_models.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>

namespace accel::examples::serving::doors {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

namespace {

/// How soon one that waits learns that a server has come back, or that all are lost.
constexpr std::chrono::milliseconds between_looks{20};
constexpr std::chrono::seconds answer_patience{5};
constexpr accel::target loaded_models = target_of(loaded_models_target);

door_channel& channel_of(const gateway::line& one) {
    return *static_cast<door_channel*>(one.user);
}

/// It waits for another server than that which it comes from.
bool came_back(const slot_wish& wish) {
    return wish.past.last != 0;
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

/// False: no slot is free.
bool ask_at(gateway::upstream& server, accel::target at, std::function<void(const completion&)> on_end) {
    call_slot slot;
    if (begin_at(server, {}, slot) != status::ok) return false;
    const submit_options options{.timeout = answer_patience, .target = at};
    const status sent = slot.on->submit(slot.id, 0, options, std::make_shared<question>(std::move(on_end)));
    if (sent != status::ok) slot.on->undo(slot.id);
    return sent == status::ok;
}

}  // namespace

void backend::ask_slot(const std::shared_ptr<caller>& who, slot_wish wish) {
    // One that has come back is older than all that have not.
    const auto at =
        came_back(wish) ? std::ranges::find_if_not(waiting_, came_back, &waiting_call::wish) : waiting_.end();
    waiting_.insert(at, {who, wish});
    const slot_wish& first = waiting_.front().wish;
    if (waiting_.size() == 1 || first.is_shared() || came_back(first)) serve_waiting();
    if (!waiting_.empty()) all_.watch_waiting();
}

void backend::forget(const caller& who) {
    std::erase_if(waiting_, [&](const auto& each) { return each.who.get() == &who; });
}

std::size_t backend::connected_servers() const {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < servers_.size(); ++i) sum += servers_.server(i).connected() ? 1U : 0U;
    return sum;
}

status backend::begin(std::uint64_t key, const slot_wish& wish, call_slot& to) {
    const auto order = servers_.order_for(key);
    const status out = begin_in_turn(order, wish, false, to);
    return out == status::peer_lost ? begin_in_turn(order, wish, true, to) : out;
}

status backend::begin_in_turn(std::span<const std::size_t> order, const slot_wish& wish, bool last_resort,
                              call_slot& to) {
    status out = status::peer_lost;
    for (const std::size_t i : order) {
        if (!servers_.may_ask(i, wish.past, last_resort)) continue;
        const status why = begin_at(servers_.server(i), wish, to);
        if (why == status::ok) servers_.asked(i);
        if (why == status::ok) return why;
        if (why == status::again || (why == status::overloaded && out != status::again)) out = why;
    }
    return out;
}

void backend::heard(const door_channel& on, const completion& end) {
    servers_.heard(on.server(), end);
}

void backend::learn(const gateway::upstream& from, std::span<const std::byte> loaded) {
    servers_.learn(from, names_model(loaded, target_));
}

bool backend::take_back_unsent(status why, const call_slot& slot, std::size_t length, returned_request& to) {
    return gateway::is_loss(why) && keep(why, slot, length, to);
}

bool backend::take_back(const completion& end, const call_slot& slot, std::size_t length, returned_request& to) {
    return end.unseen() && keep(end.status, slot, length, to);
}

bool backend::keep(status why, const call_slot& slot, std::size_t length, returned_request& to) {
    to.past() = {to.past().losses + 1, slot.on->server().serial(), why};
    if (!servers_.has_other(to.past())) return false;
    if (!to.keep(slot, length, all_.kept())) return false;
    all_.count_taken_back();
    slot.on->release(slot.id);
    return true;
}

void backend::ask_lacking() {
    for (std::size_t i = 0; i < servers_.size(); ++i) {
        gateway::upstream& to = servers_.server(i);
        const bool is_asked = std::ranges::find(questioned_, &to) != questioned_.end();
        if (is_asked || !servers_.lacks(i) || to.tells_models()) continue;
        const bool asks = ask_at(to, target_, [this, &to](const completion& end) {
            std::erase(questioned_, &to);
            servers_.heard(to, end);
        });
        if (asks) questioned_.push_back(&to);
    }
}

bool backend::has_name(const gateway::server_name& name) const {
    return std::ranges::find(names_, &name) != names_.end();
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
    std::uint64_t full_but = 0;
    for (auto next = waiting_.begin(); next != waiting_.end(); ++next) {
        const slot_wish wish = next->wish;
        if ((wish.parts > 0 && !parts_left) || (wish.body_follows && !bodies_left)) continue;
        if (came_back(wish) && wish.past.last == full_but) continue;
        call_slot slot;
        const status got = begin(all_.key_of(*next->who), wish, slot);
        if (got == status::again && !came_back(wish) && !wish.body_follows) return false;
        if (got == status::again && came_back(wish)) {
            full_but = wish.past.last;  // which others may go to
            continue;
        }
        // A slot may be free at a server whose share for bodies is taken.
        if (got == status::overloaded || got == status::again) {
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

backends::backends(boost::asio::io_context& loop, const gateway::reach_settings& reach, std::size_t most_kept)
    : loop_(loop),
      reach_(reach),
      kept_(std::make_shared<memory_budget>(most_kept)),
      timer_(loop),
      questions_(loop),
      opened_(loop) {}

backend& backends::add(std::span<gateway::upstream* const> servers, accel::target target,
                       std::span<const gateway::server_name* const> names) {
    backend& made = models_.emplace_back(*this, reach_.balance, target);
    for (gateway::upstream* const each : servers) made.add(*each);
    for (const gateway::server_name* const each : names) made.add(*each);
    return made;
}

result<void> backends::open(context& ctx) {
    opener_ = std::make_unique<gateway::opener>(ctx, reach_, servers_, names_);
    if (auto reached = opener_->wait_for_servers(reach_.patience); !reached) return reached;
    opened_.assign(dup(opener_->event_fd()));
    take_changes();
    ask_regularly();
    return {};
}

void backends::take_changes() {
    for (gateway::opener::change& each : opener_->take()) {
        if (each.channels.empty()) {
            gateway::unlist(servers_, *each.of, each.uri);
            continue;
        }
        gateway::upstream& to = each.to != nullptr ? *each.to : join(each);
        for (channel& made : each.channels)
            channels_.push_back(std::make_unique<door_channel>(loop_, to.add(std::move(made)), *this));
        to.set_tells_models(each.tells_models);
        if (each.tells_models) asked_.push_back({&to});
    }
    let_leave();
    await_changes();
}

void backends::await_changes() {
    opened_.async_wait(stream_descriptor::wait_read, [this](const error_code& failed) {
        if (!failed) take_changes();
    });
}

gateway::upstream& backends::join(const gateway::opener::change& one) {
    gateway::upstream& made = servers_.emplace_back(one.uri, one.of->models, one.of->needs, one.of);
    for (backend& each : models_)
        if (each.has_name(*one.of)) each.servers_.add(made);
    return made;
}

void backends::let_leave() {
    gateway::leave_unlisted(servers_, [this](const gateway::upstream& left) {
        for (backend& each : models_)
            if (each.has_name(*left.name())) each.servers_.remove(left);
    });
    std::erase_if(servers_, [this](gateway::upstream& each) { return each.leaving() && end(each); });
}

/// True: it has no calls, and nothing of it is left in the loop.
bool backends::end(gateway::upstream& one) {
    if (one.in_flight() > 0) return false;
    const auto is_of_it = [&one](const auto& each) { return &each->server() == &one; };
    bool ended = true;
    for (const auto& each : channels_)
        if (is_of_it(each)) ended = each->end() && ended;
    if (!ended) return false;
    std::erase_if(channels_, is_of_it);
    std::erase_if(asked_, [&one](const asked_server& each) { return each.to == &one; });
    opener_->close(one.take_channels());
    return true;
}

std::uint64_t backends::key_of(const caller& who) const {
    if (reach_.key == gateway::sticky_key::metadata)
        if (const auto value = find_metadata(who.metadata(), reach_.key_name)) return gateway::number_of(*value);
    return who.sticky_key();
}

void backends::look_for_missed() {
    const bool any = std::ranges::any_of(servers_, &gateway::upstream::is_missed);
    if (any != std::exchange(missed_, any)) opener_->set_missed(any);
}

void backends::serve_waiting() {
    ask_due();
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

void backends::ask_regularly() {
    questions_.expires_after(between_questions);
    questions_.async_wait([this](const error_code& failed) {
        if (failed) return;
        let_leave();
        look_for_missed();
        for (backend& each : models_) each.ask_lacking();
        for (asked_server& each : asked_) each.due = !each.to->leaving();
        ask_due();
        ask_regularly();
    });
}

/// Ahead of all that waits: they are few and short, and a server that is always busy is asked as well.
void backends::ask_due() {
    for (asked_server& each : asked_) {
        if (!each.due || each.asked || !each.to->tells_models()) continue;
        each.asked = ask_at(*each.to, loaded_models, [this, &each](const completion& end) { take_news(each, end); });
        each.due = !each.asked;
    }
}

void backends::take_news(asked_server& from, const completion& end) {
    from.asked = false;
    if (end.status == status::ok)
        for (backend& each : models_) each.learn(*from.to, end.response);
    // Another program is there now.
    if (end.status == status::not_found) from.to->set_tells_models(false);
}

}  // namespace accel::examples::serving::doors
