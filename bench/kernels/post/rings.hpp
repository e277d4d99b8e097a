// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/completion_queue.hpp>
#include <accel_transport/detail/mlx5/send_queue.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace accel::bench {

/// Who posts together.
enum class poster : std::uint8_t { thread, warp, block };
/// Where the ring and the doorbell record lie. The doorbell is on the host always, as an adapter's is behind
/// the bus.
enum class place : std::uint8_t { host, gpu };
/// What stands between request, doorbell record and doorbell.
enum class ordering : std::uint8_t {
    two_fences,         ///< what the library does for shared queues; of GPU scope where `place::gpu`
    ring_early,         ///< one, before the doorbell, and the record behind it: what exclusive services do
    two_sequential,     ///< `__threadfence_system` in their place
    deferred_doorbell,  ///< one: a doorbell rings with the next request
    one_fence_unsound,  ///< one, before the doorbell: an adapter at work may see the record before the
                        ///< request
};

/// One measurement on rings that no adapter reads.
struct post_case {
    poster who = poster::thread;
    place where = place::host;
    ordering how = ordering::two_fences;
    std::uint32_t batch = 1;   ///< requests a doorbell
    std::uint32_t queues = 1;  ///< posters at once, each with a queue of its own
    std::uint32_t payload_bytes = 64;
    bool carried = false;  ///< the payload is in the request
};

/// WQEBBs of each ring.
inline constexpr std::uint32_t ring_wqebbs = 1024;

struct post_row {
    double ns_per_request = 0;  ///< of one poster; median over the repeats
    double requests_per_s = 0;  ///< of all
    bool as_on_cpu = false;     ///< ring, record and doorbell hold what the CPU makes for the same requests
};

/// A GPU, and memory for rings.
class post_rings {
  public:
    /// `unsupported`: there is no GPU, or not `gpu`.
    [[nodiscard]] static result<std::unique_ptr<post_rings>> open(int gpu);
    virtual ~post_rings() = default;
    [[nodiscard]] virtual std::string name() const = 0;
    [[nodiscard]] virtual std::uint32_t processors() const noexcept = 0;
    /// Posts for about so long, `repeats` times.
    [[nodiscard]] virtual result<post_row> measure(const post_case& what, double milliseconds, unsigned repeats) = 0;
};

/// The same on the CPU, by this thread.
[[nodiscard]] post_row measure_on_cpu(const post_case& what, double milliseconds, unsigned repeats);

/// Queues of a stock queue pair, which a GPU is to use.
struct stock_queues {
    mlx5::send_queue_ref sends;
    mlx5::completion_queue_ref completions;
    std::uint64_t local = 0;
    std::uint64_t remote = 0;
    std::uint32_t local_key = 0;
    std::uint32_t remote_key = 0;
};
struct round_row {
    double post_ns = 0;
    double round_ns = 0;
    std::uint64_t rounds = 0;
};
/// One GPU thread posts a WRITE, waits for its completion and goes on, `rounds` times. The device of a
/// current `post_rings`; the pages of the queues are registered with CUDA meanwhile.
[[nodiscard]] result<round_row> measure_rounds(const stock_queues& queues, std::uint32_t payload_bytes,
                                               std::uint64_t rounds);

}  // namespace accel::bench
