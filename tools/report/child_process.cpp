// SPDX-License-Identifier: Apache-2.0
#include "report/child_process.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::report {
namespace {

using clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

int milliseconds_until(clock::time_point deadline) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - clock::now()).count();
    return left > 0 ? static_cast<int>(left) : 0;
}

/// Between fork and exec: only what is safe there.
[[noreturn]] void become(char* const* arguments, int output, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(output, STDOUT_FILENO);
    execv(arguments[0], arguments);
    _exit(127);
}

int status_of(int wait_status) {
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace

result<child_process> child_process::start(const std::vector<std::string>& arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error{status::system_error, errno,
                     fmt::format("cannot make a pipe for a child process: {}", std::strerror(errno))};
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    const pid_t parent = getpid();
    const pid_t id = fork();
    if (id == 0) become(pointers.data(), ends[1], parent);
    const int why = errno;
    close(ends[1]);
    if (id < 0) {
        close(ends[0]);
        return error{status::system_error, why,
                     fmt::format("cannot start {}: {}", arguments.front(), std::strerror(why))};
    }
    return child_process{id, ends[0]};
}

child_process::child_process(child_process&& other) noexcept
    : id_(std::exchange(other.id_, -1)),
      output_(std::exchange(other.output_, -1)),
      exit_status_(other.exit_status_),
      unread_(std::move(other.unread_)) {}

child_process& child_process::operator=(child_process&& other) noexcept {
    if (this != &other) {
        reset();
        id_ = std::exchange(other.id_, -1);
        output_ = std::exchange(other.output_, -1);
        exit_status_ = other.exit_status_;
        unread_ = std::move(other.unread_);
    }
    return *this;
}

child_process::~child_process() {
    reset();
}

void child_process::reset() noexcept {
    if (id_ > 0) {
        kill(id_, SIGKILL);
        waitpid(id_, nullptr, 0);
        id_ = -1;
    }
    if (output_ >= 0) close(std::exchange(output_, -1));
}

std::optional<std::string> child_process::read_line(milliseconds timeout) {
    const auto deadline = clock::now() + timeout;
    while (true) {
        const std::size_t end = unread_.find('\n');
        if (end != std::string::npos) {
            std::string line = unread_.substr(0, end);
            unread_.erase(0, end + 1);
            return line;
        }
        pollfd ready{output_, POLLIN, 0};
        const int count = ::poll(&ready, 1, milliseconds_until(deadline));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return std::nullopt;
        char bytes[4096];
        const ssize_t length = read(output_, bytes, sizeof bytes);
        if (length < 0 && errno == EINTR) continue;
        if (length <= 0) return std::nullopt;
        unread_.append(bytes, static_cast<std::size_t>(length));
    }
}

std::optional<std::string> child_process::wait_for(std::string_view prefix, milliseconds timeout) {
    const auto deadline = clock::now() + timeout;
    while (const auto line = read_line(milliseconds{milliseconds_until(deadline)}))
        if (line->starts_with(prefix)) return line->substr(prefix.size());
    return std::nullopt;
}

std::optional<int> child_process::wait(milliseconds timeout) {
    const auto deadline = clock::now() + timeout;
    while (id_ > 0) {
        int wait_status = 0;
        if (waitpid(id_, &wait_status, WNOHANG) == id_) {
            id_ = -1;
            exit_status_ = status_of(wait_status);
        } else if (clock::now() >= deadline) {
            return std::nullopt;
        } else {
            ::poll(nullptr, 0, 5);
        }
    }
    return exit_status_;
}

int child_process::stop(milliseconds patience) {
    if (id_ > 0) kill(id_, SIGTERM);
    if (const auto ended = wait(patience)) return *ended;
    reset();
    return 128 + SIGKILL;
}

std::string program_path(std::string_view name) {
    std::error_code failure;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failure);
    return name.empty() ? self.string() : (self.parent_path() / name).string();
}

}  // namespace accel::report
