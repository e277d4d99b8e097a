// SPDX-License-Identifier: Apache-2.0
#include "core/client/pool_state.hpp"
#include "core/context_state.hpp"
#include "core/guarded.hpp"
#include "core/handle.hpp"
#include "core/internals.hpp"
#include "core/protocol.hpp"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

/// How often a pool that closes looks whether threads are done.
constexpr nanoseconds closing_look = std::chrono::milliseconds{1};

struct thread_seat {
    std::shared_ptr<pool_state> pool;
    pool_seat* seat;
};

/// Set when the thread ends: an object that outlives `seats_here` must not touch it. Without a destructor, this stays
/// readable.
thread_local bool seats_are_gone = false;

/// The seats of one thread: one in each pool that it has called, and retired ones.
struct thread_seats {
    thread_seats() = default;
    thread_seats(const thread_seats&) = delete;
    thread_seats& operator=(const thread_seats&) = delete;
    ~thread_seats() {
        seats_are_gone = true;
        for (thread_seat& each : all)
            if (!each.pool->inherited() && each.seat->uses.load() == 0)
                each.pool->give_back(*each.seat);
            else
                keep_for_ever(std::move(each.pool));  // the parent's, or in use by an object that outlives this one
    }

    [[nodiscard]] pool_seat* find(const pool_state* pool, bool retired = false) const noexcept {
        for (const thread_seat& each : all)
            if (each.pool.get() == pool && each.seat->retired == retired) return each.seat;
        return nullptr;
    }
    void remove(const pool_seat* seat) noexcept {
        std::erase_if(all, [seat](const thread_seat& each) { return each.seat == seat; });
    }
    void remove_closed() noexcept {
        std::erase_if(all, [](const thread_seat& each) {
            return !each.pool->inherited() && each.pool->closing() && each.seat->uses.load() == 0;
        });
    }

    std::vector<thread_seat> all;
};

thread_local thread_seats seats_here;

error pool_closed() {
    return {status::closed, 0, "the channel pool is closed"};
}

}  // namespace

pool_state::pool_state(std::shared_ptr<context_state> context, pool_hosts hosts, const channel_options& options,
                       nanoseconds close_timeout, const pool_options& limits)
    : context_(std::move(context)),
      options_(options),
      close_timeout_(close_timeout),
      limits_(limits),
      hosts_(std::move(hosts)) {}

result<pooled_channel> pool_state::take() {
    if (pool_seat* const left = inherited() ? nullptr : retired_seat(); left != nullptr && enter(*left))
        return pooled_channel{left};
    auto use = take_current();
    if (!use || (*use)->connected()) [[likely]]
        return use;
    if (auto renewed = renew(*use->seat_); !renewed) return renewed.error();
    return use;
}

/// For `call`. If the channel is lost while the thread still has calls or responses in it, they stay in a retired seat,
/// and the thread gets another one.
result<pooled_channel> pool_state::take_for_call() {
    auto use = take_current();
    if (!use) return use;
    (void)(*use)->poll({});
    if ((*use)->connected()) [[likely]]
        return use;
    pool_seat& mine = *use->seat_;
    if (mine.uses.load(std::memory_order_relaxed) > 1 || !mine.held->core_->idle()) {
        retire(mine);
        return take_current();
    }
    if (auto renewed = renew(mine); !renewed) return renewed.error();
    return use;
}

result<pooled_channel> pool_state::take_current() {
    if (inherited()) return made_before_fork();
    pool_seat* mine = seats_here.find(this);
    if (mine == nullptr) {
        auto made = first_call();
        if (!made) return made.error();
        mine = *made;
    }
    if (!enter(*mine)) return pool_closed();
    return pooled_channel{mine};
}

/// A retired seat with calls or responses that the thread has not taken or released yet; null: there is none.
pool_seat* pool_state::retired_seat() {
    while (pool_seat* const left = seats_here.find(this, true)) {
        if (left->held) (void)left->held->poll({});
        if (left->held && !left->held->core_->idle()) return left;
        if (left->uses.load(std::memory_order_relaxed) > 0) return nullptr;
        drop(*left);
    }
    return nullptr;
}

/// The thread gets another seat.
void pool_state::retire(pool_seat& seat) {
    const std::lock_guard lock(mutex_);
    hosts_.lost(seat.host, seat.made, now());
    ++counted_.lost;
    ++retired_;
    seat.retired = true;
}

