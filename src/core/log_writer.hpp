// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/log_ring.hpp"
#include "core/log_stderr.hpp"

#include <accel_transport/log.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include <fmt/core.h>

namespace accel::core {

/// An application's sink. The mutex is held while it is called.
struct log_sink {
    std::recursive_mutex mutex;
    log_function function;
    bool ended = false;
};

/// The log: lines in a ring, and a thread that hands them to the sinks or writes them to standard error. The
/// thread starts with the first line, takes no signal, and is never joined: it may be stuck in a sink or at a
/// pipe that nobody reads. Made on first use and never destroyed, as threads that outlive `main` log too. A
/// child of `fork` gets another one: its parent writes the lines that were in the ring.
class log_writer {
  public:
    /// Null if there is no memory.
    [[nodiscard]] static log_writer* get() noexcept;
    /// Null if there is none yet.
    [[nodiscard]] static log_writer* find() noexcept;

    // Any thread:
    /// False: there was no room, and the line is dropped. `unsaid` lines like this were kept back before it.
    bool write(log_level level, fmt::string_view text, fmt::format_args values, std::uint64_t unsaid) noexcept;
    bool flush(nanoseconds within) noexcept;
    [[nodiscard]] std::shared_ptr<log_sink> add(log_function function);
    void remove(const std::shared_ptr<log_sink>& sink) noexcept;

  private:
    explicit log_writer(const log_writer* parents) noexcept : parents_(parents) {}
    void start() noexcept;
    void wake() noexcept;
    // The log's thread:
    void run() noexcept;
    void take_lines() noexcept;
    void tell_dropped(std::uint64_t until) noexcept;
    void emit(std::chrono::system_clock::time_point at, log_level level, std::string_view text) noexcept;
    [[nodiscard]] bool call_sinks(log_level level, std::string_view text);

    log_ring ring_;
    std::atomic<std::int32_t> changes_{0};  ///< changes with every line; what the thread sleeps on
    std::atomic<bool> started_{false};
    std::atomic<bool> emitting_{false};       ///< the thread is in a sink, or at standard error
    std::atomic<std::uint64_t> reported_{0};  ///< of the lines dropped
    std::mutex sinks_mutex_;
    std::vector<std::shared_ptr<log_sink>> sinks_;
    log_stderr stderr_;
    [[maybe_unused]] const log_writer* parents_;  ///< keeps leak checkers quiet in a child
};

}  // namespace accel::core
