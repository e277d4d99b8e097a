// SPDX-License-Identifier: Apache-2.0
#include "core/client/pool_state.hpp"
#include "core/context_state.hpp"
#include "core/guarded.hpp"
#include "core/handle.hpp"
#include "core/internals.hpp"
#include "core/log.hpp"
#include "core/protocol.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

/// A pool: a call in the order in which it finds its channel, then how threads leave and the pool closes.
namespace accel::core {
namespace {

/// How often a pool that closes looks whether threads are done.
constexpr nanoseconds closing_look = std::chrono::milliseconds{1};

/// The rows of one thread: one in each pool that it has called.
struct thread_rows {
    thread_rows() = default;
    thread_rows(const thread_rows&) = delete;
    thread_rows& operator=(const thread_rows&) = delete;
    ~thread_rows() {
        for (pool_row& each : all)
            if (each.pool->inherited())
                keep_for_ever(std::move(each.pool));
            else
                each.pool->give_back(each.number);
    }

    [[nodiscard]] pool_row* find(const pool_state* pool) noexcept {
        for (pool_row& each : all)
            if (each.pool.get() == pool) return &each;
        return nullptr;
    }
    void remove(const pool_state* pool) noexcept {
        std::erase_if(all, [pool](const pool_row& each) { return each.pool.get() == pool; });
    }
    void remove_closed() noexcept {
        std::erase_if(all, [](const pool_row& each) { return !each.pool->inherited() && each.pool->closing(); });
    }

