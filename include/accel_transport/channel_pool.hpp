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

/// Options of a pool, in addition to those of its channels.
struct pool_options {
    std::uint32_t max_channels = 64;  ///< 1 or more. Further threads share them
    /// How long a failed host is skipped, unless all others fail too. Twice as long each time it fails again, up to 32
    /// times this.
    std::chrono::nanoseconds host_pause = std::chrono::seconds{1};
    /// How often names of `dns+` URIs are resolved again. Also within a second after a server has failed, and at once
    /// for a call that has no other server. More than 0.
    std::chrono::nanoseconds dns_refresh = std::chrono::seconds{30};
    /// This number of calls in a row over one channel that end with `peer_lost`, `device_lost` or `timed_out` ejects
    /// the host: it is skipped as a failed host is, and its channels move to others. Not if more than half of the
    /// hosts would be skipped then. 0: never.
    std::uint32_t eject_after = 5;
};

/// Counters of a pool since it was opened.
struct pool_statistics {
    std::uint32_t channels = 0;   ///< now
    std::uint32_t hosts = 0;      ///< now; 0 before a name of a `dns+` URI was resolved
    std::uint32_t hosts_out = 0;  ///< hosts that are skipped now
    std::uint64_t made = 0;       ///< connections made
    std::uint64_t lost = 0;       ///< channels replaced because their server was lost or stopped
    std::uint64_t moved = 0;      ///< channels replaced because a name has other servers, or calls failed
    std::uint64_t ejected = 0;    ///< times that a host was skipped because calls failed
};

/// Channels to one server, or to several equivalent servers, for any number of threads. Each thread has its own
/// channel, made on the thread's first call. When there are `max_channels`, further threads share the channels that
/// have the fewest threads. Any thread may use the pool; only one may move it.
/// A thread keeps its channel until it ends, or calls `leave`. A lost channel is replaced, if possible by a channel to
/// another host. A new channel goes to the host with the fewest, in turn where they are equal. A failed host is skipped
/// for `host_pause`; threads that have switched to another host stay there until they leave.
/// With a `dns+` URI, channels move when the name has other servers: the new channel is made first, in the background.
/// Calls under way end on the old one. If the name cannot be resolved, the pool keeps its hosts.
class ACCEL_API channel_pool {
  public:
    /// Checks the URI and the options; does not connect yet. `tcp://a:1,b:2?key=value` names two hosts. `reconnect` has
    /// no effect: the pool replaces a lost channel, if possible by a channel to another host. May allocate.
    [[nodiscard]] static result<channel_pool> open(context& ctx, std::string_view uri,
                                                   const channel_options& options = {},
                                                   const pool_options& limits = {});
    channel_pool(channel_pool&&) noexcept;
    channel_pool& operator=(channel_pool&&) noexcept;
    /// As `close(close_timeout)`.
    ~channel_pool();

    /// `shared_channel::call` over this thread's channel. Connects on the thread's first call, and when the channel is
    /// lost: may then block for `connect_timeout`, twice that with `dns+`, and longer with `connect_retry`.
    /// A call that no handler has seen, because the server is stopping (`closed`) or was lost before the call was sent,
    /// goes to the other hosts in turn, until its deadline. Calls of threads that share a channel wait for its slots in
    /// order, until their deadlines.
    /// `closed`: the pool is closed, or every server is stopping.
    /// Otherwise as `shared_channel::call` and `channel::connect`.
    [[nodiscard]] result<shared_response> call(std::span<const std::byte> request,
                                               const submit_options& options = usual_options);

    /// `shared_channel::submit` over this thread's channel. Connects as `call` does, but never sends a call again.
    [[nodiscard]] result<shared_call> submit(std::span<const std::byte> request,
                                             const submit_options& options = usual_options);

    /// `channel::resolve` over this thread's channel. Connects as `call` does.
    [[nodiscard]] result<target> resolve(std::string_view name);

    /// Gives up this thread's channel, for another thread. For threads that live on without calls.
    status leave() noexcept;

    /// Refuses new calls, waits up to `timeout` for calls under way and unread responses, and closes all channels.
    /// `timed_out`: there were some left. These calls end with `closed`; the responses stay valid. May take longer, by
    /// `connect_timeout` at most, if the pool's thread connects to a server that does not answer.
    status close(std::chrono::nanoseconds timeout) noexcept;

    [[nodiscard]] pool_statistics statistics() const;

  private:
    explicit channel_pool(std::shared_ptr<core::pool_state> state) noexcept;
    std::shared_ptr<core::pool_state> state_;
};

}  // namespace accel
