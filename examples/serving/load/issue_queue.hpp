// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>

namespace accel::examples::serving {

/// A call that somebody else has decided on.
struct issued_call {
    std::uint64_t id = 0;
    std::chrono::nanoseconds due{};
};

/// Calls on their way from a generator of load to the clients, which take them in order. Any thread. Every call that
/// is added is answered once, also where no client is left that could send it.
class issue_queue {
  public:
    /// `answered` is told each call's id, on the thread of a client or of `add`.
    issue_queue(std::size_t clients, std::function<void(std::uint64_t)> answered);
    ~issue_queue();
    issue_queue(const issue_queue&) = delete;
    issue_queue& operator=(const issue_queue&) = delete;

    void add(std::span<const std::uint64_t> ids);
    /// Nothing more will be added.
    void close();

    [[nodiscard]] std::optional<issued_call> take();
    /// Closed, and everything was taken.
    [[nodiscard]] bool is_over() const;
    void answer(std::uint64_t id) const { answered_(id); }
    /// A client takes no more calls. Behind the last one, what is left and what comes is answered at once.
    void leave();
    /// Calls that no client has sent.
    [[nodiscard]] std::uint64_t unsent() const;
    /// Readable while there is something to take, and when it is closed.
    [[nodiscard]] int event_fd() const noexcept { return signal_; }

  private:
    void set_signal() const noexcept;
    void clear_signal() const noexcept;

    const std::function<void(std::uint64_t)> answered_;
    const int signal_;
    mutable std::mutex mutex_;
    std::deque<issued_call> waiting_;
    std::size_t clients_;
    std::uint64_t unsent_ = 0;
    bool closed_ = false;
};

}  // namespace accel::examples::serving
