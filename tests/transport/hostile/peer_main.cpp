// SPDX-License-Identifier: Apache-2.0
// The other processes of the hostile suite. Usage:
//   hostile_peer serve URI [nofile=N] [memory_mb=N] [clock=SECONDS]
//     Echoes. Writes its URI; then for each line of input a line: "counts" (sessions, lost, requests, slot
//     bytes), "peers" (who has called), "reload" (of keys: the status). Ends on SIGTERM. `clock`: in a time namespace
//     where this machine's monotonic clock is ahead by this; where that is not allowed, it writes "not allowed".
//   hostile_peer starve URI
//     For a falling number of descriptors: connects and calls. Writes a line for each: what became of it.
#include "core/net/socket.hpp"
#include "loopback.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace accel;
using namespace std::chrono_literals;

int fail(const std::string& message) {
    std::cerr << "hostile_peer: " << message << std::endl;
    return 1;
}

void limit(int resource, rlim_t most) {
    const rlimit both{most, most};
    ::setrlimit(resource, &both);
}

rlim_t address_space_in_use() {
    unsigned long long pages = 0;
    if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
        if (std::fscanf(file, "%llu", &pages) != 1) pages = 0;
        std::fclose(file);
    }
    return pages * static_cast<unsigned long long>(::sysconf(_SC_PAGESIZE));
}

/// The names of those who have called.
class visitors {
  public:
    void note(std::string_view name) {
        const std::lock_guard lock(mutex_);
        if (names_.find(name) == names_.end()) names_.emplace(name);
    }
    [[nodiscard]] std::string text() {
        const std::lock_guard lock(mutex_);
        std::string out;
        for (const std::string& each : names_) out += each + ' ';
        return out;
    }

  private:
    std::mutex mutex_;
    std::set<std::string, std::less<>> names_;
};

void answer(server& listening, visitors& seen, const std::string& line) {
    if (line == "peers") std::cout << seen.text() << std::endl;
    if (line == "counts") {
        const server_statistics now = listening.statistics();
        std::cout << now.sessions << ' ' << now.sessions_lost << ' ' << now.requests << ' ' << now.memory_bytes
                  << std::endl;
    }
    if (line == "reload") {
        const auto loaded = listening.reload_keys();
        std::cout << to_string(loaded.code()) << std::endl;
    }
}

/// Goes on as a child in another time namespace, whose end is this process's end. False: that is not allowed.
bool shift_clock(const std::string& seconds) {
    if (::unshare(CLONE_NEWTIME) != 0) return false;
    std::ofstream offsets("/proc/self/timens_offsets");
    if (!(offsets << "monotonic " << seconds << " 0" << std::flush)) return false;
    const pid_t child = ::fork();
    if (child < 0) return false;
    if (child == 0) return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    int status = 0;
    ::waitpid(child, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int serve(const std::string& uri, const std::vector<std::string>& limits) {
    for (const std::string& each : limits) {
        if (!each.starts_with("clock=") || shift_clock(each.substr(6))) continue;
        std::cout << "not allowed" << std::endl;
        return 0;
    }
    sigset_t end{};
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &end, nullptr);
    rlim_t memory_mb = 0;
    for (const std::string& each : limits) {
        const auto value = std::stoll(each.substr(each.find('=') + 1));
        if (each.starts_with("nofile=")) limit(RLIMIT_NOFILE, static_cast<rlim_t>(value));
        if (each.starts_with("memory_mb=")) memory_mb = static_cast<rlim_t>(value);
    }
    auto ctx = context::open();
    if (!ctx) return fail(ctx.error().message);
    visitors seen;
    server_options options;
    options.drain_timeout = 100ms;
    auto listening = server::listen(
        *ctx, {uri},
        [&seen](exchange one) {
            seen.note(one.peer());
            const std::size_t length = std::min(one.request().size(), one.response().size());
            std::memcpy(one.response().data(), one.request().data(), length);
            (void)one.reply(length);
        },
        options);
    if (!listening) return fail(listening.error().message);
    if (memory_mb != 0) limit(RLIMIT_AS, address_space_in_use() + (memory_mb << 20));
    std::cout << listening->endpoints().at(0) << std::endl;
    std::thread([&] {
        for (std::string line; std::getline(std::cin, line);) answer(*listening, seen, line);
    }).detach();
    int number = 0;
    ::sigwait(&end, &number);
    listening->stop();
    ::_exit(0);  // the reading thread never ends
}

/// A limit of open files that leaves so many.
rlim_t limit_that_leaves(std::size_t descriptors) {
    int number = 0;
    for (std::size_t free = 0; free < descriptors; ++number)
        if (::fcntl(number, F_GETFD) < 0) ++free;
    return static_cast<rlim_t>(number);
}

/// Connects and calls with only so many descriptors; what became of it.
std::string try_with(const std::string& uri, std::size_t descriptors) {
    const rlim_t most = limit_that_leaves(descriptors);
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit few{most, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    std::string outcome = "ok";
    {
        auto ctx = context::open({.log = log_level::off});
        channel_options options;
        options.connect_timeout = 2s * tests::time_factor();
        options.slots = 2;
        options.request_bytes = options.response_bytes = 4096;
        auto made = ctx ? channel::connect(*ctx, uri, options) : result<channel>(ctx.error());
        const std::array<std::byte, 8> bytes{};
        if (!made)
            outcome = std::string(to_string(made.code())) + ": " + made.error().message;
        else if (const auto called = made->call(bytes); !called)
            outcome = std::string(to_string(called.code())) + " of a call: " + called.error().message;
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
    return outcome;
}

int starve(const std::string& uri) {
    for (std::size_t descriptors = 24; descriptors > 0; --descriptors)
        std::cout << descriptors - 1 << ' ' << try_with(uri, descriptors - 1) << std::endl;
    std::cout << "done " << try_with(uri, 1000) << std::endl;
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.size() >= 2 && arguments[0] == "serve")
        return serve(arguments[1], {arguments.begin() + 2, arguments.end()});
    if (arguments.size() == 2 && arguments[0] == "starve") return starve(arguments[1]);
    return fail("see the head of peer_main.cpp for its arguments");
}
