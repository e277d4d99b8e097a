// SPDX-License-Identifier: Apache-2.0
#include "core/client/pool_hosts.hpp"

#include "core/net/unix_socket.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
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

std::uint64_t number_of(const uri& server) {
    return number_of(fmt::format("{}:{}", server.host, server.port));
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
    if (out.by_name_) return out;
    (void)out.list(out.named_, {});
    (void)out.publish();
    return out;
}

bool pool_hosts::list(const std::vector<uri>& found, nanoseconds at) {
    host_list listed;
    bool others = false;
    for (const uri& each : found) {
        const auto same = [&](const auto& host) { return is_same_server(host->at, each); };
        const auto had = [&](const auto& host) {
            return host->listed && host->at.name == each.host && host->at.port == each.port;
        };
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
        made->due = at;
    }
    for (const auto& each : hosts_) {
        const bool stays = std::ranges::find(listed, each) != listed.end();
        others |= each->listed != stays;
        each->listed = stays;
        if (each->used && !stays) listed.push_back(each);
    }
    hosts_ = std::move(listed);
    unpublished_ |= others;
    return others;
}

bool pool_hosts::publish() {
    const auto serves = [](const auto& each) { return each->listed && !each->out; };
    if (!unpublished_ || std::ranges::none_of(hosts_, serves)) return false;
    unpublished_ = false;
    for (const auto& each : hosts_) each->used = each->listed;
    std::erase_if(hosts_, [](const auto& each) { return !each->used; });
    return true;
}

std::shared_ptr<pool_host> pool_hosts::at(const uri& peer) {
    const auto known = std::ranges::find_if(hosts_, [&](const auto& each) { return is_same_server(each->at, peer); });
    if (known != hosts_.end()) return *known;
    unpublished_ = true;
    uri where = peer;
    if (!within_host(peer.scheme)) where.scheme = named_.front().scheme;  // what `auto` chose may change
    return hosts_.emplace_back(std::make_shared<pool_host>(std::move(where)));
}

bool pool_hosts::has_others(const host_list& than) const noexcept {
    return std::ranges::any_of(hosts_, [&](const auto& each) { return std::ranges::find(than, each) == than.end(); });
}

host_list pool_hosts::order_from(const std::shared_ptr<pool_host>& first) const {
    host_list order = hosts_;
    const auto begin = std::ranges::find(order, first);
    if (begin != order.end()) std::rotate(order.begin(), begin, order.end());
    std::ranges::stable_sort(order, {}, [](const auto& each) { return !each->out ? 0 : each->listed ? 1 : 2; });
    return order;
}

std::shared_ptr<pool_host> pool_hosts::due(nanoseconds at) const {
    std::shared_ptr<pool_host> first;
    for (const auto& each : hosts_) {
        if (!each->put_off() || each->due > at) continue;
        if (first == nullptr || std::tie(each->failures, each->due) < std::tie(first->failures, first->due))
            first = each;
    }
    return first;
}

nanoseconds pool_hosts::next_due() const noexcept {
    nanoseconds first = never;
    for (const auto& each : hosts_)
        if (each->put_off()) first = std::min(first, each->due);
    return first;
}

/// Failures that lie further apart than the longest pause have nothing to do with each other.
void pool_hosts::failed(pool_host& host, bool has_channels, nanoseconds at) noexcept {
    host.out = host.out && pause_ > nanoseconds{0};
    if (pause_ == nanoseconds{0}) return;
    if (at - host.failed_at > doubled(pause_, most_doublings + 1)) host.failures = 0;
    // Failures of several threads at once are one.
    if (!host.put_off() || host.due <= at) ++host.failures;
    const nanoseconds pause = doubled(pause_, std::min(host.failures - 1, most_doublings));
    host.failed_at = at;
    host.due = pause >= never - at ? never : at + pause;
    host.limited = true;
    if (!has_channels) host.out = true;
}

void pool_hosts::lost(pool_host& host, bool has_channels, nanoseconds at) noexcept {
    const bool is_news = !host.out && !(host.limited && has_channels);
    if (pause_ == nanoseconds{0} || !is_news) return;
    if (at - host.answered < pause_) return failed(host, has_channels, at);
    host.due = at;
    host.limited = true;
    if (!has_channels) host.out = true;
}

void pool_hosts::answered(pool_host& host, bool wanted, nanoseconds at) const noexcept {
    host.answered = at;
    host.failing = 0;
    host.limited = wanted && pause_ > nanoseconds{0};
    host.due = at;
    host.out = false;
}

bool pool_hosts::eject(pool_host& host, nanoseconds at) noexcept {
    if (!host.used || host.out || 2 * (count_out() + 1) > count()) return false;
    failed(host, true, at);
    host.out = pause_ > nanoseconds{0};
    return host.out;
}

std::size_t pool_hosts::count_listed() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(hosts_, [](const auto& each) { return each->listed; }));
}
std::size_t pool_hosts::count() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(hosts_, [](const auto& each) { return each->used; }));
}
std::size_t pool_hosts::count_out() const noexcept {
    return static_cast<std::size_t>(
        std::ranges::count_if(hosts_, [](const auto& each) { return each->used && each->out; }));
}

}  // namespace accel::core
