// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rings.hpp"

#include <accel_transport/status.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace accel::bench {

/// Two queue pairs of this process on one RDMA device, connected with each other, and memory to write from
/// and to. Each is for one way of posting.
class verbs_post {
  public:
    /// `device`: NAME or NAME:PORT; empty: the best. `unsupported`: there is none, or not such.
    [[nodiscard]] static result<std::unique_ptr<verbs_post>> open(const std::string& device);
    virtual ~verbs_post() = default;
    [[nodiscard]] virtual std::string describe() const = 0;
    [[nodiscard]] virtual bool is_emulated() const noexcept = 0;

    /// Nanoseconds a request of `ibv_post_send`, `batch` a call; completions are taken between the calls.
    [[nodiscard]] virtual result<double> stock_post_ns(std::uint32_t batch, std::uint32_t payload_bytes,
                                                       std::uint64_t requests) = 0;
    /// The same with the library's functions on the device's own queue.
    [[nodiscard]] virtual result<double> own_post_ns(std::uint32_t batch, std::uint32_t payload_bytes,
                                                     std::uint64_t requests) = 0;
    /// For `measure_rounds`; only once. `unsupported`: not an mlx5 device.
    [[nodiscard]] virtual result<stock_queues> queues() = 0;
    /// Clears what the peer is to be written to.
    virtual void clear() = 0;
    /// Whether it holds the first `payload_bytes` of what was written, at once or soon.
    [[nodiscard]] virtual bool has_arrived(std::uint32_t payload_bytes) const = 0;
};

/// Longest payload.
inline constexpr std::uint32_t max_posted_bytes = 4096;
/// Most requests a batch.
inline constexpr std::uint32_t max_posted = 128;

}  // namespace accel::bench
