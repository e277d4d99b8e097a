// SPDX-License-Identifier: Apache-2.0
#include "core/client/named_servers.hpp"
#include "core/client/pool_state.hpp"
#include "core/context_state.hpp"
#include "core/guarded.hpp"
#include "core/handle.hpp"
#include "core/internals.hpp"
#include "core/log.hpp"
#include "core/protocol.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

/// How often a pool that closes looks whether threads are done.
constexpr nanoseconds closing_look = std::chrono::milliseconds{1};
/// How often a name is resolved after failures.
constexpr nanoseconds shortest_refresh = std::chrono::seconds{1};
constexpr nanoseconds longest_keeper_sleep = std::chrono::hours{1};

struct thread_seat {
    std::shared_ptr<pool_state> pool;
    std::shared_ptr<pool_seat> seat;
};

/// The seats of one thread: one in each pool that it has called.
struct thread_seats {
    thread_seats() = default;
    thread_seats(const thread_seats&) = delete;
    thread_seats& operator=(const thread_seats&) = delete;
    ~thread_seats() {
        for (thread_seat& each : all)
            if (each.pool->inherited())
                keep_for_ever(std::move(each.pool));
            else
                each.pool->give_back(each.seat);
    }

    [[nodiscard]] std::shared_ptr<pool_seat> find(const pool_state* pool) const noexcept {
        for (const thread_seat& each : all)
            if (each.pool.get() == pool) return each.seat;
        return nullptr;
    }
    void remove(const pool_state* pool) noexcept {
        std::erase_if(all, [pool](const thread_seat& each) { return each.pool.get() == pool; });
    }
    void remove_closed() noexcept {
        std::erase_if(all, [](const thread_seat& each) { return !each.pool->inherited() && each.pool->closing(); });
    }

    std::vector<thread_seat> all;
};

thread_local thread_seats seats_here;

error pool_closed() {
    return {status::closed, 0, "the channel pool is closed"};
}

}  // namespace

pool_state::pool_state(std::shared_ptr<context_state> context, pool_hosts hosts, const channel_options& options,
                       const channel_options& effective, const pool_options& limits)
    : context_(std::move(context)),
      options_(options),
      close_timeout_(effective.close_timeout),
      connect_timeout_(effective.connect_timeout),
      connect_retry_(effective.connect_retry),
      limits_(limits),
      hosts_(std::move(hosts)) {}

/// This thread's channel, and if that is lost, another in its place.
result<pool_state::place> pool_state::channel_here() {
    if (inherited()) return made_before_fork();
    if (closing_.load()) return pool_closed();
    std::shared_ptr<pool_seat> mine = seats_here.find(this);
    if (mine == nullptr) mine = first_call();
    auto held = mine->channel();
    if (held != nullptr && held->takes_calls()) [[likely]]
        return place{std::move(mine), std::move(held)};
    auto renewed = renew(*mine);
    if (!renewed) return renewed.error();
    return place{std::move(mine), std::move(*renewed)};
}

/// A seat for this thread.
std::shared_ptr<pool_seat> pool_state::first_call() {
    seats_here.remove_closed();
    seats_here.all.reserve(seats_here.all.size() + 1);
    const std::lock_guard lock(mutex_);
    std::shared_ptr<pool_seat> chosen = choose_seat();
    seats_here.all.push_back({shared_from_this(), chosen});
    return chosen;
}

/// One that another thread has given back, or a new one, or the one with the fewest threads.
std::shared_ptr<pool_seat> pool_state::choose_seat() {
    const auto least = std::ranges::min_element(seats_, {}, [](const auto& each) { return each->threads; });
    const bool makes = seats_.size() < limits_.max_channels && (least == seats_.end() || (*least)->threads > 0);
    if (makes) return seats_.emplace_back(std::make_shared<pool_seat>());
    ++(*least)->threads;
    return *least;
}

