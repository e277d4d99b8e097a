// SPDX-License-Identifier: Apache-2.0
// Clients, a gateway and two servers, of which one after another is killed and started again. No answer is wrong,
// nobody hangs, and memory stays flat. ACCEL_SOAK_SECONDS and ACCEL_SOAK_KILL_SECONDS make it longer.
#include "gateway_rig.hpp"
#include "payload.hpp"
#include "sanitizers.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::tests {
namespace {

using clock = std::chrono::steady_clock;

[[nodiscard]] std::chrono::seconds seconds_of(const char* name, int usual) {
    const char* text = std::getenv(name);
    return std::chrono::seconds{text == nullptr ? usual : std::atoi(text)};
}

[[nodiscard]] std::size_t resident_bytes() {
    std::size_t all = 0;
    std::size_t resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// A process that listens at a port of its own, which it takes again after it was killed.
class killed_now_and_then {
  public:
    explicit killed_now_and_then(std::vector<std::string> arguments, std::string ready)
        : arguments_(std::move(arguments)), ready_(std::move(ready)) {
        start();
    }
    void kill() { process_.reset(); }
    void start() {
        // The port may still be taken for a moment.
        ASSERT_TRUE(eventually(patience(20s), [this] {
            auto made = report::child_process::start(arguments_);
            if (!made) return false;
            process_.emplace(std::move(made).value());
            return process_->wait_for(ready_, std::chrono::seconds{10}).has_value();
        })) << arguments_.front();
    }

  private:
    std::vector<std::string> arguments_;
    std::string ready_;
    std::optional<report::child_process> process_;
};

struct tally {
    std::atomic<std::uint64_t> right{0};
    std::atomic<std::uint64_t> wrong{0};
    std::atomic<std::uint64_t> typed{0};   ///< failures that a killed process explains
    std::atomic<std::uint64_t> others{0};  ///< failures that it does not
    std::atomic<std::uint64_t> hung{0};
};

[[nodiscard]] bool is_of_a_loss(status seen) {
    return seen == status::peer_lost || seen == status::closed || seen == status::overloaded ||
           seen == status::timed_out;
}

void call_on(channel& to, std::uint64_t seed, tally& all) {
    call_view call;
    if (to.begin(call) != status::ok) {
        completion none;
        (void)to.poll({&none, 1});  // which takes a new connection
        return std::this_thread::sleep_for(5ms);
    }
    const std::size_t length = mix(seed) % 20'000;
    fill(call.request.first(length), seed);
    if (to.submit(call.id, length, {.timeout = patience(5s)}) != status::ok) return (void)to.release(call.id);
    completion c;
    if (to.wait({&c, 1}, patience(20s)) != 1) return (void)++all.hung;
    if (c.status == status::ok)
        ++(is_changed(c.response, seed, length) ? all.right : all.wrong);
    else
        ++(is_of_a_loss(c.status) ? all.typed : all.others);
    (void)to.release(c.id);
}

TEST(gateway_soak, survives_whoever_is_killed) {
    const std::string first = any_uri("tcp");
    const auto at = [&](int port) {
        return first.substr(0, first.find(":0?")) + ":" + std::to_string(port) + "?insecure=true";
    };
    const std::array uris{at(17'801), at(17'802), at(17'803)};
    std::vector<killed_now_and_then> all;
    all.reserve(3);
    all.emplace_back(std::vector<std::string>{ACCEL_TEST_PEER_OF_GATEWAY, uris[0]}, "serving ");
    all.emplace_back(std::vector<std::string>{ACCEL_TEST_PEER_OF_GATEWAY, uris[1]}, "serving ");
    all.emplace_back(
        std::vector<std::string>{ACCEL_TEST_GATEWAY, "--listen", uris[2], "--to", uris[0], "--to", uris[1]},
        "forwarding at ");

    auto ctx = context::open({.log = log_level::off});
    ASSERT_TRUE(ctx);
    channel_options options;
    options.reconnect = true;
    options.backoff_max = 200ms;
    options.connect_retry = patience(10s);
    std::atomic<bool> stop{false};
    tally seen;
    std::vector<std::thread> clients;
    for (std::uint64_t i = 0; i < 16; ++i)
        clients.emplace_back([&, i] {
            channel to = connect(*ctx, uris[2], options);
            for (std::uint64_t n = 0; !stop; ++n) call_on(to, i << 40 | n, seen);
        });

    const auto end = clock::now() + seconds_of("ACCEL_SOAK_SECONDS", 10);
    const auto interval = seconds_of("ACCEL_SOAK_KILL_SECONDS", 2);
    std::size_t before = 0;
    for (std::size_t turn = 0; clock::now() < end; ++turn) {
        std::this_thread::sleep_for(interval);
        if (turn == 2) before = resident_bytes();
        const std::uint64_t answered = seen.right;
        all[turn % all.size()].kill();
        all[turn % all.size()].start();
        EXPECT_TRUE(eventually(patience(15s), [&] { return seen.right > answered + 100; })) << "after turn " << turn;
    }
    const std::size_t after = resident_bytes();
    stop = true;
    for (std::thread& each : clients) each.join();
    EXPECT_EQ(seen.wrong, 0U);
    EXPECT_EQ(seen.hung, 0U);
    EXPECT_EQ(seen.others, 0U);
    EXPECT_GT(seen.right, 1'000U);
    // A sanitizer keeps what was freed for a while.
    if (!address_sanitizer) {
        EXPECT_LT(after, before + (std::size_t{64} << 20));
    }
    RecordProperty("right", std::to_string(seen.right));
    std::printf("%llu right answers, %llu calls ended with a typed error\n",
                static_cast<unsigned long long>(seen.right), static_cast<unsigned long long>(seen.typed));
}

}  // namespace
}  // namespace accel::tests