/// Closes a retired seat that nobody uses any more.
void pool_state::drop(pool_seat& seat) noexcept {
    const auto keeps_this = shared_from_this();
    give_back(seat);
    if (!seats_are_gone) seats_here.remove(&seat);
}

/// False: the pool is closing.
bool pool_state::enter(pool_seat& seat) noexcept {
    seat.uses.store(seat.uses.load(std::memory_order_relaxed) + 1);
    if (!closing_.load() || seat.uses.load(std::memory_order_relaxed) > 1) return true;
    exit(seat);
    return false;
}

void pool_state::exit(pool_seat& seat) noexcept {
    const bool last = seat.uses.fetch_sub(1) == 1;
    if (!last || inherited()) return;
    if (closing_.load()) (void)close_unused();
    if (seat.retired && (!seat.held || seat.held->core_->idle())) drop(seat);
}

/// A seat for this thread: one that another thread has given back, or a new one.
result<pool_seat*> pool_state::first_call() {
    seats_here.remove_closed();
    {
        const std::lock_guard lock(mutex_);
        if (closing_.load()) return pool_closed();
        if (pool_seat* idle = idle_seat(); idle != nullptr) {
            seats_here.all.push_back({shared_from_this(), idle});
            idle->taken = true;
            return idle;
        }
        if (seats_.size() - retired_ + reserved_ >= limits_.max_channels) {
            ++counted_.refused;
            return error{status::overloaded, 0,
                         fmt::format("{} threads have a channel of this pool: raise max_channels, or let threads that "
                                     "no longer make calls leave()",
                                     limits_.max_channels)};
        }
        ++reserved_;
    }
    auto made = connect();
    const std::lock_guard lock(mutex_);
    --reserved_;
    if (!made) return made.error();
    if (closing_.load()) return pool_closed();
    pool_seat& seat = seats_.emplace_back(*this, made->host, std::move(made->made));
    seat.displaced = made->displaced;
    seats_here.all.push_back({shared_from_this(), &seat});
    return &seat;
}

pool_seat* pool_state::idle_seat() noexcept {
    const auto found = std::ranges::find(seats_, false, &pool_seat::taken);
    return found == seats_.end() ? nullptr : &*found;
}

result<pool_state::connected> pool_state::connect() {
    std::vector<std::size_t> order;
    std::string uri;
    bool displaced = false;  // by a host that was left out when the order was made: it may be back by the end
    {
        const std::lock_guard lock(mutex_);
        const nanoseconds at = now();
        order = hosts_.next_order(at);
        uri = hosts_.uri(order);
        displaced = hosts_.count_out(at) > 0;
    }
    auto core = channel_core::connect(context_, uri, options_);
    const std::lock_guard lock(mutex_);
    const std::size_t tried = core ? (*core)->host() : order.size();
    for (std::size_t i = 0; i < tried; ++i) hosts_.failed(order[i], now());
    if (!core) return core.error();
    (*core)->be_replaceable();
    hosts_.answered(order[tried], now());
    ++counted_.made;
    return connected{order[tried], channel{std::move(*core)}, displaced || tried > 0};
}

namespace {

/// True: no handler has seen the call. A handler's own answer is final, even if its status is `closed`, but for this
/// code.
bool may_go_elsewhere(const error& failure, bool sent) noexcept {
    if (failure.code == status::closed) return !sent || failure.native == int{unseen_code};
    return !sent && (failure.code == status::peer_lost || failure.code == status::device_lost);
}

}  // namespace

/// A call that no handler has seen is offered to the other hosts, and once to a server that has taken the place of one.
result<pooled_response> pool_state::call(std::span<const std::byte> request, const submit_options& options) {
    submit_options rest = options;
    nanoseconds deadline = never;
    for (std::size_t tries = 0;; ++tries) {
        auto use = take_for_call();
        if (!use) return use.error();
        channel& with = **use;
        const bool own = options.timeout > nanoseconds{0};
        if (tries == 0) deadline = deadline_after(own ? options.timeout : with.core_->request().options.call_timeout);
        if (tries > 0 && deadline != never) rest.timeout = std::max(deadline - now(), nanoseconds{1});
        bool sent = false;
        auto answer = with.call(request, rest, sent);
        if (answer) return pooled_response{std::move(*use), std::move(*answer)};
        const bool again = may_go_elsewhere(answer.error(), sent);
        if (!again || tries == hosts_.count() || now() >= deadline) return answer.error();
        with.core_->leave();
    }
}

