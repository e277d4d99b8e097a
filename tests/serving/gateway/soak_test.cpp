// SPDX-License-Identifier: Apache-2.0
// Clients, a gateway and two servers, of which one after another is killed and started again. No answer is wrong,
// nobody hangs, what was not answered has a typed error, and no process's memory grows.
// ACCEL_SOAK_SECONDS and ACCEL_SOAK_KILL_SECONDS make it longer.
#include "gateway_rig.hpp"
#include "payload.hpp"
#include "restarted_process.hpp"
#include "sanitizers.hpp"

#include <atomic>
#include <cstdlib>
#include <deque>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::tests {
namespace {

using clock = std::chrono::steady_clock;

/// What a process may grow by between being warm and its end. A leak of 100 bytes a request is more in half a minute.
constexpr std::size_t most_growth = std::size_t{16} << 20;
/// Calls that begin so long after a process has come back find everything connected.
constexpr std::chrono::seconds to_recover{4};

[[nodiscard]] std::chrono::milliseconds time_of(const char* name, std::chrono::milliseconds usual) {
    const char* text = std::getenv(name);
    return text == nullptr ? usual : std::chrono::milliseconds{static_cast<int>(1'000 * std::atof(text))};
}

struct tally {
    std::atomic<std::uint64_t> right{0};
    std::atomic<std::uint64_t> wrong{0};
    std::atomic<std::uint64_t> typed{0};   ///< failures that a killed process explains
    std::atomic<std::uint64_t> others{0};  ///< failures that it does not
    std::atomic<std::uint64_t> hung{0};
    std::atomic<clock::duration> killed{};  ///< when a process was last away
};

[[nodiscard]] bool is_of_a_loss(status seen) {
    return seen == status::peer_lost || seen == status::closed || seen == status::overloaded ||
           seen == status::timed_out;
}

void count_failure(status seen, clock::time_point begun, tally& all) {
    const bool explained =
        is_of_a_loss(seen) && all.killed.load() + to_recover * time_factor() > begun.time_since_epoch();
    ++(explained ? all.typed : all.others);
    if (!explained) std::printf("a call ended with %s\n", std::string(to_string(seen)).c_str());
}

void call_on(channel& to, std::uint64_t seed, tally& all) {
    const auto call = to.begin();
    if (!call) {
        completion none;
        (void)to.poll({&none, 1});  // which takes a new connection
        return std::this_thread::sleep_for(5ms);
    }
    const auto begun = clock::now();
    const std::size_t length = mix(seed) % 20'000;
    fill(call->request.first(length), seed);
    if (to.submit(call->id, length, {.timeout = patience(5s)}) != status::ok) return (void)to.release(call->id);
    completion c;
    if (to.wait({&c, 1}, patience(20s)) != 1) return (void)++all.hung;
    if (c.status != status::ok)
        count_failure(c.status, begun, all);
    else
        ++(is_changed(c.response, seed, length) ? all.right : all.wrong);
}

/// Two servers, and the gateway before them.
std::deque<restarted_process> start_all(const std::string& scheme) {
    const auto server = [](const std::string& uri) {
        return std::vector<std::string>{ACCEL_TEST_PEER_OF_GATEWAY, uri};
    };
    std::deque<restarted_process> out;
    out.emplace_back(server, "serving ", any_uri(scheme));
    out.emplace_back(server, "serving ", any_uri(scheme));
    const auto gateway = [first = server_uri(out[0].uri()), second = server_uri(out[1].uri())](const std::string& uri) {
        return std::vector<std::string>{ACCEL_TEST_GATEWAY, "--listen", uri, "--to", first, "--to", second,
                                        "--patience",       long_wait()};
    };
    out.emplace_back(gateway, "forwarding at ", any_uri(scheme));
    return out;
}

class gateway_soak : public ::testing::TestWithParam<const char*> {
  protected:
    gateway_soak() : all_(start_all(GetParam())) {}
    ~gateway_soak() override { stop(); }

    void start_clients(int count) {
        channel_options options;
        options.reconnect = true;
        options.backoff_max = 200ms;
        options.connect_retry = patience(10s);
        for (int i = 0; i < count; ++i) {
            clients_.emplace_back([this, i, options] {
                channel to = connect(ctx_, all_[2].uri(), options);
                for (std::uint64_t n = 0; !stop_; ++n) call_on(to, static_cast<std::uint64_t>(i) << 40 | n, seen_);
            });
        }
    }
    void stop() {
        stop_ = true;
        clients_.clear();
    }
    void kill_and_start(restarted_process& victim) {
        seen_.killed = clock::now().time_since_epoch();
        victim.kill();
        ASSERT_TRUE(victim.start());
        seen_.killed = clock::now().time_since_epoch();
    }
    /// True: so many more answers have come.
    [[nodiscard]] bool goes_on() {
        const std::uint64_t answered = seen_.right;
        return eventually(patience(15s), [&] { return seen_.right > answered + 100; });
    }

    context ctx_ = context::open({.log = log_level::off}).value();
    std::deque<restarted_process> all_;
    tally seen_;
    std::atomic<bool> stop_{false};
    std::vector<std::jthread> clients_;
};

TEST_P(gateway_soak, clients_survive_killed_servers_and_gateways) {
    start_clients(16);
    const auto interval = time_of("ACCEL_SOAK_KILL_SECONDS", 1s);
    const auto end = clock::now() + time_of("ACCEL_SOAK_SECONDS", 3 * interval);
    std::size_t before = 0;
    for (std::size_t turn = 0; turn < all_.size() || clock::now() < end; ++turn) {
        ASSERT_TRUE(goes_on()) << "before turn " << turn;
        std::this_thread::sleep_for(interval);
        // Those that have lived through a turn are warm; each is killed two turns later.
        for (restarted_process& each : all_) each.note_memory();
        if (turn == all_.size() - 1 || before == 0) before = resident_bytes_of(::getpid());
        kill_and_start(all_[turn % all_.size()]);
    }
    EXPECT_TRUE(goes_on());
    const std::size_t after = resident_bytes_of(::getpid());
    stop();
    EXPECT_EQ(seen_.wrong, 0U);
    EXPECT_EQ(seen_.hung, 0U);
    EXPECT_EQ(seen_.others, 0U);
    std::printf("%llu right answers, %llu calls ended with a typed error; clients %zu KiB before, %zu KiB after;\n",
                static_cast<unsigned long long>(seen_.right), static_cast<unsigned long long>(seen_.typed),
                before >> 10, after >> 10);
    std::printf("grown by at most: servers %zu and %zu KiB, gateway %zu KiB\n", all_[0].growth_bytes() >> 10,
                all_[1].growth_bytes() >> 10, all_[2].growth_bytes() >> 10);
    // AddressSanitizer keeps what was freed for a while, and on a slow machine nothing is warm after one turn.
    if (address_sanitizer || time_factor() > 1) return;
    EXPECT_LT(after, before + most_growth);
    for (restarted_process& each : all_) EXPECT_LT(each.growth_bytes(), most_growth) << each.uri();
}

INSTANTIATE_TEST_SUITE_P(schemes, gateway_soak, ::testing::Values("tcp", "shm", "rdma"),
                         [](const auto& each) { return std::string{each.param}; });

}  // namespace
}  // namespace accel::tests
