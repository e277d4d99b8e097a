// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/metrics/counter.hpp"

#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

/// The counters of a thread's calls. It alone writes; snapshots read meanwhile.
namespace accel::core {

/// The stages that are counted, of both roles.
enum class counted_stage : std::uint8_t {
    total,     ///< client: submit to completion
    request,   ///< client: submit until the server had the request
    response,  ///< client: reply until the completion
    queue,     ///< server: until its copy to a GPU or its handler began
    server,    ///< server: request complete until reply posted
    copy,      ///< server: as the handler or its stream recorded it, likewise the others
    preprocessing,
    inference,
};
inline constexpr std::size_t counted_stages = 8;

/// Durations by the power of two that they reach: bucket i has 2^i to 2^(i+1) - 1 ns.
class duration_histogram {
  public:
    static constexpr std::size_t bucket_count = 64;
    [[nodiscard]] static std::size_t bucket_of(nanoseconds duration) noexcept {
        return highest_bit(static_cast<std::uint64_t>(duration.count()) | 1U);
    }
    void add(nanoseconds duration) noexcept {
        sum_ns_.add(static_cast<std::uint64_t>(duration.count()));
        buckets_[bucket_of(duration)].add();
    }
    [[nodiscard]] std::uint64_t sum_ns() const noexcept { return sum_ns_.read(); }
    [[nodiscard]] std::uint64_t bucket(std::size_t index) const noexcept { return buckets_[index].read(); }

  private:
    counter sum_ns_;
    std::array<counter, bucket_count> buckets_;
};

/// The calls of one target, at one end. `First`: the first of its `Count` stages.
template <counted_stage First, std::size_t Count>
struct call_series {
    static constexpr std::size_t first_stage = static_cast<std::size_t>(First);
    static constexpr std::size_t stages = Count;

    counter request_bytes;
    counter response_bytes;
    counter parts;  ///< of responses in parts
    /// For the calls that ended well: their number is that of the first stage.
    std::array<duration_histogram, Count> durations;
    std::array<counter, status_count> failures;  ///< by status

    [[nodiscard]] duration_histogram& of(counted_stage which) noexcept {
        return durations[static_cast<std::size_t>(which) - first_stage];
    }
};
using client_series = call_series<counted_stage::total, 3>;
using server_series = call_series<counted_stage::queue, 5>;

}  // namespace accel::core
