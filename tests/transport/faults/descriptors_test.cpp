// SPDX-License-Identifier: Apache-2.0
// Standard input, output and error are closed: nothing of the library lies there.
#include "conformance/rig.hpp"

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <sys/wait.h>
#include <unistd.h>

namespace accel::faults {
namespace {

using namespace tests;

/// What lies at this descriptor; empty: nothing.
std::string at_descriptor(int fd) {
    std::error_code absent;
    return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), absent).string();
}

class closed_descriptors : public on_every_backend {
  protected:
    static void close_all() {
        for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(each);
    }
    /// Whether the three have nothing but this.
    static bool have_only(std::string_view what) {
        return at_descriptor(STDIN_FILENO) == what && at_descriptor(STDOUT_FILENO) == what &&
               at_descriptor(STDERR_FILENO) == what;
    }
    /// A server and two clients, and whether `good` holds with them.
    template <class Condition>
    bool holds_while_serving(context& ctx, const Condition& good) {
        auto served = server::listen(ctx, {without_gpu(GetParam().listen_uri())}, echo, calm_server());
        if (!served) return false;
        channel_options options = calm_client();
        options.reconnect = true;
        auto first = channel::connect(ctx, served->endpoints().at(0), options);
        auto second = channel::connect(ctx, served->endpoints().at(0), calm_client());
        const std::array<std::byte, 100> request{};
        return first && second && first->call(request).ok() && second->call(request).ok() && good();
    }
    /// What a child says.
    template <class Body>
    static int in_child(const Body& body) {
        const pid_t child = ::fork();
        if (child == 0) ::_exit(body());
        int ended = 0;
        if (eventually(until_hung(), [&] { return ::waitpid(child, &ended, WNOHANG) == child; }))
            return WIFEXITED(ended) ? WEXITSTATUS(ended) : -WTERMSIG(ended);
        ::kill(child, SIGKILL);
        ::waitpid(child, &ended, 0);
        return -SIGKILL;
    }
};

TEST_P(closed_descriptors, a_new_context_opens_dev_null_for_closed_standard_descriptors) {
    const int said = in_child([&] {
        close_all();
        auto ctx = context::open();
        if (!ctx) return 1;
        return holds_while_serving(*ctx, [] { return have_only("/dev/null"); }) ? 0 : 2;
    });
    EXPECT_EQ(said, 0);
}

TEST_P(closed_descriptors, a_context_takes_no_standard_descriptors_that_were_closed_later) {
    if (GetParam().scheme == "zmq" || GetParam().scheme == "gdr" || GetParam().scheme == "gpu" ||
        GetParam().scheme == "rdma")
        GTEST_SKIP() << "other libraries make descriptors for it";
    const int said = in_child([&] {
        auto ctx = context::open();
        if (!ctx) return 1;
        close_all();
        return holds_while_serving(*ctx, [] { return have_only(""); }) ? 0 : 2;
    });
    EXPECT_EQ(said, 0);
}

ACCEL_INSTANTIATE(closed_descriptors, all_backends);

}  // namespace
}  // namespace accel::faults
