// SPDX-License-Identifier: Apache-2.0
#include "core/client/pool_hosts.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

/// `pause` times a power of two; `never` if that is too long.
nanoseconds doubled(nanoseconds pause, unsigned times) noexcept {
    const auto factor = std::int64_t{1} << times;
    return pause >= never / factor ? never : pause * factor;
}

result<pool_balance> balance_of(std::string_view text) {
    if (text == "round-robin") return pool_balance::round_robin;
    if (text == "least-loaded") return pool_balance::least_loaded;
    if (text == "sticky") return pool_balance::sticky;
    return error{
        status::invalid_argument, 0,
        fmt::format("'{}' is not a valid value for balance: expected round-robin, least-loaded or sticky", text)};
}

}  // namespace

std::uint64_t number_of(std::string_view text) noexcept {
    std::uint64_t out = 0xcbf29ce484222325U;
    for (const char each : text) out = (out ^ static_cast<unsigned char>(each)) * 0x100000001b3U;
    return out;
}

result<pool_hosts> pool_hosts::read(std::string_view text, nanoseconds pause) {
    auto hosts = parse_client_uris(text);
    if (!hosts) return hosts.error();
    pool_hosts out;
    out.pause_ = pause;
    for (const auto& [key, value] : hosts->front().options) {
        if (key != "balance") continue;
        const auto read = balance_of(value);
        if (!read) return read.error();
        out.balance_ = *read;
    }
    for (uri& each : *hosts) {
        each.remove("balance");
        each.remove("reconnect");  // the pool itself replaces lost channels
    }
    out.named_ = std::move(*hosts);
    out.by_name_ = std::ranges::any_of(out.named_, &uri::dns);
    if (!out.by_name_) (void)out.list(out.named_, {});
    return out;
}

bool pool_hosts::list(const std::vector<uri>& found, nanoseconds at) {
    host_list listed;
    bool others = false;
    for (const uri& each : found) {
        const auto same = [&](const auto& host) { return is_same_server(host->at, each); };
        const auto had = [&](const auto& host) { return host->at.name == each.host && host->at.port == each.port; };
        if (each.dns) std::ranges::copy_if(hosts_, std::back_inserter(listed), had);
        if (each.dns || std::ranges::any_of(listed, same)) continue;
        const auto known = std::ranges::find_if(hosts_, same);
        if (known != hosts_.end()) {
            listed.push_back(*known);
            continue;
        }
        others = true;
        const auto& made = listed.emplace_back(std::make_shared<pool_host>(each));
        made->out = !hosts_.empty();
        made->out_until = at;
    }
    for (const auto& each : hosts_) each->listed = false;
    for (const auto& each : listed) each->listed = true;
    others |= std::ranges::any_of(hosts_, [](const auto& each) { return !each->listed; });
    hosts_ = std::move(listed);
    return others;
}

std::shared_ptr<pool_host> pool_hosts::at(const uri& peer) {
    const auto known = std::ranges::find_if(hosts_, [&](const auto& each) { return is_same_server(each->at, peer); });
    return known != hosts_.end() ? *known : hosts_.emplace_back(std::make_shared<pool_host>(peer));
}

bool pool_hosts::has_others(const host_list& than) const noexcept {
    return std::ranges::any_of(hosts_, [&](const auto& each) { return std::ranges::find(than, each) == than.end(); });
}

bool pool_hosts::others_answer(const pool_host& than) const noexcept {
    return std::ranges::any_of(
        hosts_, [&](const auto& each) { return each.get() != &than && !each->out && each->answered != nanoseconds{}; });
}

host_list pool_hosts::order_from(const std::shared_ptr<pool_host>& first) const {
    host_list order = hosts_;
    const auto begin = std::ranges::find(order, first);
    if (begin != order.end()) std::rotate(order.begin(), begin, order.end());
    std::stable_partition(order.begin(), order.end(), [](const auto& each) { return !each->out; });
    return order;
}

host_list pool_hosts::due(nanoseconds at) const {
    host_list out;
    std::ranges::copy_if(hosts_, std::back_inserter(out),
                         [at](const auto& each) { return each->out && each->out_until <= at; });
    return out;
}

nanoseconds pool_hosts::next_due() const noexcept {
    nanoseconds first = never;
    for (const auto& each : hosts_)
        if (each->out) first = std::min(first, each->out_until);
    return first;
}

/// Failures that lie further apart than the longest pause have nothing to do with each other.
void pool_hosts::failed(pool_host& host, nanoseconds at) noexcept {
    if (at - host.failed_at > doubled(pause_, most_doublings + 1)) host.failures = 0;
    // Channels that are lost together are one failure.
    if (!host.out || host.out_until <= at) ++host.failures;
    const nanoseconds pause = doubled(pause_, std::min(host.failures - 1, most_doublings));
    host.failed_at = at;
    host.out_until = pause >= never - at ? never : at + pause;
    host.out = pause > nanoseconds{0};
}

bool pool_hosts::eject(pool_host& host, nanoseconds at) noexcept {
    if (!host.listed || host.out || 2 * (count_out() + 1) > count()) return false;
    failed(host, at);
    return true;
}

std::size_t pool_hosts::count_out() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(hosts_, [](const auto& each) { return each->out.load(); }));
}

}  // namespace accel::core
