// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/channel.hpp>
#include <accel_transport/config.hpp>
#include <accel_transport/context.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace accel {

namespace core {
class pool_state;
struct pool_seat;
}  // namespace core

/// Options of a pool, in addition to those of its channels.
struct pool_options {
    std::uint32_t max_channels = 64;  ///< channels, and therefore threads that have one; 1 or more
    /// How long a failed host is skipped, unless all others fail too.
    std::chrono::nanoseconds host_pause = std::chrono::seconds{1};
};

/// Counters of a pool since it was opened.
struct pool_statistics {
    std::uint32_t channels = 0;   ///< now: channels of threads, and channels that wait for a thread
    std::uint32_t hosts_out = 0;  ///< hosts that are skipped now
    std::uint64_t made = 0;       ///< connections made
    std::uint64_t lost = 0;       ///< channels replaced because their server was lost or stopped
    std::uint64_t refused = 0;    ///< threads that got no channel because the pool already had `max_channels`
};

/// The calling thread's use of its channel. Owner; move-only; stays on its thread. While this object exists, the pool
/// neither replaces nor closes the channel, and `channel_pool::close` waits.
class ACCEL_API pooled_channel {
  public:
    pooled_channel(pooled_channel&& other) noexcept;
    pooled_channel& operator=(pooled_channel&& other) noexcept;
    ~pooled_channel();

    [[nodiscard]] channel& operator*() const noexcept;
    [[nodiscard]] channel* operator->() const noexcept;

  private:
    friend class core::pool_state;
    explicit pooled_channel(core::pool_seat* seat) noexcept : seat_(seat) {}
    void reset() noexcept;
    core::pool_seat* seat_;
};

/// The response of `channel_pool::call`. Owns its slot and a use of the channel; move-only; stays on its thread.
class pooled_response {
  public:
    pooled_response(pooled_channel use, response content) noexcept
        : use_(std::move(use)), content_(std::move(content)) {}

    /// The response.
    [[nodiscard]] const response& operator*() const noexcept { return content_; }
    [[nodiscard]] const response* operator->() const noexcept { return &content_; }

  private:
    pooled_channel use_;  // destroyed last
    response content_;
};

/// Channels to one server, or to several equivalent servers, for any number of threads. Each thread has its own
/// channel, made on the thread's first call; only that call locks. Any thread may use the pool; only one may move it.
/// A thread keeps its channel until the thread ends, calls `leave`, or finds its server lost. New channels go to the
/// hosts in turn. A failed host is skipped for `host_pause`; threads that have switched to another host stay there
/// until they leave.
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

    /// The calling thread's channel. Connects on the thread's first call, and when the channel is lost: may then block
    /// for `connect_timeout`, and longer with `connect_retry`. Otherwise neither blocks nor locks. A lost channel is
    /// returned once more while the thread has not taken or released all its completions and responses.
    /// `overloaded`: `max_channels` threads have a channel, and none was given back.
    /// `closed`: the pool is closed.
    /// Otherwise as `channel::connect`.
    [[nodiscard]] result<pooled_channel> take();

    /// `channel::call` over this thread's channel, which is replaced first if it is lost. A call that no handler has
    /// seen, because the server is stopping (`closed`) or was lost before the call was sent, goes to the other hosts in
    /// turn, until its deadline.
    [[nodiscard]] result<pooled_response> call(std::span<const std::byte> request,
                                               const submit_options& options = usual_options);

    /// Gives this thread's channel back, for another thread. For threads that live on without calls.
    /// `invalid_state`: this thread still has a `pooled_channel` or a `pooled_response`.
    status leave() noexcept;

    /// Refuses new calls, waits up to `timeout` for threads that use their channels, and closes all unused channels.
    /// `timed_out`: some channels are in use; each closes when its thread is done with it.
    status close(std::chrono::nanoseconds timeout) noexcept;

    [[nodiscard]] pool_statistics statistics() const;

  private:
    explicit channel_pool(std::shared_ptr<core::pool_state> state) noexcept;
    std::shared_ptr<core::pool_state> state_;
};

}  // namespace accel
