// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/port.hpp"
#include "model/queue_pair.hpp"
#include "model/region.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace accel::softnic {

/// Limits the device reports and enforces. Those of a ConnectX-7 where a program could notice.
namespace limits {
inline constexpr std::uint32_t max_rd_atomic = 16;
inline constexpr std::uint32_t max_work_requests = 32768;
inline constexpr std::uint32_t max_cqe = (1u << 22) - 1;
inline constexpr std::uint32_t max_srq_work_requests = 32767;
inline constexpr std::uint32_t max_segments = 30;
inline constexpr std::uint32_t completion_vectors = 2;
inline constexpr std::uint8_t max_mtu_code = 5;
}  // namespace limits

/// One HCA: its ports and everything created on it, by number. Queue pair numbers come from the fabric.
class device {
  public:
    device(int index, const device_plan& plan);

    [[nodiscard]] int index() const { return index_; }
    [[nodiscard]] std::string name() const;
    [[nodiscard]] std::uint64_t guid() const { return device_guid(index_); }
    [[nodiscard]] std::span<port> ports() { return ports_; }
    [[nodiscard]] std::span<const port> ports() const { return ports_; }
    /// Null when there is no such port (numbers start at 1).
    [[nodiscard]] port* find_port(std::uint32_t number);

    region_table regions;

    [[nodiscard]] queue_pair* find_queue_pair(std::uint32_t number) const;
    queue_pair& add_queue_pair(std::unique_ptr<queue_pair> qp);
    void remove_queue_pair(std::uint32_t number);
    [[nodiscard]] std::span<const std::unique_ptr<queue_pair>> queue_pairs() const { return queue_pairs_; }

  private:
    int index_;
    std::vector<port> ports_;
    std::vector<std::unique_ptr<queue_pair>> queue_pairs_;
    std::vector<std::uint16_t> slot_of_;  ///< by queue pair number: position + 1 in queue_pairs_
};

}  // namespace accel::softnic