    std::vector<pool_row> all;
};

thread_local thread_rows rows_here;

/// Calls of pools that this thread is in: an interceptor's may be another pool's. A row may be its pool's last owner.
thread_local int calls_here = 0;
struct inside {
    inside() noexcept { ++calls_here; }
    inside(const inside&) = delete;
    inside& operator=(const inside&) = delete;
    ~inside() { --calls_here; }
};

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

error pool_closed() {
    return {status::closed, 0, "the channel pool is closed"};
}

pool_state::pool_state(std::shared_ptr<context_state> context, pool_hosts hosts, const channel_options& options,
                       const channel_options& effective, const pool_options& limits)
    : context_(std::move(context)),
      options_(options),
      close_timeout_(effective.close_timeout),
      connect_timeout_(effective.connect_timeout),
      connect_retry_(effective.connect_retry),
      limits_(limits),
      balance_(hosts.balance(limits.balance)),
      hosts_(std::move(hosts)) {}

/// A call that no handler has seen is offered to the other hosts, and once to a server that has taken the place of one.
result<shared_response> pool_state::call(std::span<const std::byte> request, const submit_options& options) {
    const inside here;
    std::optional<submit_options> rest;
    nanoseconds deadline = never;
    past_tries past;
    for (std::size_t tries = 0;; ++tries) {
        auto with = channel_here(options, past);
        if (!with) return with.error();
        const auto& channel = with->channel;
        const nanoseconds began = now();
        if (tries == 0) {
            const bool own = options.timeout > nanoseconds{0};
            const nanoseconds timeout = own ? options.timeout : channel->options().call_timeout;
            deadline = timeout >= never - began ? never : began + timeout;
        } else if (deadline != never) {
            rest = options;
            rest->timeout = std::max(deadline - began, nanoseconds{1});
        }
        shared_operation what{request, rest ? *rest : options};
        auto answer = shared_state::call(channel, what);
        if (what.sent) heard(*with->seat->host, answer.code(), began);
        if (answer) return answer;
        const bool again = may_go_elsewhere(answer.error(), what.sent);
        const std::size_t most_again = hosts_.by_name() ? max_hosts : hosts_.count();  // a name may change meanwhile
        if (!again || tries == most_again || now() >= deadline) return answer;
        past.failed();
        channel->leave();
        lost(*with->seat);
    }
}

result<shared_call> pool_state::submit(std::span<const std::byte> request, const submit_options& options) {
    const inside here;
    past_tries none;
    auto with = channel_here(options, none);
    if (!with) return with.error();
    return shared_state::submit(std::move(with->channel), std::make_unique<pending_call>(request, options));
}

result<target> pool_state::resolve(std::string_view name) {
    const inside here;
    past_tries past;
    auto with = channel_here(usual_options, past);
    if (!with) return with.error();
    // A thread that resolves a name before each call would have all of its calls at one host.
    if (pool_row* const mine = rows_here.find(this); mine != nullptr) mine->choice.take_back(past.last);
    return with->channel->resolve(name);
}

/// A channel of this thread's row, to the host whose turn it is; if that is lost, to another in its place.
result<pool_state::place> pool_state::channel_here(const submit_options& options, past_tries& past) {
    if (inherited()) return made_before_fork();
    if (closing_.load()) return pool_closed();
    const std::uint64_t key = balance_ == pool_balance::sticky ? pool_choice::key_of(options.balance_key) : 0;
    for (std::size_t count = 0; count <= 2 * max_hosts; ++count) {
        pool_row* mine = rows_here.find(this);  // anew: interceptors may use other pools meanwhile
        if (mine == nullptr) mine = &first_call();
        if (mine->version != version_.load(std::memory_order_acquire)) {
            list_hosts(*mine);
            past.seats = 0;
        }
        std::size_t i = mine->choice.next(balance_, key, past.seats);
        const bool last = i == pool_choice::none;
        if (last) i = mine->choice.next(balance_, key, 0);
        std::shared_ptr<pool_seat> seat = i == pool_choice::none ? nowhere_ : mine->choice.seat(i);
        past.last = i;
        auto held = seat->channel();
        if (held != nullptr && held->takes_calls()) [[likely]]
            return place{std::move(seat), std::move(held)};
        auto renewed = renew(seat, past, last);
        if (!renewed || renewed->channel != nullptr) return renewed;
        past.failed();
    }
    return error{status::peer_lost, 0, "the servers of the pool change too fast"};
}

/// A row for this thread.
pool_row& pool_state::first_call() {
    if (calls_here == 1) rows_here.remove_closed();
    rows_here.all.reserve(rows_here.all.size() + 1);
    const std::lock_guard lock(mutex_);
    return rows_here.all.emplace_back(shared_from_this(), choose_row(), turn_++);
}

/// One that another thread has given back, or a new one, or the one with the fewest threads.
std::size_t pool_state::choose_row() {
    const auto least = std::ranges::min_element(rows_);
    if (rows_.size() < limits_.max_channels && (least == rows_.end() || *least > 0)) {
        rows_.push_back(1);
        return rows_.size() - 1;
    }
    ++*least;
    return static_cast<std::size_t>(least - rows_.begin());
}

void pool_state::list_hosts(pool_row& row) {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<pool_seat>> seats;
    seats.reserve(hosts_.count());
    for (const auto& each : hosts_.all())
        if (each->used) seats.push_back(seat_of(each, row.number));
    row.choice.list(std::move(seats));
    row.version = version_.load(std::memory_order_relaxed);
}

/// A call from before the host has come back says nothing of it. One that is refused for too many calls says that the
/// host is there, not that it works.
void pool_state::heard(pool_host& from, status ended, nanoseconds began) {
    const bool failed = is_servers_fault(ended);
    if (!failed && from.failing.load(std::memory_order_relaxed) == 0) return;
    if (limits_.eject_after == 0 || ended == status::overloaded) return;
    if (!failed) return from.failing.store(0, std::memory_order_relaxed);
    {
        const std::lock_guard lock(mutex_);
        if (began < from.answered || ++from.failing < limits_.eject_after) return;
        from.failing = 0;
        if (!hosts_.eject(from, now())) return;
        limited_log(from.at.host)
            .warn("{} calls in a row have failed at {}: the pool leaves it out for a while", limits_.eject_after,
                  from.at.text());
        ++counted_.ejected;
        failed_at_ = now();
    }
    wake_keeper();
}

status pool_state::leave() noexcept {
    if (inherited()) return status::invalid_state;
    const pool_row* const mine = rows_here.find(this);
    if (mine == nullptr) return status::ok;
    const auto keeps_this = shared_from_this();
    give_back(mine->number);
    rows_here.remove(this);
    return status::ok;
}

/// Nobody needs what its seats share, and nobody would notice that their own channels are lost.
void pool_state::give_back(std::size_t row) noexcept {
    std::size_t here = 0;
    {
        const std::lock_guard lock(mutex_);
        --rows_[row];
        here = row % seats_for_each_host();
    }
    // Without memory, they stay.
    (void)guarded([&]() -> result<void> {
        drop_lost([&](const pool_seat& each) { return each.row == here; });
        std::vector<channel_ptr> shared;  // closed after the lock
        const std::lock_guard lock(mutex_);
        for (const auto& each : seats_) {
            if (each->row != here || !each->wants) continue;
            shared.push_back(each->channel());
            empty(*each);
            each->wants = false;
        }
        return {};
    });
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
    for (const auto& each : seats_) (void)each->exchange(nullptr);
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
        std::ranges::count_if(seats_, [](const auto& each) { return each->channel() != nullptr && !each->wants; }));
    out.hosts = static_cast<std::uint32_t>(hosts_.count());
    out.hosts_out = static_cast<std::uint32_t>(hosts_.count_out());
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