/// Connects, unless another thread of this seat, or the keeper, has done so. The old channel lives on as long as calls
/// and responses there.
result<std::shared_ptr<shared_state>> pool_state::renew(pool_seat& seat) {
    std::shared_ptr<shared_state> replaced;  // closed after the locks, as the next
    std::shared_ptr<shared_state> old;
    const std::lock_guard connecting(seat.connecting);
    old = seat.channel();
    if (old != nullptr && old->takes_calls()) return old;
    if (old != nullptr) {
        const std::lock_guard lock(mutex_);
        if (seat.channel() == old) hosts_.lost(*seat.host.get(), seat.made, now());
        failed_at_ = now();
        changed_.notify_all();
    }
    auto made = connect();
    if (!made) return made.error();
    const std::lock_guard lock(mutex_);
    if (closing_.load()) return pool_closed();
    if (auto held = seat.channel(); held != old && held != nullptr && held->takes_calls()) return held;
    std::shared_ptr<shared_state> channel = made->made;
    replaced = put(seat, std::move(*made));
    if (replaced != nullptr) ++counted_.lost;
    return channel;
}

/// Returns the channel before, which is to be destroyed without the lock. `close` finds it in `moved_`.
std::shared_ptr<shared_state> pool_state::put(pool_seat& seat, connected made) {
    remember(seat.channel());
    seat.displaced = made.displaced;
    seat.host = std::move(made.host);
    seat.made = now();
    seat.failing = 0;
    return seat.exchange(std::move(made.made));
}

void pool_state::remember(const std::shared_ptr<shared_state>& moved) {
    std::erase_if(moved_, [](const auto& each) { return each.expired(); });
    if (moved != nullptr) moved_.push_back(moved);
}

std::shared_ptr<shared_state> pool_state::empty(pool_seat& seat) noexcept {
    seat.host.reset();
    return seat.exchange(nullptr);
}

/// If all hosts of a name fail, it may have others by now.
result<pool_state::connected> pool_state::connect() {
    if (!hosts_.by_name()) return try_hosts(choose_order(), {});
    start_keeper();
    const nanoseconds deadline = deadline_after(connect_timeout_);
    host_order next = choose_order();
    if (next.hosts.empty()) {
        resolve_hosts(deadline);
        next = choose_order();
    }
    while (!next.hosts.empty()) {
        const auto tried = next.hosts;
        auto made = try_hosts(std::move(next), {});
        if (made || closing_.load()) return made;
        const bool others = finds_others(tried, deadline);
        if (!others && connect_retry_ == nanoseconds{}) return made;
        next = others ? choose_order() : host_order{};
    }
    return try_hosts({}, {});  // resolves the name for `connect_retry`, and says why it cannot
}

/// The first lookup may be one that another thread began before the name changed. The second is not.
bool pool_state::finds_others(const std::vector<std::shared_ptr<pool_host>>& than, nanoseconds deadline) {
    for (int lookup = 0; lookup < 2 && now() < deadline; ++lookup) {
        resolve_hosts(deadline);
        const std::lock_guard lock(mutex_);
        if (hosts_.has_others(than)) return true;
    }
    return false;
}

/// `from`: a channel that moves.
pool_state::host_order pool_state::choose_order(const move_from* from) {
    const std::lock_guard lock(mutex_);
    const nanoseconds at = now();
    host_order out{hosts_.next_order(at), {}, hosts_.count_out(at) > 0};
    if (from != nullptr) pool_hosts::keep_better(out.hosts, *from->host, from->must, at);
    if (!out.hosts.empty()) out.first = host_use{out.hosts.front()};
    return out;
}

