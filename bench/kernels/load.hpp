// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/accel_transport.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace accel::report {
class child_process;
}

namespace accel::bench {

inline constexpr std::size_t answer_bytes = 4096;

/// What `gpu_bench` measures at once: closed-loop clients, one call in flight each.
struct gpu_case {
    std::string scheme;
    std::size_t payload_bytes = 0;
    unsigned clients = 1;
    std::uint64_t calls = 0;  ///< of each client, after a few to warm up
    bool pinned = true;       ///< the server's slots on the host; else the copies are the driver's affair
};

/// Means in microseconds a call, over all clients, but for the medians.
struct gpu_row {
    std::uint64_t calls = 0;
    std::uint64_t wrong = 0;  ///< answers that are not the request's sum, or failures
    double total_us = 0, p50_us = 0, p99_us = 0, request_us = 0, queue_us = 0, copy_us = 0, inference_us = 0,
           response_us = 0, cpu_us_per_request = 0;
    double calls_per_s = 0;
    std::size_t ram_bytes = 0;  ///< of the server's process, at most
    std::size_t gpu_bytes = 0;  ///< of its sessions' slots
};

/// A server that answers with the sum of the request's words, computed by its GPU.
class gpu_server {
  public:
    /// `local`: in this process, else in one of its own, which runs `serve_until_stopped`.
    [[nodiscard]] static result<gpu_server> start(context& ctx, const gpu_case& what, memory_kind memory);
    gpu_server(gpu_server&&) noexcept;
    gpu_server& operator=(gpu_server&&) noexcept;
    ~gpu_server();
    [[nodiscard]] const std::string& uri() const noexcept { return uri_; }
    struct usage {
        double cpu_us = 0;  ///< of the server's process so far; of both ends where it is this one
        std::size_t ram_bytes = 0;
        std::size_t gpu_bytes = 0;
    };
    [[nodiscard]] result<usage> used() const;

  private:
    gpu_server();
    std::string uri_;
    std::unique_ptr<server> here_;
    std::unique_ptr<report::child_process> there_;
};

/// The other process: prints where it listens, its GPU memory at each SIGUSR1, and ends at SIGTERM.
int serve_until_stopped(const std::string& uri, memory_kind memory, bool pinned);

[[nodiscard]] result<gpu_row> measure(context& ctx, const gpu_case& what, memory_kind memory);

}  // namespace accel::bench
