// SPDX-License-Identifier: Apache-2.0
#include "comparison.hpp"
#include "loopback_socket.hpp"
#include "report/child_process.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include <fmt/format.h>

namespace accel::bench {
namespace {

constexpr const char* perftest = "ucx_perftest";
/// Its connection for the start, and the start of its server.
constexpr int tries = 50;
constexpr std::chrono::milliseconds pause{100};

/// `-f`: only the final numbers, which begin with how many messages there were and the median in microseconds.
std::vector<std::string> command_of(const std::string& port, const std::vector<std::string>& more) {
    std::vector<std::string> out{"/usr/bin/env", "UCX_TLS=posix,self", "UCX_LOG_LEVEL=fatal", perftest, "-p", port};
    out.insert(out.end(), more.begin(), more.end());
    return out;
}

/// Half of a round trip, by its client; nothing: its server was not there.
std::optional<double> half_of_a_call(const std::string& port, std::size_t size_bytes, std::size_t calls) {
    auto client = report::child_process::start(
        command_of(port, {"127.0.0.1", "-t", "ucp_am_lat", "-s", std::to_string(size_bytes), "-n",
                          std::to_string(calls), "-w", std::to_string(std::max<std::size_t>(10, calls / 4)), "-f"}));
    if (!client) return std::nullopt;
    std::optional<double> seen;
    while (const auto line = client->read_line(std::chrono::seconds{60})) {
        std::istringstream numbers(*line);
        double count = 0;
        double median = 0;
        if (numbers >> count >> median && count > 0) seen = median;
    }
    return seen;
}

/// The server ends with its client.
result<double> measure_ucx(const comparison& what, const effort& how) {
    const std::string port = free_port();
    if (how.cores != nullptr) how.cores->run_as_server();
    auto server = report::child_process::start(command_of(port, {}));
    if (how.cores != nullptr) how.cores->run_as_client();
    if (!server) return server.error();
    const std::size_t calls = what.size_bytes < (std::size_t{1} << 16) ? how.max_calls * 5 : how.max_calls / 4;
    for (int i = 0; i < tries; ++i) {
        if (const auto half = half_of_a_call(port, what.size_bytes, calls)) return 2 * *half;
        std::this_thread::sleep_for(pause);
    }
    return error{status::peer_lost, 0, fmt::format("{} has measured nothing", perftest)};
}

}  // namespace

bool has_ucx_perftest() {
    const char* const path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');)
        if (std::filesystem::exists(std::filesystem::path(folder) / perftest)) return true;
    return false;
}

side ucx_shared_memory() {
    side out;
    out.name = "UCX posix ucp_am_lat, twice";
    out.measure = measure_ucx;
    return out;
}

}  // namespace accel::bench
