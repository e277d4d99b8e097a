// SPDX-License-Identifier: Apache-2.0
#include "report/program.hpp"

#include <accel_transport/config.hpp>
#include <accel_transport/server.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/signalfd.h>

namespace accel::report {
namespace {

sigset_t awaited_signals(bool hangups) noexcept {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (hangups) sigaddset(&signals, SIGHUP);
    return signals;
}

void block(bool hangups) {
    const sigset_t signals = awaited_signals(hangups);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
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
    block(false);
}

void block_server_signals() {
    block(true);
}

int open_server_signals() noexcept {
    const sigset_t signals = awaited_signals(true);
    return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

void wait_for_stop_signal(const std::function<void()>& on_hangup) {
    const sigset_t signals = awaited_signals(on_hangup != nullptr);
    int which = 0;
    while (sigwait(&signals, &which) == 0 && which == SIGHUP) on_hangup();
}

void answer_hangup(std::string_view program, server& one, std::span<const std::string> uris) {
    const auto has_keys = [](const std::string& uri) { return uri.find("key_file=") != uri.npos; };
    if (std::ranges::none_of(uris, has_keys)) {
        complain(program, "SIGHUP: no URI has keys, so there are no keys to read again");
        return;
    }
    const auto read = one.reload_keys();
    complain(program, read ? "SIGHUP: read the keys of the URIs again"
                           : fmt::format("SIGHUP: {}; the old keys stay in use", read.error().message));
}

}  // namespace accel::report
