// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "networks.hpp"

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <sys/types.h>

namespace accel::report {
class child_process;
}

namespace accel::bench {

/// One way to serve a network: over which scheme, and how its kernels come to run.
struct serving {
    std::string scheme;
    std::string way;  ///< launched or replayed by a handler; gpu_resident, or with host_slots
    friend bool operator==(const serving&, const serving&) = default;
    friend bool operator<(const serving& a, const serving& b) {
        return std::tie(a.scheme, a.way) < std::tie(b.scheme, b.way);
    }
};

/// Who serves, as programs are told: handlers in all ways, or a graph that takes requests itself, with slots
/// on the GPU or on the host.
inline constexpr const char* by_handlers = "handlers";
inline constexpr const char* gpu_resident = "gpu_resident";
inline constexpr const char* host_slots = "host_slots";

/// What a GPU-resident service has counted, in microseconds.
struct graph_times {
    std::size_t nodes = 0;
    std::uint64_t iterations = 0;
    double waiting = 0, copy_in = 0, work = 0, copy_out = 0, answer = 0, mean = 0, min = 0;
};

/// The server of a network in a process of its own, which runs `serve_network`.
class inference_server {
  public:
    [[nodiscard]] static result<inference_server> start(const network_choice& choice, const std::string& who);
    inference_server(inference_server&&) noexcept;
    inference_server& operator=(inference_server&&) noexcept;
    ~inference_server();

    [[nodiscard]] std::size_t input_bytes() const noexcept { return input_bytes_; }
    [[nodiscard]] std::size_t output_bytes() const noexcept { return output_bytes_; }
    [[nodiscard]] const std::map<serving, std::string>& uris() const noexcept { return uris_; }
    /// Processor time of the process so far.
    [[nodiscard]] result<std::chrono::nanoseconds> cpu_time() const;
    /// Ends it; what a GPU-resident service has counted.
    [[nodiscard]] std::optional<graph_times> stop();

  private:
    inference_server();
    [[nodiscard]] result<void> read_start();

    std::size_t input_bytes_ = 0;
    std::size_t output_bytes_ = 0;
    std::map<serving, std::string> uris_;
    std::unique_ptr<report::child_process> process_;
};

/// The other process: says what it serves, and ends at SIGTERM. Handlers serve over rdma:// and gdr://, the
/// others over gpu://. What it cannot serve it says on standard error.
int serve_network(const network_choice& choice, const std::string& who);

}  // namespace accel::bench