/// Without an order, as the URI names the hosts.
result<pool_state::connected> pool_state::try_hosts(host_order with, const std::stop_token& stopped) {
    const std::vector<std::shared_ptr<pool_host>>& order = with.hosts;
    std::vector<uri> hosts;
    hosts.reserve(order.size());
    for (const auto& each : order) hosts.push_back(each->at);
    if (hosts.empty()) hosts = hosts_.named();
    channel_options options = options_;
    options.reconnect = false;
    const bool has_others = hosts_.by_name() && !order.empty();  // other addresses may come before another try
    if (has_others || stopped.stop_possible()) {
        options.connect_retry = {};
        for (uri& each : hosts) each.remove("connect_retry");
    }
    auto core = channel_core::connect(context_, std::move(hosts), options, stopped);
    const std::lock_guard lock(mutex_);
    const nanoseconds at = now();
    const std::size_t tried = core && !order.empty() ? (*core)->host() : order.size();
    for (std::size_t i = 0; i < tried; ++i) hosts_.failed(*order[i], at);
    if (tried > 0) {
        failed_at_ = at;
        changed_.notify_all();
    }
    if (!core) return core.error();
    (*core)->be_replaceable();
    if (order.empty())
        with.first = host_use{hosts_.at((*core)->request().peer)};
    else if (tried > 0)
        with.first = host_use{order[tried]};
    pool_hosts::answered(*with.first.get(), at);
    ++counted_.made;
    auto shared = shared_state::make(std::move(*core));
    if (!shared) return shared.error();
    return connected{std::move(with.first), std::move(*shared), with.displaced || tried > 0};
}

namespace {

/// True: no handler has seen the call. A handler's own answer is final, even if its status is `closed`, but for this
/// code.
bool may_go_elsewhere(const error& failure, bool sent) noexcept {
    if (failure.code == status::closed) return !sent || failure.native == int{unseen_code};
    return !sent && (failure.code == status::peer_lost || failure.code == status::device_lost);
}

/// The server has taken the call, and nothing has come of it.
bool is_servers_fault(status ended) noexcept {
    return ended == status::peer_lost || ended == status::device_lost || ended == status::timed_out;
}

}  // namespace

/// A call that no handler has seen is offered to the other hosts, and once to a server that has taken the place of one.
result<shared_response> pool_state::call(std::span<const std::byte> request, const submit_options& options) {
    submit_options rest = options;
    nanoseconds deadline = never;
    for (std::size_t tries = 0;; ++tries) {
        auto with = channel_here();
        if (!with) return with.error();
        const auto& channel = with->channel;
        const bool own = options.timeout > nanoseconds{0};
        if (tries == 0) deadline = deadline_after(own ? options.timeout : channel->options().call_timeout);
        if (tries > 0 && deadline != never) rest.timeout = std::max(deadline - now(), nanoseconds{1});
        shared_operation what{request, rest};
        auto answer = shared_state::call(channel, what);
        if (what.sent) heard(*with, answer.code());
        if (answer) return answer;
        const bool again = may_go_elsewhere(answer.error(), what.sent);
        const std::size_t most_again = hosts_.by_name() ? max_hosts : hosts_.count();  // a name may change meanwhile
        if (!again || tries == most_again || now() >= deadline) return answer;
        channel->leave();
    }
}

/// A call over a channel that has left its seat says nothing of the seat's host.
void pool_state::heard(const place& from, status ended) {
    std::atomic<std::uint32_t>& failing = from.seat->failing;
    const bool failed = is_servers_fault(ended);
    if (!failed && failing.load(std::memory_order_relaxed) == 0) return;
    if (limits_.eject_after == 0 || from.seat->channel() != from.channel) return;
    if (!failed)
        failing.store(0, std::memory_order_relaxed);
    else if (failing.fetch_add(1, std::memory_order_relaxed) + 1 >= limits_.eject_after)
        eject(from);
}

void pool_state::eject(const place& from) {
    {
        const std::lock_guard lock(mutex_);
        from.seat->failing.store(0, std::memory_order_relaxed);
        const std::shared_ptr<pool_host>& host = from.seat->host.get();
        if (host == nullptr || from.seat->channel() != from.channel) return;
        if (!hosts_.eject(*host, now())) return;
        limited_log(host->at.host)
            .warn("{} calls in a row have failed at {}: the pool leaves it out for a while", limits_.eject_after,
                  host->at.text());
        ++counted_.ejected;
        moves_ = true;
        failed_at_ = now();
    }
    changed_.notify_all();
    start_keeper();
}

