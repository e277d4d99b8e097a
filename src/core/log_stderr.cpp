// SPDX-License-Identifier: Apache-2.0
#include "core/log_stderr.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>

#include <poll.h>
#include <spdlog/details/log_msg.h>
#include <spdlog/pattern_formatter.h>
#include <sys/socket.h>
#include <unistd.h>

namespace accel::core {
namespace {

/// By `log_level`.
constexpr std::array spdlog_levels{spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err,
                                   spdlog::level::off};

}  // namespace

struct log_stderr::pattern {
    spdlog::pattern_formatter formatter{"%Y-%m-%d %H:%M:%S.%e [%n] %l: %v", spdlog::pattern_time_type::local, "\n"};
    spdlog::memory_buf_t line;
};

log_stderr::log_stderr() : pattern_(std::make_unique<pattern>()) {}
log_stderr::~log_stderr() = default;

std::string_view log_stderr::format(std::chrono::system_clock::time_point at, log_level level, std::string_view text) {
    const spdlog::details::log_msg message{
        at, spdlog::source_loc{}, "accel", spdlog_levels[static_cast<std::size_t>(level)], {text.data(), text.size()}};
    pattern_->line.clear();
    pattern_->formatter.format(message, pattern_->line);
    return {pattern_->line.data(), pattern_->line.size()};
}

bool write_some(int fd, std::string_view& rest) noexcept {
    constexpr int patience_ms = 50;
    pollfd ready{fd, POLLOUT, 0};
    if (::poll(&ready, 1, patience_ms) <= 0) return false;
    // A pipe that is ready takes PIPE_BUF bytes without blocking. A socket has a flag for it.
    const std::size_t length = std::min<std::size_t>(rest.size(), PIPE_BUF);
    ssize_t written = ::send(fd, rest.data(), length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0 && errno == ENOTSOCK) written = ::write(fd, rest.data(), length);
    if (written < 0) return errno != EAGAIN && errno != EINTR;
    rest.remove_prefix(static_cast<std::size_t>(written));
    return rest.empty();
}

}  // namespace accel::core
