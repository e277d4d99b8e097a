// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/log.hpp>

#include <atomic>
#include <string_view>

#include <fmt/core.h>

namespace accel::core {

/// Logs lines, which another thread writes (core/log_writer.hpp): no call blocks, and none fails. A line is
/// formatted only if its level is enabled, and cut at `log_line::max_bytes`. Any thread, at any time: before
/// `main`, after it, and in a child of `fork`. Control path only.
class logger {
  public:
    template <class... Values>
    void debug(fmt::format_string<Values...> text, Values&&... values) const noexcept {
        if (enabled(log_level::debug)) write(log_level::debug, text, fmt::make_format_args(values...));
    }
    template <class... Values>
    void info(fmt::format_string<Values...> text, Values&&... values) const noexcept {
        if (enabled(log_level::info)) write(log_level::info, text, fmt::make_format_args(values...));
    }
    template <class... Values>
    void warn(fmt::format_string<Values...> text, Values&&... values) const noexcept {
        if (enabled(log_level::warning)) write(log_level::warning, text, fmt::make_format_args(values...));
    }
    template <class... Values>
    void error(fmt::format_string<Values...> text, Values&&... values) const noexcept {
        if (enabled(log_level::error)) write(log_level::error, text, fmt::make_format_args(values...));
    }
    template <class... Values>
    void log(log_level level, fmt::format_string<Values...> text, Values&&... values) const noexcept {
        if (enabled(level)) write(level, text, fmt::make_format_args(values...));
    }

    static void set_level(log_level lowest) noexcept { threshold.store(lowest, std::memory_order_relaxed); }
    [[nodiscard]] static bool enabled(log_level level) noexcept {
        return level >= threshold.load(std::memory_order_relaxed);
    }

  private:
    friend constexpr logger log() noexcept;
    friend constexpr logger limited_log(std::string_view) noexcept;
    constexpr logger(bool limited, std::string_view peer) noexcept : limited_(limited), peer_(peer) {}
    void write(log_level level, fmt::string_view text, fmt::format_args values) const noexcept;

    static inline constinit std::atomic<log_level> threshold{log_level::warning};
    bool limited_;
    std::string_view peer_;
};

/// The library's logger.
[[nodiscard]] constexpr logger log() noexcept {
    return {false, {}};
}
/// The same for lines that a peer can cause: ten a second of the same text for one `peer` (core/log_limiter.hpp).
/// `peer` is its name without what it can change at will, such as a port. Use the result in the same expression.
[[nodiscard]] constexpr logger limited_log(std::string_view peer = {}) noexcept {
    return {true, peer};
}

}  // namespace accel::core
