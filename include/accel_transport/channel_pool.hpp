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

/// Options of a pool, beyond those of its channels.
struct pool_options {
    std::uint32_t max_channels = 64;  ///< and threads with a channel; 1 or more
    /// How long a host that failed is asked only if all others fail too.
    std::chrono::nanoseconds host_pause = std::chrono::seconds{1};
};

/// Counters of a pool since it was made.
struct pool_statistics {
    std::uint32_t channels = 0;   ///< now: of threads, and those that wait for one
    std::uint32_t hosts_out = 0;  ///< hosts that are left out now
    std::uint64_t made = 0;       ///< connections that were made
    std::uint64_t lost = 0;       ///< channels that were replaced, because their server was lost or stopped
    std::uint64_t refused = 0;    ///< threads that got no channel, because there were `max_channels`
};

/// This thread's use of its channel. Owner; move-only; stays on its thread. While one exists, the pool neither
/// replaces nor closes the channel; `close` waits for it.
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

    /// As `response` has it.
    [[nodiscard]] const response& operator*() const noexcept { return content_; }
    [[nodiscard]] const response* operator->() const noexcept { return &content_; }

  private:
    pooled_channel use_;  // destroyed last
    response content_;
};

/// Channels to one server, or to several that do the same, for any number of threads: each thread has one of its own,
/// made on its first call. So only that call locks. Safe to use from any thread; move it by one.
/// A thread keeps its channel until it ends, calls `leave`, or finds its server lost. Hosts take turns. One that failed
/// is left out for `host_pause`; threads that have moved on from it stay where they are until they leave.
class ACCEL_API channel_pool {
  public:
    /// Checks the URI and the options; connects to nothing yet. `tcp://a:1,b:2?key=value` names two hosts. `reconnect`
    /// has no effect: a lost channel is replaced, by one to another host if there is one. May allocate.
    [[nodiscard]] static result<channel_pool> open(context& ctx, std::string_view uri,
                                                   const channel_options& options = {},
                                                   const pool_options& limits = {});
    channel_pool(channel_pool&&) noexcept;
    channel_pool& operator=(channel_pool&&) noexcept;
    /// As `close(close_timeout)`.
    ~channel_pool();

    /// This thread's channel. The first call of a thread, and one that finds the channel lost, connects: it may block
    /// for `connect_timeout`, and longer with `connect_retry`. Others neither block nor lock. `overloaded`: as many
    /// threads as `max_channels` have one, and none was given back; `closed`; else as `channel::connect`.
    /// A lost channel is handed out once more while it has completions or responses that the thread has not released.
    [[nodiscard]] result<pooled_channel> take();

    /// `channel::call` over this thread's channel, after a look whether it is lost. A call that no handler has seen,
    /// because its server stops (`closed`) or was lost before the call was sent, is offered to each other host, within
    /// its deadline.
    [[nodiscard]] result<pooled_response> call(std::span<const std::byte> request,
                                               const submit_options& options = usual_options);

    /// Gives this thread's channel back for another thread. `invalid_state` while a `pooled_channel` or a
    /// `pooled_response` of this thread exists. For threads that live on without calls.
    status leave() noexcept;

    /// Takes no more calls, waits up to `timeout` for threads that use their channels, and closes all that nobody uses.
    /// `timed_out`: some are in use; each closes when its thread is done with it.
    status close(std::chrono::nanoseconds timeout) noexcept;

    [[nodiscard]] pool_statistics statistics() const;

  private:
    explicit channel_pool(std::shared_ptr<core::pool_state> state) noexcept;
    std::shared_ptr<core::pool_state> state_;
};

}  // namespace accel
