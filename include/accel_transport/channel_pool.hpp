// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>
#include <accel_transport/context.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/shared_channel.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/target.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace accel {

namespace core {
class pool_state;
}  // namespace core

/// Which of several servers gets a call.
enum class pool_balance : std::uint8_t {
    round_robin,   ///< URI `round-robin`: each in turn
    least_loaded,  ///< URI `least-loaded`: the one with the fewest calls of this pool in flight
    /// URI `sticky`: the same one for the same `submit_options::balance_key`. If servers come or go, only the keys of
    /// those move. Calls without a key go by turn.
    sticky,
};

/// Options of a pool, in addition to those of its channels.
struct pool_options {
    /// For all hosts together, but at least one for each. 1 or more. Further threads share them.
    std::uint32_t max_channels = 64;
    /// How long the pool leaves a host alone that has refused a connection. Twice as long each time it fails again, up
    /// to 32 times this. 0: calls connect to it.
    std::chrono::nanoseconds host_pause = std::chrono::seconds{1};
    /// How often names of `dns+` URIs are resolved again. Also within a second after a server has failed, and at once
    /// for a call that has no other server. More than 0.
    std::chrono::nanoseconds dns_refresh = std::chrono::seconds{30};
    /// This number of calls in a row to one host that end with `peer_lost`, `device_lost` or `timed_out` ejects the
    /// host: it is left out as a failed host is. Not if more than half of the hosts would be left out then. 0: never.
    std::uint32_t eject_after = 5;
    pool_balance balance = pool_balance::round_robin;  ///< URI `balance`, which a single `channel` does not have
};

/// Counters of a pool since it was opened.
struct pool_statistics {
    std::uint32_t channels = 0;   ///< now
    std::uint32_t hosts = 0;      ///< to which calls go now; 0 before a name of a `dns+` URI was resolved
    std::uint32_t hosts_out = 0;  ///< of these, those that are left out now
    std::uint64_t made = 0;       ///< connections made
    std::uint64_t lost = 0;       ///< channels given up because their server was lost or stopped
    std::uint64_t moved = 0;      ///< channels given up because a name has other servers
    std::uint64_t ejected = 0;    ///< times that a host was left out because calls failed
};

/// Channels to one server, or to several equivalent servers, for any number of threads. Each thread has its own channel
/// to each server, made by the first call there. When there are `max_channels`, further threads share them. Any thread
/// may use the pool; only one may move it. A thread keeps its channels until it ends, or calls `leave`.
/// `balance` chooses the server of each call. A host to which no channel is left is left out, unless all others fail
/// too: the pool connects to it in the background, and then calls go there again. If a host refuses a further channel,
/// threads share those that there are.
/// With a `dns+` URI, calls go to the servers that the name has now. New ones are connected to first, in the
/// background. Calls under way end where they are. If the name cannot be resolved, the pool keeps its hosts.
class ACCEL_API channel_pool {
  public:
    /// Checks the URI and the options; does not connect yet. `tcp://a:1,b:2?key=value` names two hosts. `reconnect` has
    /// no effect: the pool replaces lost channels. `balance=least-loaded` is `pool_options::balance`. May allocate.
    [[nodiscard]] static result<channel_pool> open(context& ctx, std::string_view uri,
                                                   const channel_options& options = {},
                                                   const pool_options& limits = {});
    channel_pool(channel_pool&&) noexcept;
    channel_pool& operator=(channel_pool&&) noexcept;
    /// As `close(close_timeout)`.
    ~channel_pool();

    /// `shared_channel::call` over this thread's channel to the chosen host. Connects if there is none: may then block
    /// for `connect_timeout`, twice that with `dns+`, and longer with `connect_retry`.
    /// A call that no handler has seen goes to the other hosts in turn, until its deadline: the server is stopping
    /// (`closed`), was lost before the call was sent, or refuses the connection. Calls of threads that share a channel
    /// wait for its slots in order, until their deadlines. The deadline does not bound the time to connect.
    /// `closed`: the pool is closed, or every server is stopping.
    /// Otherwise as `shared_channel::call` and `channel::connect`.
    [[nodiscard]] result<shared_response> call(std::span<const std::byte> request,
                                               const submit_options& options = usual_options);

    /// `shared_channel::submit` over such a channel. Connects as `call` does, but never sends a call again.
    [[nodiscard]] result<shared_call> submit(std::span<const std::byte> request,
                                             const submit_options& options = usual_options);

    /// `channel::resolve` over such a channel. Connects as `call` does, and takes no turn.
    [[nodiscard]] result<target> resolve(std::string_view name);

    /// Gives up this thread's channels, for another thread. For threads that live on without calls.
    status leave() noexcept;

    /// Refuses new calls, waits up to `timeout` for calls under way and unread responses, and closes all channels.
    /// `timed_out`: there were some left. These calls end with `closed`; the responses stay valid. Ends connects, also
    /// those of calls. May take longer where a transport cannot end them, by `connect_timeout` at most.
    status close(std::chrono::nanoseconds timeout) noexcept;

    [[nodiscard]] pool_statistics statistics() const;

  private:
    explicit channel_pool(std::shared_ptr<core::pool_state> state) noexcept;
    std::shared_ptr<core::pool_state> state_;
};

}  // namespace accel
