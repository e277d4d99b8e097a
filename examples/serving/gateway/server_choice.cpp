// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/server_choice.hpp"

#include <algorithm>

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

std::size_t server_choice::first_for(std::uint64_t key) noexcept {
    if (servers_.size() == 1) return 0;
    if (balance_ == balance::sticky) return spread(key) % servers_.size();
    const std::size_t turn = next_++ % servers_.size();
    if (balance_ == balance::round_robin) return turn;
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
    if (one.server == of.last && (of.said == status::not_found || !last_resort)) return false;
    return !one.lacks || last_resort || std::chrono::steady_clock::now() >= one.ask_again;
}

void server_choice::asked(std::size_t i) noexcept {
    place& one = servers_[i % servers_.size()];
    if (one.lacks) one.ask_again = std::chrono::steady_clock::now() + between_questions;
}

bool server_choice::has_other(const past_offers& of) const noexcept {
    return of.losses <= servers_.size() && std::ranges::any_of(servers_, [&](const place& each) {
               const bool gave_it_back = each.server == of.last && of.said == status::not_found;
               return !gave_it_back && !each.lacks && each.server->connected();
           });
}

status server_choice::without_server(status said) const noexcept {
    const bool unknown = said == status::ok || (said == status::not_found && lacking_ < servers_.size());
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
    lacking_ = static_cast<std::size_t>(std::ranges::count_if(servers_, &place::lacks));
}

bool server_choice::ready() const noexcept {
    return std::ranges::any_of(servers_, [](const place& each) { return !each.lacks && each.server->connected(); });
}

}  // namespace accel::examples::gateway