result<shared_call> pool_state::submit(std::span<const std::byte> request, const submit_options& options) {
    auto with = channel_here();
    if (!with) return with.error();
    return shared_state::submit(std::move(with->channel), std::make_unique<pending_call>(request, options));
}

result<target> pool_state::resolve(std::string_view name) {
    auto with = channel_here();
    if (!with) return with.error();
    return with->channel->resolve(name);
}

/// Without a thread, channels stay where they are, and the next connect or failure tries again. New channels still go
/// to the right hosts.
void pool_state::start_keeper() noexcept {
    (void)guarded([this]() -> result<void> {
        const std::lock_guard lock(mutex_);
        if (closing_.load() || keeper_.joinable()) return {};
        keeper_ = start_thread("accel-pool", [this, stopped = stop_.get_token()] { keep(stopped); });
        return {};
    });
}

void pool_state::keep(const std::stop_token& stopped) {
    while (!stopped.stop_requested()) {
        const auto done = guarded([&]() -> result<void> {
            keep_once(stopped);
            return {};
        });
        if (done) continue;
        {
            const std::lock_guard lock(mutex_);
            moves_ = true;
        }
        std::this_thread::sleep_for(pause_without_memory);
    }
}

/// Sleeps until there is something to do, and does it.
void pool_state::keep_once(const std::stop_token& stopped) {
    bool looks_up = false;
    {
        std::unique_lock lock(mutex_);
        const auto next = [this] { return std::min(next_lookup(), hosts_.next_return(now())); };
        for (nanoseconds until = next(); !moves_ && now() < until; until = std::min(until, next())) {
            if (closing_.load()) return;
            changed_.wait_for(lock, std::min(until - now(), longest_keeper_sleep));
        }
        looks_up = now() >= next_lookup();
    }
    if (looks_up) resolve_hosts(deadline_after(connect_timeout_));
    for (move_from& each : seats_to_move()) {
        if (stopped.stop_requested()) return;
        move(std::exchange(each, {}), stopped);
    }
}

/// After a failure soon, else after `dns_refresh`. The first lookup is that of the thread that connects first.
nanoseconds pool_state::next_lookup() const noexcept {
    if (!hosts_.by_name() || resolved_at_ == nanoseconds{}) return never;
    const bool soon = failed_at_ >= listed_at_;
    const nanoseconds pause = soon ? std::min(limits_.dns_refresh, shortest_refresh) : limits_.dns_refresh;
    return pause >= never - resolved_at_ ? never : resolved_at_ + pause;
}

/// Several threads may do this; the last lookup counts. A name that cannot be resolved is looked up again soon.
void pool_state::resolve_hosts(nanoseconds deadline) {
    const nanoseconds start = now();
    {
        const std::lock_guard lock(mutex_);
        resolved_at_ = start;
    }
    const std::vector<uri> found = resolve_names(hosts_.named(), deadline, stop_.get_token());
    const std::lock_guard lock(mutex_);
    if (start < listed_at_) return;
    const bool changed = hosts_.list(found);
    const bool complete = std::ranges::none_of(found, &uri::dns);
    if (complete)
        listed_at_ = start;
    else
        failed_at_ = now();
    moves_ = moves_ || changed;
    if (changed || !complete) changed_.notify_all();
    if (!changed) return;
    limited_log(hosts_.named().front().host)
        .info("{} has {} servers now", hosts_.named().front().text(), hosts_.count());
}

