// SPDX-License-Identifier: Apache-2.0
#include "report/program.hpp"

#include <accel_transport/config.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <signal.h>

namespace accel::report {
namespace {

sigset_t stop_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    return signals;
}

}  // namespace

std::string version_text() {
    return fmt::format("{}.{}.{}", ACCEL_VERSION_MAJOR, ACCEL_VERSION_MINOR, ACCEL_VERSION_PATCH);
}

bool write_json(const std::string& path, const nlohmann::json& document) {
    if (path == "-") {
        std::cout << document.dump(2) << std::endl;
        return std::cout.good();
    }
    std::ofstream file(path);
    file << document.dump(2) << '\n';
    file.close();
    if (!file) fmt::print(stderr, "cannot write {}: choose a path that this user may write to\n", path);
    return file.good();
}

bool written(std::FILE* stream) {
    const bool good = std::fflush(stream) == 0 && std::ferror(stream) == 0;
    if (!good) fmt::print(stderr, "cannot write the results: {}\n", std::strerror(errno));
    return good;
}

int complain(std::string_view program, std::string_view sentence) {
    fmt::print(stderr, "{}: {}\n", program, sentence);
    return 1;
}

int complain(std::string_view program, const error& failure) {
    return complain(program, failure.message.empty() ? to_string(failure.code) : std::string_view{failure.message});
}

void block_stop_signals() {
    const sigset_t signals = stop_signals();
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void wait_for_stop_signal() {
    const sigset_t signals = stop_signals();
    int which = 0;
    sigwait(&signals, &which);
}

}  // namespace accel::report