/// Puts a new channel in the place of a lost one that nobody needs any more.
result<void> pool_state::renew(pool_seat& seat) {
    (void)seat.held->poll({});
    if (seat.uses.load(std::memory_order_relaxed) > 1 || !seat.held->core_->idle()) return {};
    {
        const std::lock_guard lock(mutex_);
        hosts_.lost(seat.host, seat.made, now());
    }
    auto made = connect();
    if (!made) return made.error();
    seat.host = made->host;
    seat.displaced = made->displaced;
    seat.made = now();
    const std::lock_guard lock(mutex_);
    ++counted_.lost;
    std::swap(*seat.held, made->made);
    return {};
}

status pool_state::leave() noexcept {
    pool_seat* const mine = seats_here.find(this);
    if (inherited() || (mine != nullptr && mine->uses.load() > 0)) return status::invalid_state;
    if (mine == nullptr) return status::ok;
    const auto keeps_this = shared_from_this();
    give_back(*mine);
    seats_here.remove(mine);
    return status::ok;
}

/// A channel with calls in flight or responses unread is of no use to another thread, and one that would be elsewhere
/// but for a failure makes room for one that is.
void pool_state::give_back(pool_seat& seat) noexcept {
    std::optional<channel> dropped;  // closed after the lock
    const std::lock_guard lock(mutex_);
    if (seat.retired) --retired_;
    if (!seat.held) return;
    (void)seat.held->poll({});
    seat.taken = false;
    if (seat.held->connected() && seat.held->core_->idle() && !seat.displaced) return;
    dropped = std::move(seat.held);
    seats_.remove_if([&seat](const pool_seat& each) { return &each == &seat; });
}

/// True: no thread uses a channel.
bool pool_state::close_unused() noexcept {
    std::list<channel> dropped;  // closed after the lock
    const std::lock_guard lock(mutex_);
    bool all = true;
    for (pool_seat& seat : seats_) {
        if (!seat.held) continue;
        if (seat.uses.load() > 0) {
            all = false;
            continue;
        }
        dropped.push_back(std::move(*seat.held));
        seat.held.reset();
    }
    return all;
}

status pool_state::close(nanoseconds timeout) noexcept {
    if (inherited()) return status::ok;
    const nanoseconds deadline = deadline_after(timeout);
    closing_.store(true);
    while (!close_unused()) {
        if (now() >= deadline) return status::timed_out;
        std::this_thread::sleep_for(closing_look);
    }
    return status::ok;
}

pool_statistics pool_state::statistics() {
    if (inherited()) return {};
    const std::lock_guard lock(mutex_);
    pool_statistics out = counted_;
    out.channels = static_cast<std::uint32_t>(
        std::ranges::count_if(seats_, [](const pool_seat& s) { return s.held.has_value(); }));
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
    auto hosts = core::pool_hosts::read(uri, limits.host_pause);
    if (!hosts) return hosts.error();
    std::vector<std::size_t> all(hosts->count());
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (const auto whole = core::one_host_each(hosts->uri(all)); !whole) return whole.error();
    const auto first = core::parse_uri(hosts->uri({0}));
    if (!first) return first.error();
    const core::uri& place = first.value();
    if (place.scheme != "auto") {
        if (auto known = core::internals::state_of(ctx)->named_backend(place.scheme); !known) return known.error();
    }
    const auto effective = core::apply_options(place, options);
    if (!effective) return effective.error();
    const auto patience = effective.value().close_timeout;
    return std::make_shared<core::pool_state>(core::internals::state_of(ctx), std::move(*hosts), options, patience,
                                              limits);
}

}  // namespace

pooled_channel::pooled_channel(pooled_channel&& other) noexcept : seat_(std::exchange(other.seat_, nullptr)) {}
pooled_channel& pooled_channel::operator=(pooled_channel&& other) noexcept {
    if (this != &other) {
        reset();
        seat_ = std::exchange(other.seat_, nullptr);
    }
    return *this;
}
pooled_channel::~pooled_channel() {
    reset();
}
void pooled_channel::reset() noexcept {
    if (core::pool_seat* const seat = std::exchange(seat_, nullptr); seat != nullptr) seat->owner.exit(*seat);
}
channel& pooled_channel::operator*() const noexcept {
    return *core::behind(seat_, "pooled_channel").held;
}
channel* pooled_channel::operator->() const noexcept {
    return &**this;
}

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

result<pooled_channel> channel_pool::take() {
    return core::guarded([&] { return pool_behind(state_).take(); });
}

result<pooled_response> channel_pool::call(std::span<const std::byte> request, const submit_options& options) {
    return core::guarded([&] { return pool_behind(state_).call(request, options); });
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
