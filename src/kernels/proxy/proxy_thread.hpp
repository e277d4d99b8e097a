// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <memory>

#include <sys/types.h>

namespace accel::gpu {

/// When a thread that has nothing to do sleeps.
struct proxy_pace {
    core::nanoseconds spin = std::chrono::milliseconds{1};  ///< without anything to do, before the first nap
    /// A nap takes a 64th of the silence before it, within these bounds. So much later may an answer leave.
    core::nanoseconds nap = std::chrono::microseconds{25};
    core::nanoseconds longest_nap = std::chrono::milliseconds{1};
};

/// The rings of one service or channel, as a proxy's thread serves them. By one thread at a time.
class served_rings {
  public:
    virtual ~served_rings() = default;
    /// One round, which does a bounded amount of work. False: there was nothing to do.
    virtual bool progress() noexcept = 0;
    /// Before the thread sleeps. False: there was something to do, and the thread does not sleep.
    [[nodiscard]] virtual bool fall_asleep() noexcept = 0;
    /// Two descriptors that wake the thread; below 0: none. They stay the same.
    [[nodiscard]] virtual int news_fd() const noexcept = 0;
    [[nodiscard]] virtual int event_fd() const noexcept = 0;
    /// After the sleep: which of the two was readable.
    virtual void wake_up(bool news, bool events) noexcept = 0;
};

/// One thread that serves the rings of any number of services, round by round. It spins while one of them has something
/// to do and for a while after; then it naps. Rings come and go while it serves others. Thread-safe.
class proxy_thread {
  public:
    [[nodiscard]] static result<std::unique_ptr<proxy_thread>> start(const proxy_pace& pace = {});
    /// Waits for the round that is under way, `max_round` at most: then its rings have to stay where they are, for
    /// the thread goes on when the driver lets it.
    ~proxy_thread();
    proxy_thread(const proxy_thread&) = delete;
    proxy_thread& operator=(const proxy_thread&) = delete;

    /// Serves `rings`, which nobody else does, from its next round on. They stay where they are until `remove`.
    void add(served_rings& rings);
    /// When it returns true, the thread does not touch `rings` any more. Waits for its round that is under way. False:
    /// that did not end within `bound`; the thread may touch them until its end, so call again.
    [[nodiscard]] bool remove(const served_rings& rings, core::nanoseconds bound = max_round) noexcept;
    /// How many it serves.
    [[nodiscard]] std::size_t size() const noexcept;
    /// The operating system's number of the thread.
    [[nodiscard]] pid_t id() const noexcept;

    /// A round takes microseconds. One that takes so long is stuck in a device's driver.
    static constexpr core::nanoseconds max_round = std::chrono::seconds{5};

  private:
    class loop;
    explicit proxy_thread(std::shared_ptr<loop> made) noexcept : loop_(std::move(made)) {}
    std::shared_ptr<loop> loop_;
};

}  // namespace accel::gpu
