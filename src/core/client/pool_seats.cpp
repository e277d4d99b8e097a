// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"
#include "core/client/pool_state.hpp"

#include <algorithm>
#include <functional>
#include <utility>

/// How the seats of a pool get their channels, and lose them.
namespace accel::core {

/// Gives a seat a channel, unless another thread of its row has done so. Calls do not connect to a host that is put
/// off: they share a channel of another row. If there is none, the place has no channel, and the call tries another
/// host, unless this is the `last` one. The old channel stays until its calls and responses have ended.
result<pool_state::place> pool_state::renew(const std::shared_ptr<pool_seat>& seat, const past_tries& past, bool last) {
    const std::uint64_t before = seat->failures.load();
    const std::lock_guard connecting(seat->connecting);
    const channel_ptr old = seat->channel();
    if (old != nullptr && old->takes_calls()) return place{seat, old};
    if (old != nullptr) lost(*seat);
    const pool_host* const host = seat->host.get();
    bool shares = false;
    bool others = false;
    {
        const std::lock_guard lock(mutex_);
        if (closing_.load()) return pool_closed();
        if (seat->given_up || (host == nullptr && hosts_.count() > 0)) return place{};
        shares = !last && host != nullptr && host->put_off();
        others = !last && host != nullptr && has_channels(*host, false);
        // A call waits for one host that does not answer, not for each.
        if (!shares && others && past.seats != 0 && !has_channels(*host)) return place{};
    }
    if (shares) return share(seat);
    if (!others && seat->failures.load() != before) return seat->failure;  // of the thread that this one waited for
    auto made = others ? try_hosts({seat->host}, false) : connect(seat->host);
    if (!made) {
        wake_keeper();
        place shared = host != nullptr ? share(seat) : place{};
        if (closing_.load()) return pool_closed();
        if (shared.channel != nullptr || others) return shared;
        seat->failure = made.error();
        ++seat->failures;
        return made.error();
    }
    place out;
    {
        const std::lock_guard lock(mutex_);
        if (closing_.load()) return pool_closed();
        out = put(*made, seat->row);
    }
    wake_keeper();
    publish_hosts();
    return out;
}

/// The channel of another row to the same host, until the keeper has made one for this.
pool_state::place pool_state::share(const std::shared_ptr<pool_seat>& seat) {
    for (;;) {
        std::vector<place> all;
        {
            const std::lock_guard lock(mutex_);
            for (const auto& each : seats_)
                if (each->host == seat->host && each->channel() != nullptr) all.push_back({each, each->channel()});
        }
        if (all.empty() || closing_.load()) return {};
        const channel_ptr& channel = all[seat->row % all.size()].channel;
        if (!channel->takes_calls()) {
            drop_lost([&](const pool_seat& each) { return each.host == seat->host; });
            continue;
        }
        const std::lock_guard lock(mutex_);
        if (seat->channel() == nullptr) {
            seat->wants = true;
            (void)seat->exchange(channel);
        }
        return {seat, channel};
    }
}

/// Under the lock: channels to this host, or to others.
bool pool_state::has_channels(const pool_host& host, bool there) const {
    return std::ranges::any_of(
        seats_, [&](const auto& each) { return (each->host.get() == &host) == there && each->channel() != nullptr; });
}

/// The seat's channel takes no calls any more.
void pool_state::lost(pool_seat& seat) {
    drop_lost([&](const pool_seat& each) { return each.host == seat.host; });
    const std::lock_guard lock(mutex_);
    if (seat.channel() == nullptr) seat.wants = true;
}

/// Channels of these seats. Nobody else may look at them again, and a server that drains waits for them. A host to
/// which the pool has others goes on. Looks at them without the lock, because interceptors may see calls end.
void pool_state::drop_lost(const std::function<bool(const pool_seat&)>& which) {
    std::vector<place> all;  // closed after the lock
    {
        const std::lock_guard lock(mutex_);
        for (const auto& each : seats_)
            if (which(*each)) all.push_back({each, each->channel()});
    }
    std::erase_if(all, [](const place& each) { return each.channel == nullptr || each.channel->takes_calls(); });
    if (all.empty()) return;
    {
        const std::lock_guard lock(mutex_);
        for (const place& each : all) {
            if (each.seat->channel() != each.channel) continue;
            empty(*each.seat);
            if (!each.seat->wants) ++counted_.lost;
            pool_host& host = *each.seat->host;
            hosts_.lost(host, has_channels(host), now());
            if (host.out) failed_at_ = now();
        }
    }
    wake_keeper();
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
    if (!made.host->listed && !made.host->used) {
        remember(made.made);
        return {std::make_shared<pool_seat>(made.host, row), made.made};
    }
    auto seat = seat_of(made.host, row);
    auto held = seat->channel();
    if (held != nullptr && !seat->wants && held->takes_calls()) return {std::move(seat), std::move(held)};
    remember(held);
    seat->wants = false;
    channel_ptr channel = made.made;
    made.made = seat->exchange(channel);
    hosts_.answered(*made.host, wanting(*made.host) != nullptr, now());
    return {std::move(seat), std::move(channel)};
}

/// Under the lock: a seat that is to get a channel to this host, or null.
std::shared_ptr<pool_seat> pool_state::wanting(const pool_host& host) const {
    const auto found = std::ranges::find_if(
        seats_, [&](const auto& each) { return each->wants && each->host.get() == &host && !each->given_up; });
    return found != seats_.end() ? *found : nullptr;
}

/// If all hosts of a name fail, it may have others by now.
result<pool_state::connected> pool_state::connect(const std::shared_ptr<pool_host>& first) {
    if (!hosts_.by_name()) return try_hosts(order_from(first), true);
    const nanoseconds deadline = deadline_after(connect_timeout_);
    host_list next = order_from(first);
    if (next.empty()) {
        resolve_hosts(deadline);
        next = order_from(first);
    }
    while (!next.empty()) {
        auto made = try_hosts(next, false);  // other addresses may come before another try
        if (made || closing_.load()) return made;
        const bool others = finds_others(next, deadline);
        if (!others && connect_retry_ == nanoseconds{}) return made;
        next = others ? order_from(first) : host_list{};
    }
    return try_hosts({}, true);  // resolves the name for `connect_retry`, and says why it cannot
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
result<pool_state::connected> pool_state::try_hosts(const host_list& order, bool retries) {
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
    auto core = channel_core::connect(context_, std::move(hosts), options, stop_.get_token());
    const std::size_t tried = core && !order.empty() ? (*core)->host() : order.size();
    for (std::size_t i = 0; i < tried; ++i) drop_lost([&](const pool_seat& each) { return each.host == order[i]; });
    const std::lock_guard lock(mutex_);
    const nanoseconds at = now();
    for (std::size_t i = 0; i < tried; ++i) {
        hosts_.failed(*order[i], has_channels(*order[i]), at);
        if (order[i]->out) failed_at_ = at;
    }
    if (!core) return core.error();
    (*core)->be_replaceable();
    const auto host = order.empty() ? hosts_.at((*core)->request().peer) : order[tried];
    hosts_.answered(*host, false, at);
    ++counted_.made;
    auto shared = shared_state::make(std::move(*core));
    if (!shared) return shared.error();
    if (balance_ == pool_balance::least_loaded) (*shared)->count_calls_in({host, &host->in_flight});
    return connected{host, std::move(*shared)};
}

}  // namespace accel::core