/// Those at hosts that the names have no more, or that were ejected, and those that a host has more than its share.
std::vector<pool_state::move_from> pool_state::seats_to_move() {
    const std::lock_guard lock(mutex_);
    moves_ = false;
    const nanoseconds at = now();
    const auto goes = [at](const pool_host& host) { return !host.listed || pool_hosts::is_ejected(host, at); };
    std::vector<std::shared_ptr<pool_seat>> seats = seats_;
    // A good channel to a host that was left out since then stays there.
    std::erase_if(seats, [&](const auto& each) {
        const pool_host* const host = each->host.get().get();
        return host == nullptr || (host->out_until > at && !goes(*host));
    });
    const std::size_t usable = hosts_.count() - hosts_.count_out(at);
    std::vector<move_from> out;
    if (usable == 0) return out;
    const std::size_t share = seats.size() / usable;
    std::size_t one_more = seats.size() % usable;  // so many hosts have one
    std::map<const pool_host*, std::size_t> kept;
    for (const auto& each : seats) {
        const pool_host& host = *each->host.get();
        std::size_t& here = kept[&host];
        const bool above = here >= share;
        const bool must = goes(host);
        const bool stays = !must && (!above || (here == share && one_more > 0));
        if (!stays) {
            out.push_back({{each, each->channel()}, each->host.get(), must});
            continue;
        }
        if (above) --one_more;
        ++here;
    }
    return out;
}

/// Connects to a better host, and then puts the new channel in place of the old one. If that fails, the old one goes
/// on.
void pool_state::move(const move_from& from, const std::stop_token& stopped) {
    host_order next = choose_order(&from);
    if (next.hosts.empty()) return;
    auto made = try_hosts(std::move(next), stopped);
    if (!made) return;
    std::shared_ptr<shared_state> old;  // closed after the lock
    const std::lock_guard lock(mutex_);
    if (closing_.load() || from.is.seat->channel() != from.is.channel) return;
    old = put(*from.is.seat, std::move(*made));
    ++counted_.moved;
}

status pool_state::leave() noexcept {
    if (inherited()) return status::invalid_state;
    const auto mine = seats_here.find(this);
    if (mine == nullptr) return status::ok;
    const auto keeps_this = shared_from_this();
    give_back(mine);
    seats_here.remove(this);
    return status::ok;
}

/// A channel that would be elsewhere but for a failure makes room for one that is.
void pool_state::give_back(const std::shared_ptr<pool_seat>& seat) noexcept {
    std::shared_ptr<shared_state> dropped;  // closed after the locks
    const auto held = seat->channel();
    const bool good = held != nullptr && held->takes_calls();
    const std::lock_guard lock(mutex_);
    if (--seat->threads > 0 || (good && !seat->displaced)) return;
    dropped = empty(*seat);
    // Without memory, `close` does not wait for calls there.
    (void)guarded([&]() -> result<void> {
        remember(dropped);
        return {};
    });
    std::erase(seats_, seat);
}

status pool_state::close(nanoseconds timeout) noexcept {
    if (inherited()) return status::ok;
    const nanoseconds deadline = deadline_after(timeout);
    std::thread keeper;
    {
        const std::lock_guard lock(mutex_);
        closing_.store(true);  // from now on no seat gets a channel
        keeper.swap(keeper_);
    }
    stop_.request_stop();
    changed_.notify_all();
    const auto all_idle = [this] {
        const std::lock_guard lock(mutex_);
        bool idle = true;
        for_each_channel([&](shared_state& each) { idle = idle && each.idle(); });
        return idle;
    };
    bool idle = all_idle();
    for (; !idle && now() < deadline; idle = all_idle()) std::this_thread::sleep_for(closing_look);
    if (keeper.joinable()) keeper.join();
    const std::lock_guard lock(mutex_);
    for_each_channel([](shared_state& each) { each.close(); });
    for (const auto& each : seats_) (void)empty(*each);
    seats_.clear();
    return idle ? status::ok : status::timed_out;
}

