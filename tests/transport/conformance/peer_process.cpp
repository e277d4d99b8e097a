// SPDX-License-Identifier: Apache-2.0
#include "peer_process.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace accel::tests {

namespace {

/// Another build's may stand in: `./run test interop`.
std::string program_of_suite() {
    const char* other = std::getenv("ACCEL_TEST_PEER");
    return other != nullptr ? other : ACCEL_TEST_PEER;
}

}  // namespace

peer_process::peer_process(const std::vector<std::string>& arguments) : peer_process(program_of_suite(), arguments) {}

peer_process::peer_process(std::string program, const std::vector<std::string>& arguments, int error_fd) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
        throw std::runtime_error("socketpair failed");
    std::vector<char*> argv;
    argv.push_back(program.data());
    std::vector<std::string> copies = arguments;
    for (std::string& one : copies) argv.push_back(one.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (error_fd >= 0) posix_spawn_file_actions_adddup2(&actions, error_fd, STDERR_FILENO);
    const int failure = posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    socket_ = ends[0];
    if (failure != 0) throw std::runtime_error("cannot start " + program);
}

peer_process::~peer_process() {
    kill();
    close(socket_);
}

std::string peer_process::line(nanoseconds bound) {
    const auto deadline = std::chrono::steady_clock::now() + bound;
    for (;;) {
        if (const auto end = buffered_.find('\n'); end != std::string::npos) {
            std::string text = buffered_.substr(0, end);
            buffered_.erase(0, end + 1);
            return text;
        }
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        pollfd readable{.fd = socket_, .events = POLLIN, .revents = 0};
        if (left.count() <= 0 || ::poll(&readable, 1, static_cast<int>(left.count())) == 0)
            throw std::runtime_error("the peer process wrote nothing within the bound");
        std::array<char, 256> part;
        const ssize_t count = read(socket_, part.data(), part.size());
        if (count <= 0) throw std::runtime_error("the peer process ended early");
        buffered_.append(part.data(), static_cast<std::size_t>(count));
    }
}

void peer_process::tell(const std::string& text) {
    const std::string with_end = text + "\n";
    if (send(socket_, with_end.data(), with_end.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(with_end.size()))
        throw std::runtime_error("the peer process does not listen");
}

void peer_process::signal(int number) const {
    if (pid_ > 0) (void)::kill(pid_, number);
}

void peer_process::reap(int* status) {
    (void)waitpid(pid_, status, 0);
    pid_ = -1;
}

void peer_process::kill() {
    if (pid_ <= 0) return;
    signal(SIGKILL);
    reap(nullptr);
}

int peer_process::join(nanoseconds bound) {
    int status = 0;
    const bool ended = eventually(
        bound, [&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, 5ms);
    if (!ended) throw std::runtime_error("the peer process did not end within the bound");
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

server_process::server_process(const std::string& listen_uri, const std::string& mode, nanoseconds peer_timeout)
    : peer_process({"serve", listen_uri, mode,
                    std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(peer_timeout).count())}) {
    uri_ = line();
}

unsigned long long server_process::requests() {
    tell("count");
    return std::stoull(line());
}

}  // namespace accel::tests
