// SPDX-License-Identifier: Apache-2.0
#include "nginx.hpp"

#include "bench/transport/loopback_socket.hpp"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace accel::bench {
namespace {

constexpr std::chrono::seconds start_patience{10};

[[nodiscard]] bool answers_at(const std::string& port) {
    const auto until = std::chrono::steady_clock::now() + start_patience;
    while (std::chrono::steady_clock::now() < until) {
        if (connect_on_loopback(port)) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
    }
    return false;
}

std::filesystem::path new_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "accel_bench-XXXXXX").string();
    return ::mkdtemp(pattern.data()) == nullptr ? std::filesystem::path{} : std::filesystem::path{pattern};
}

/// One process, which ends with this program.
std::string whole_settings(const std::string& folder, const std::string& own) {
    return fmt::format(
        "{1}daemon off;\nmaster_process off;\nworker_processes 1;\npid {0}/nginx.pid;\nerror_log {0}/error.log;\n",
        folder, own);
}

}  // namespace

result<nginx> nginx::start(const std::string& program, const settings_of& settings) {
    const std::filesystem::path folder = new_folder();
    const std::filesystem::path file = folder / "nginx.conf";
    std::string port = free_port();
    std::ofstream(file) << whole_settings(folder.string(), settings(folder.string(), port));
    auto made = report::child_process::start(
        {program, "-p", folder.string(), "-c", file.string(), "-e", (folder / "error.log").string()});
    if (!made) return made.error();
    nginx out{std::move(*made), std::move(port), folder};
    if (!answers_at(out.port_)) return error{status::peer_lost, 0, "nginx did not start"};
    return out;
}

nginx::~nginx() {
    if (folder_.empty()) return;
    process_.stop(std::chrono::seconds{3});
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

}  // namespace accel::bench