/// Under the lock.
template <class Action>
void pool_state::for_each_channel(Action act) noexcept {
    for (const auto& each : seats_)
        if (const auto held = each->channel(); held != nullptr) act(*held);
    for (const auto& each : moved_)
        if (const auto held = each.lock(); held != nullptr) act(*held);
}

pool_statistics pool_state::statistics() {
    if (inherited()) return {};
    const std::lock_guard lock(mutex_);
    pool_statistics out = counted_;
    out.channels = static_cast<std::uint32_t>(
        std::ranges::count_if(seats_, [](const auto& each) { return each->channel() != nullptr; }));
    out.hosts = static_cast<std::uint32_t>(hosts_.count());
    out.hosts_out = static_cast<std::uint32_t>(hosts_.count_out(now()));
    return out;
}

}  // namespace accel::core

/// The public face.
namespace accel {
namespace {

core::pool_state& pool_behind(const std::shared_ptr<core::pool_state>& state) noexcept {
    return core::behind(state, "channel_pool");
}

error bad_limit(std::string_view name, std::string_view range) {
    return {status::invalid_argument, 0, fmt::format("pool option {} must be {}", name, range)};
}

result<std::shared_ptr<core::pool_state>> open_pool(context& ctx, std::string_view uri, const channel_options& options,
                                                    const pool_options& limits) {
    if (limits.max_channels == 0) return bad_limit("max_channels", "1 or more");
    if (limits.host_pause < core::nanoseconds{0}) return bad_limit("host_pause", "0 or more");
    if (limits.dns_refresh <= core::nanoseconds{0}) return bad_limit("dns_refresh", "more than 0");
    auto hosts = core::pool_hosts::read(uri, limits.host_pause);
    if (!hosts) return hosts.error();
    const core::uri& place = hosts->named().front();
    if (place.scheme != "auto") {
        if (auto known = core::internals::state_of(ctx)->named_backend(place.scheme); !known) return known.error();
    }
    const auto effective = core::apply_options(place, options);
    if (!effective) return effective.error();
    return std::make_shared<core::pool_state>(core::internals::state_of(ctx), std::move(*hosts), options, *effective,
                                              limits);
}

}  // namespace

channel_pool::channel_pool(std::shared_ptr<core::pool_state> state) noexcept : state_(std::move(state)) {}
channel_pool::channel_pool(channel_pool&&) noexcept = default;
channel_pool& channel_pool::operator=(channel_pool&& other) noexcept {
    if (this != &other) {
        channel_pool old{std::move(state_)};
        state_ = std::move(other.state_);
    }
    return *this;
}
channel_pool::~channel_pool() {
    core::leave_to_parent(state_);
    if (state_ != nullptr) (void)state_->close(state_->close_timeout());
}

result<channel_pool> channel_pool::open(context& ctx, std::string_view uri, const channel_options& options,
                                        const pool_options& limits) {
    if (core::behind(core::internals::state_of(ctx), "context").inherited()) return core::made_before_fork();
    return core::guarded([&]() -> result<channel_pool> {
        auto made = open_pool(ctx, uri, options, limits);
        if (!made) return made.error();
        return channel_pool{std::move(*made)};
    });
}

result<shared_response> channel_pool::call(std::span<const std::byte> request, const submit_options& options) {
    return core::guarded([&] { return pool_behind(state_).call(request, options); });
}
result<shared_call> channel_pool::submit(std::span<const std::byte> request, const submit_options& options) {
    return core::guarded([&] { return pool_behind(state_).submit(request, options); });
}
result<target> channel_pool::resolve(std::string_view name) {
    return core::guarded([&] { return pool_behind(state_).resolve(name); });
}

status channel_pool::leave() noexcept {
    return pool_behind(state_).leave();
}
status channel_pool::close(std::chrono::nanoseconds timeout) noexcept {
    return pool_behind(state_).close(timeout);
}
pool_statistics channel_pool::statistics() const {
    return pool_behind(state_).statistics();
}

}  // namespace accel
