// SPDX-License-Identifier: Apache-2.0
#include "restarted_process.hpp"

#include "gateway_rig.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <utility>

#include <unistd.h>

namespace accel::tests {

std::size_t resident_bytes_of(pid_t process) {
    std::size_t all = 0;
    std::size_t resident = 0;
    std::ifstream("/proc/" + std::to_string(process) + "/statm") >> all >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

restarted_process::restarted_process(std::function<std::vector<std::string>(const std::string&)> arguments_at,
                                     std::string ready, const std::string& first_uri)
    : arguments_at_(std::move(arguments_at)), ready_(std::move(ready)) {
    if (!start_at(first_uri)) throw std::runtime_error(arguments_at_(first_uri).front() + " has not started");
}

bool restarted_process::start_at(const std::string& uri) {
    auto made = report::child_process::start(arguments_at_(uri));
    if (!made) return false;
    process_.emplace(std::move(made).value());
    const auto endpoint =
        process_->wait_for(ready_, std::chrono::duration_cast<std::chrono::milliseconds>(patience(10s)));
    if (endpoint) uri_ = client_uri(endpoint->substr(0, endpoint->find_first_of("; ")));
    return endpoint.has_value();
}

bool restarted_process::start() {
    // Its place may be taken for a moment yet.
    return eventually(patience(20s), [this] { return start_at(uri_); });
}

void restarted_process::kill() {
    growth_ = growth_bytes();
    noted_ = 0;
    process_.reset();
}

void restarted_process::note_memory() {
    if (noted_ == 0 && process_) noted_ = resident_bytes_of(process_->id());
}

std::size_t restarted_process::growth_bytes() {
    if (noted_ == 0) return growth_;
    const std::size_t now = resident_bytes_of(process_->id());
    return std::max(growth_, now > noted_ ? now - noted_ : 0);
}

}  // namespace accel::tests
