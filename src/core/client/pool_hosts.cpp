// SPDX-License-Identifier: Apache-2.0
#include "core/client/pool_hosts.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace accel::core {
namespace {

/// `pause` times a power of two; `never` if that is too long.
nanoseconds doubled(nanoseconds pause, unsigned times) noexcept {
    const auto factor = std::int64_t{1} << times;
    return pause >= never / factor ? never : pause * factor;
}

}  // namespace

result<pool_hosts> pool_hosts::read(std::string_view text, nanoseconds pause) {
    auto hosts = parse_client_uris(text);
    if (!hosts) return hosts.error();
    pool_hosts out;
    out.pause_ = pause;
    // The pool itself replaces lost channels.
    for (uri& each : *hosts) each.remove("reconnect");
    out.named_ = std::move(*hosts);
    out.by_name_ = std::ranges::any_of(out.named_, &uri::dns);
    if (!out.by_name_) (void)out.list(out.named_);
    return out;
}

bool pool_hosts::list(const std::vector<uri>& found) {
    std::vector<std::shared_ptr<pool_host>> listed;
    bool others = false;
    for (const uri& each : found) {
        const auto same = [&](const auto& host) { return is_same_server(host->at, each); };
        const auto had = [&](const auto& host) { return host->at.name == each.host && host->at.port == each.port; };
        if (each.dns) std::ranges::copy_if(hosts_, std::back_inserter(listed), had);
        if (each.dns || std::ranges::any_of(listed, same)) continue;
        const auto known = std::ranges::find_if(hosts_, same);
        others |= known == hosts_.end();
        listed.push_back(known != hosts_.end() ? *known : std::make_shared<pool_host>(each));
    }
    for (const auto& each : hosts_) each->listed = false;
    for (const auto& each : listed) each->listed = true;
    others |= std::ranges::any_of(hosts_, [](const auto& each) { return !each->listed; });
    hosts_ = std::move(listed);
    return others;
}

std::shared_ptr<pool_host> pool_hosts::at(const uri& peer) const {
    const auto known = std::ranges::find_if(hosts_, [&](const auto& each) { return is_same_server(each->at, peer); });
    if (known != hosts_.end()) return *known;
    auto out = std::make_shared<pool_host>(peer);
    out->listed = false;
    return out;
}

bool pool_hosts::has_others(const std::vector<std::shared_ptr<pool_host>>& than) const noexcept {
    return std::ranges::any_of(hosts_, [&](const auto& each) { return std::ranges::find(than, each) == than.end(); });
}

std::vector<std::shared_ptr<pool_host>> pool_hosts::next_order(nanoseconds at) {
    auto order = hosts_;
    if (order.empty()) return order;
    const auto first = static_cast<std::ptrdiff_t>(turn_++ % order.size());
    std::rotate(order.begin(), order.begin() + first, order.end());
    // Others count meanwhile.
    std::vector<std::pair<std::pair<bool, std::size_t>, std::shared_ptr<pool_host>>> ranked;
    ranked.reserve(order.size());
    for (const auto& each : order) ranked.push_back({{each->out_until > at, each->seats.load()}, each});
    std::ranges::stable_sort(ranked, {}, [](const auto& each) { return each.first; });
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = std::move(ranked[i].second);
    return order;
}

void pool_hosts::keep_better(std::vector<std::shared_ptr<pool_host>>& order, const pool_host& from, bool must,
                             nanoseconds at) noexcept {
    std::erase_if(order, [&](const auto& each) { return each.get() == &from || each->out_until > at; });
    if (must || order.empty()) return;
    order.resize(order.front()->seats + 1 < from.seats ? 1 : 0);
}

/// Failures that lie further apart than the longest pause have nothing to do with each other.
void pool_hosts::failed(pool_host& host, nanoseconds at) noexcept {
    if (at - host.failed_at > doubled(pause_, most_doublings + 1)) host.failures = 0;
    // Channels that are lost together are one failure.
    if (host.out_until <= at) ++host.failures;
    const nanoseconds pause = doubled(pause_, std::min(host.failures - 1, most_doublings));
    host.failed_at = at;
    host.out_until = pause >= never - at ? never : at + pause;
}

bool pool_hosts::eject(pool_host& host, nanoseconds at) noexcept {
    if (!host.listed || host.out_until > at || 2 * (count_out(at) + 1) > count()) return false;
    failed(host, at);
    host.ejected = true;
    return true;
}

nanoseconds pool_hosts::next_return(nanoseconds at) const noexcept {
    nanoseconds first = never;
    for (const auto& each : hosts_)
        if (is_ejected(*each, at)) first = std::min(first, each->out_until);
    return first;
}

std::size_t pool_hosts::count_out(nanoseconds at) const noexcept {
    return static_cast<std::size_t>(
        std::ranges::count_if(hosts_, [at](const auto& each) { return each->out_until > at; }));
}

}  // namespace accel::core
