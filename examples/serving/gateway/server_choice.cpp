// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/server_choice.hpp"

#include <algorithm>
#include <functional>

namespace accel::examples::gateway {
namespace {

/// splitmix64: neighbouring numbers go different ways.
[[nodiscard]] std::uint64_t spread(std::uint64_t key) noexcept {
    key += 0x9e3779b97f4a7c15U;
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9U;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebU;
    return key ^ (key >> 31);
}

/// False: the call ended without an answer, which says nothing about the model.
[[nodiscard]] bool is_answer(const completion& end) noexcept {
    switch (end.status) {
        case status::peer_lost:
        case status::closed:
        case status::device_lost:
        case status::timed_out:
        case status::cancelled:
        case status::overloaded:
            return false;
        default:
            return true;
    }
}

}  // namespace

void server_choice::add(upstream& server) {
    servers_.push_back({&server, number_of(server.uri()), false, {}});
    order_.push_back(order_.size());
}

void server_choice::remove(const upstream& server) noexcept {
    std::erase_if(servers_, [&](const place& each) { return each.server == &server; });
    order_.pop_back();
    count_lacking();
}

/// Sticky ranks the servers for each key by a hash of both (rendezvous hashing). So if one goes or comes, only its own
/// keys move, and to all others alike.
std::span<const std::size_t> server_choice::order_for(std::uint64_t key) noexcept {
    if (servers_.size() < 2) {
        turn_to(0);
    } else if (balance_ == balance::sticky) {
        turn_to(0);
        std::ranges::sort(order_, std::greater{}, [&](std::size_t i) { return spread(key ^ at(i).number); });
    } else {
        const std::size_t turn = next_++ % servers_.size();
        turn_to(balance_ == balance::round_robin ? turn : least_loaded(turn));
    }
    return order_;
}

/// That one, and the others as they come after it.
void server_choice::turn_to(std::size_t first) noexcept {
    for (std::size_t& each : order_) {
        each = first++;
        if (first == order_.size()) first = 0;
    }
}

std::size_t server_choice::least_loaded(std::size_t turn) const noexcept {
    std::size_t best = turn;
    for (std::size_t i = 1; i < servers_.size(); ++i) {
        const std::size_t other = (turn + i) % servers_.size();
        const bool less = server(other).in_flight() < server(best).in_flight();
        if (is_ready(other) && (less || !is_ready(best))) best = other;
    }
    return best;
}

bool server_choice::may_ask(std::size_t i, const past_offers& of, bool last_resort) const noexcept {
    const place& one = at(i);
    if (one.server->serial() == of.last && (of.said == status::not_found || !last_resort)) return false;
    return !one.lacks || last_resort || std::chrono::steady_clock::now() >= one.ask_again;
}

void server_choice::asked(std::size_t i) noexcept {
    place& one = servers_[i];
    if (one.lacks) one.ask_again = std::chrono::steady_clock::now() + between_questions;
}

bool server_choice::has_other(const past_offers& of) const noexcept {
    return of.losses <= servers_.size() && std::ranges::any_of(servers_, [&](const place& each) {
               const bool gave_it_back = each.server->serial() == of.last && of.said == status::not_found;
               return !gave_it_back && !each.lacks && each.server->connected();
           });
}

status server_choice::without_server(status said) const noexcept {
    const bool unknown =
        said == status::ok || (said == status::not_found && (lacking_ < servers_.size() || servers_.empty()));
    return unknown ? status::peer_lost : said;
}

void server_choice::heard(const upstream& from, const completion& end) noexcept {
    const bool lacks = end.unseen() && end.status == status::not_found;
    if (lacks || (lacking_ > 0 && is_answer(end))) learn(from, !lacks);
}

void server_choice::learn(const upstream& from, bool has) noexcept {
    const auto found = std::ranges::find(servers_, &from, &place::server);
    if (found == servers_.end()) return;
    if (!has) found->ask_again = std::chrono::steady_clock::now() + between_questions;
    found->lacks = !has;
    count_lacking();
}

void server_choice::count_lacking() noexcept {
    lacking_ = static_cast<std::size_t>(std::ranges::count_if(servers_, &place::lacks));
}

bool server_choice::ready() const noexcept {
    return std::ranges::any_of(servers_, [](const place& each) { return !each.lacks && each.server->connected(); });
}

}  // namespace accel::examples::gateway
