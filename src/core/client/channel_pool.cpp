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
                       nanoseconds close_timeout, const pool_options& limits)
    : context_(std::move(context)),
      options_(options),
      close_timeout_(close_timeout),
      limits_(limits),
      hosts_(std::move(hosts)) {}

/// This thread's channel, and if that is lost, another in its place.
result<std::shared_ptr<shared_state>> pool_state::channel_here() {
    if (inherited()) return made_before_fork();
    if (closing_.load()) return pool_closed();
    std::shared_ptr<pool_seat> mine = seats_here.find(this);
    if (mine == nullptr) mine = first_call();
    auto held = mine->channel();
    if (held != nullptr && held->takes_calls()) [[likely]]
        return held;
    return renew(*mine);
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

/// Connects, unless another thread of this seat has done so. The old channel lives on as long as calls and responses
/// there.
result<std::shared_ptr<shared_state>> pool_state::renew(pool_seat& seat) {
    std::shared_ptr<shared_state> old = seat.channel();  // closed after the locks
    const std::lock_guard connecting(seat.connecting);
    old = seat.channel();
    if (old != nullptr && old->takes_calls()) return old;
    if (old != nullptr) {
        const std::lock_guard lock(mutex_);
        hosts_.lost(seat.host, seat.made, now());
    }
    auto made = connect();
    if (!made) return made.error();
    const std::lock_guard lock(mutex_);
    if (closing_.load()) return pool_closed();
    if (old != nullptr) ++counted_.lost;
    seat.displaced = made->displaced;
    seat.host = made->host;
    seat.made = now();
    old = seat.exchange(made->made);
    return std::move(made->made);
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
    auto shared = shared_state::make(std::move(*core));
    if (!shared) return shared.error();
    return connected{order[tried], std::move(*shared), displaced || tried > 0};
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
result<shared_response> pool_state::call(std::span<const std::byte> request, const submit_options& options) {
    submit_options rest = options;
    nanoseconds deadline = never;
    for (std::size_t tries = 0;; ++tries) {
        auto with = channel_here();
        if (!with) return with.error();
        const bool own = options.timeout > nanoseconds{0};
        if (tries == 0) deadline = deadline_after(own ? options.timeout : (*with)->options().call_timeout);
        if (tries > 0 && deadline != never) rest.timeout = std::max(deadline - now(), nanoseconds{1});
        shared_operation what{request, rest};
        auto answer = shared_state::call(*with, what);
        if (answer) return answer;
        const bool again = may_go_elsewhere(answer.error(), what.sent);
        if (!again || tries == hosts_.count() || now() >= deadline) return answer;
        (*with)->leave();
    }
}

result<shared_call> pool_state::submit(std::span<const std::byte> request, const submit_options& options) {
    auto with = channel_here();
    if (!with) return with.error();
    return shared_state::submit(std::move(*with), std::make_unique<pending_call>(request, options));
}

result<target> pool_state::resolve(std::string_view name) {
    auto with = channel_here();
    if (!with) return with.error();
    return (*with)->resolve(name);
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
    dropped = seat->exchange(nullptr);
    std::erase(seats_, seat);
}

status pool_state::close(nanoseconds timeout) noexcept {
    if (inherited()) return status::ok;
    const nanoseconds deadline = deadline_after(timeout);
    {
        const std::lock_guard lock(mutex_);
        closing_.store(true);  // from now on no seat gets a channel
    }
    const auto all_idle = [this] {
        const std::lock_guard lock(mutex_);
        return std::ranges::all_of(seats_, [](const auto& each) {
            const auto held = each->channel();
            return held == nullptr || held->idle();
        });
    };
    bool idle = all_idle();
    for (; !idle && now() < deadline; idle = all_idle()) std::this_thread::sleep_for(closing_look);
    const std::lock_guard lock(mutex_);
    for (const auto& each : seats_)
        if (const auto held = each->exchange(nullptr); held != nullptr) held->close();
    seats_.clear();
    return idle ? status::ok : status::timed_out;
}

pool_statistics pool_state::statistics() {
    if (inherited()) return {};
    const std::lock_guard lock(mutex_);
    pool_statistics out = counted_;
    out.channels = static_cast<std::uint32_t>(
        std::ranges::count_if(seats_, [](const auto& each) { return each->channel() != nullptr; }));
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
