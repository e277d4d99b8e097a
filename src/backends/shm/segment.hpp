// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/net/unique_fd.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace accel::shm {

/// The rights of a process that did not make the segment.
enum class peer_access : std::uint8_t { read, write };

/// Memory that two processes share: a memfd that cannot change its size, and this process's mapping of it. Where the
/// peer may only read, the OS refuses it a mapping to write. Pages are made on first use.
class segment {
  public:
    segment() noexcept = default;
    segment(segment&& other) noexcept
        : fd_(std::move(other.fd_)), base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
    segment& operator=(segment&& other) noexcept;
    ~segment() { unmap(); }

    /// Makes one, all zeros.
    [[nodiscard]] static result<segment> create(std::size_t bytes, peer_access peer);
    /// Maps one that the peer has made, after checks: a file that could shrink would end this process with SIGBUS.
    [[nodiscard]] static result<segment> map(core::unique_fd made, std::size_t bytes, peer_access own);

    [[nodiscard]] std::byte* base() const noexcept { return base_; }
    /// The descriptor that the peer maps, if this process has made the segment. The mapping does not need it.
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] core::unique_fd release_fd() noexcept { return std::move(fd_); }

  private:
    void unmap() noexcept;

    core::unique_fd fd_;
    std::byte* base_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace accel::shm
