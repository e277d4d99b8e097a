// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"
#include "core/client/pool_state.hpp"

#include <algorithm>
#include <utility>

/// How the seats of a pool get their channels, and lose them.
namespace accel::core {

/// Connects, unless another thread of this seat, or the keeper, has done so. The old channel lives on as long as calls
/// and responses there. Nowhere: another host is to be tried. `last`: there is no other.
result<pool_state::place> pool_state::renew(const std::shared_ptr<pool_seat>& seat, bool last) {
    const std::lock_guard connecting(seat->connecting);
    const channel_ptr old = seat->channel();
    if (old != nullptr && old->takes_calls()) return place{seat, old};
    if (old != nullptr) lost(*seat, old);
    bool others = false;
    {
        const std::lock_guard lock(mutex_);
        if (closing_.load()) return pool_closed();
        const bool known = seat->host != nullptr;
        if (seat->given_up || (!known && hosts_.count() > 0 && !unpublished_)) return place{};
        others = !last && known && hosts_.others_answer(*seat->host);
        if (others && seat->host->out) return place{};
    }
    auto made = others ? try_hosts({seat->host}, false, {}) : connect(seat->host);
    wake_keeper();
    if (!made && others) return place{};
    if (!made) return made.error();
    place out;
    {
        const std::lock_guard lock(mutex_);
        if (closing_.load()) return pool_closed();
        out = put(*made, seat->row);
    }
    publish_hosts();
    return out;
}

void pool_state::lost(pool_seat& seat, const channel_ptr& old) {
    {
        const std::lock_guard lock(mutex_);
        if (seat.channel() != old) return;
        hosts_.lost(*seat.host, seat.made, now());
        failed_at_ = now();
    }
    drop_lost(seat.host.get());
    wake_keeper();
}

/// Those to one host, or all. Nobody else may look at them again, and a server that drains waits for them. Looks at
/// them without the lock, because interceptors may see calls end.
void pool_state::drop_lost(const pool_host* host) {
    std::vector<place> all;  // closed after the lock
    {
        const std::lock_guard lock(mutex_);
        for (const auto& each : seats_)
            if (host == nullptr || each->host.get() == host) all.push_back({each, each->channel()});
    }
    std::erase_if(all, [](const place& each) { return each.channel == nullptr || each.channel->takes_calls(); });
    const std::lock_guard lock(mutex_);
    for (const place& each : all) {
        if (each.seat->channel() != each.channel) continue;
        empty(*each.seat);
        ++counted_.lost;
    }
}

/// Under the lock, by an owner of the channel. `close` finds it in `moved_`.
void pool_state::empty(pool_seat& seat) {
    remember(seat.channel());
    (void)seat.exchange(nullptr);
}

void pool_state::remember(const channel_ptr& moved) {
    std::erase_if(moved_, [](const auto& each) { return each.expired(); });
    if (moved != nullptr) moved_.push_back(moved);
}

std::size_t pool_state::seats_for_each_host() const noexcept {
    return std::max<std::size_t>(1, limits_.max_channels / std::max<std::size_t>(1, hosts_.count()));
}

/// Under the lock.
std::shared_ptr<pool_seat> pool_state::seat_of(const std::shared_ptr<pool_host>& host, std::size_t row) {
    const std::size_t here = row % seats_for_each_host();
    const auto found = std::ranges::find_if(
        seats_, [&](const auto& each) { return each->host == host && each->row == here && !each->given_up; });
    return found != seats_.end() ? *found : seats_.emplace_back(std::make_shared<pool_seat>(host, here));
}

/// Under the lock. Leaves in `made` what is to be closed after it. A host that the name has lost meanwhile serves one
/// more call.
pool_state::place pool_state::put(connected& made, std::size_t row) {
    if (!made.host->listed) {
        remember(made.made);
        return {std::make_shared<pool_seat>(made.host, row), made.made};
    }
    auto seat = seat_of(made.host, row);
    auto held = seat->channel();
    if (held != nullptr && held->takes_calls()) return {std::move(seat), std::move(held)};
    remember(held);
    seat->made = now();
    channel_ptr channel = made.made;
    made.made = seat->exchange(channel);
    return {std::move(seat), std::move(channel)};
}

/// If all hosts of a name fail, it may have others by now.
result<pool_state::connected> pool_state::connect(const std::shared_ptr<pool_host>& first) {
    if (!hosts_.by_name()) return try_hosts(order_from(first), true, {});
    const nanoseconds deadline = deadline_after(connect_timeout_);
    host_list next = order_from(first);
    if (next.empty()) {
        resolve_hosts(deadline);
        next = order_from(first);
    }
    while (!next.empty()) {
        auto made = try_hosts(next, false, {});  // other addresses may come before another try
        if (made || closing_.load()) return made;
        const bool others = finds_others(next, deadline);
        if (!others && connect_retry_ == nanoseconds{}) return made;
        next = others ? order_from(first) : host_list{};
    }
    return try_hosts({}, true, {});  // resolves the name for `connect_retry`, and says why it cannot
}

/// The first lookup may be one that another thread began before the name changed. The second is not.
bool pool_state::finds_others(const host_list& than, nanoseconds deadline) {
    for (int lookup = 0; lookup < 2 && now() < deadline; ++lookup) {
        resolve_hosts(deadline);
        const std::lock_guard lock(mutex_);
        if (hosts_.has_others(than)) return true;
    }
    return false;
}

host_list pool_state::order_from(const std::shared_ptr<pool_host>& first) {
    const std::lock_guard lock(mutex_);
    return hosts_.order_from(first);
}

/// Without an order, as the URI names the hosts.
result<pool_state::connected> pool_state::try_hosts(const host_list& order, bool retries,
                                                    const std::stop_token& stopped) {
    std::vector<uri> hosts;
    hosts.reserve(order.size());
    for (const auto& each : order) hosts.push_back(each->at);
    if (hosts.empty()) hosts = hosts_.named();
    channel_options options = options_;
    options.reconnect = false;
    if (!retries) {
        options.connect_retry = {};
        for (uri& each : hosts) each.remove("connect_retry");
    }
    auto core = channel_core::connect(context_, std::move(hosts), options, stopped);
    const std::lock_guard lock(mutex_);
    const nanoseconds at = now();
    const std::size_t tried = core && !order.empty() ? (*core)->host() : order.size();
    // A full server refuses the session, and goes on with others.
    const bool is_full = core.code() == status::overloaded && tried == 1 && !order.front()->out;
    for (std::size_t i = 0; i < tried && !is_full; ++i) hosts_.failed(*order[i], at);
    if (tried > 0) failed_at_ = at;
    if (!core) return core.error();
    (*core)->be_replaceable();
    const auto host = order.empty() ? hosts_.at((*core)->request().peer) : order[tried];
    unpublished_ = unpublished_ || order.empty();
    pool_hosts::answered(*host, at);
    ++counted_.made;
    auto shared = shared_state::make(std::move(*core));
    if (!shared) return shared.error();
    if (balance_ == pool_balance::least_loaded) (*shared)->count_calls_in({host, &host->in_flight});
    return connected{host, std::move(*shared)};
}

}  // namespace accel::core
