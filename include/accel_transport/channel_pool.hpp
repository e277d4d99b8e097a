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
    /// How long a failed host is skipped, unless all others fail too.
    std::chrono::nanoseconds host_pause = std::chrono::seconds{1};
};

/// Counters of a pool since it was opened.
struct pool_statistics {
    std::uint32_t channels = 0;   ///< now
    std::uint32_t hosts_out = 0;  ///< hosts that are skipped now
    std::uint64_t made = 0;       ///< connections made
    std::uint64_t lost = 0;       ///< channels replaced because their server was lost or stopped
};

/// Channels to one server, or to several equivalent servers, for any number of threads. Each thread has its own
/// channel, made on the thread's first call. When there are `max_channels`, further threads share the channels that
/// have the fewest threads. Any thread may use the pool; only one may move it.
/// A thread keeps its channel until it ends, or calls `leave`. A lost channel is replaced, if possible by a channel to
/// another host. New channels go to the hosts in turn. A failed host is skipped for `host_pause`; threads that have
/// switched to another host stay there until they leave.
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
    /// lost: may then block for `connect_timeout`, and longer with `connect_retry`.
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
    /// `timed_out`: there were some left. These calls end with `closed`; the responses stay valid.
    status close(std::chrono::nanoseconds timeout) noexcept;

    [[nodiscard]] pool_statistics statistics() const;

  private:
    explicit channel_pool(std::shared_ptr<core::pool_state> state) noexcept;
    std::shared_ptr<core::pool_state> state_;
};

}  // namespace accel
