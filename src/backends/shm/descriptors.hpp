// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/net/unique_fd.hpp"

#include <array>
#include <cstddef>
#include <span>

#include <sys/types.h>

namespace accel::shm {

/// The descriptors that a server passes to a client: the requests' segment, the responses', its poller's page; and
/// where both have them, the memory of the requests' and the responses' slots on a GPU.
using passed_descriptors = std::array<core::unique_fd, 5>;
enum passed : std::size_t { requests_segment, responses_segment, sleep_page, gpu_requests, gpu_responses };
inline constexpr std::size_t always_passed = 3;

/// Sends bytes and descriptors in one piece over a Unix socket. False: the socket does not take them.
[[nodiscard]] bool send_descriptors(int socket, std::span<const std::byte> bytes, std::span<const int> passed) noexcept;

/// As recv, and takes the descriptors that come with the bytes. Any beyond `into` are closed. EMFILE: this process has
/// no room for all of them.
[[nodiscard]] ssize_t receive_descriptors(int socket, std::span<std::byte> bytes,
                                          std::span<core::unique_fd> into) noexcept;

}  // namespace accel::shm
