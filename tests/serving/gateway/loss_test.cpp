// SPDX-License-Identifier: Apache-2.0
// A gateway whose servers die: calls that were never sent go to another server, the others end with a typed error.
#include "gateway_rig.hpp"
#include "held_exchanges.hpp"
#include "payload.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

/// Of one call; its answer is checked.
status call_once(channel& to, std::uint64_t seed, nanoseconds timeout = patience(20s)) {
    call_view call;
    if (const status begun = to.begin(call); begun != status::ok) return begun;
    fill(call.request.first(1'000), seed);
    EXPECT_EQ(to.submit(call.id, 1'000, {.timeout = timeout}), status::ok);
    completion c;
    EXPECT_EQ(to.wait({&c, 1}, patience(30s)), 1U);
    EXPECT_TRUE(c.status != status::ok || is_changed(c.response, seed, 1'000));
    (void)to.release(c.id);
    return c.status;
}

[[nodiscard]] bool is_typed_loss(status seen) {
    return seen == status::peer_lost || seen == status::closed || seen == status::overloaded;
}

/// Kills what it has started.
class server_of_a_gateway {
  public:
    server_of_a_gateway(context& ctx, const std::string& uri, handler service)
        : server_(listen(ctx, uri, std::move(service))), uri_(client_uri(server_->endpoints().at(0))) {}
    [[nodiscard]] const std::string& uri() const noexcept { return uri_; }
    void end() { server_.reset(); }
    void start_again(context& ctx, handler service) { server_ = listen(ctx, uri_, std::move(service)); }

  private:
    std::optional<server> server_;
    std::string uri_;
};

/// Clients that call one after the other, each on a channel of its own, until `end`.
class callers {
  public:
    callers(context& ctx, const std::string& uri, std::size_t threads) {
        for (std::size_t i = 0; i < threads; ++i)
            threads_.emplace_back([this, to = std::make_shared<channel>(connect(ctx, uri))] { run(*to); });
    }
    ~callers() { end(); }
    callers(const callers&) = delete;
    callers& operator=(const callers&) = delete;

    /// Calls that have ended.
    [[nodiscard]] std::uint64_t done() const { return done_; }
    [[nodiscard]] std::uint64_t failed() const { return done_ - of(status::ok); }
    /// Those that have ended with this.
    [[nodiscard]] std::uint64_t of(status seen) const { return seen_.at(static_cast<std::size_t>(seen)); }
    [[nodiscard]] std::string_view last_failure() const { return to_string(last_.load()); }
    void end() {
        ending_ = true;
        for (std::thread& each : threads_)
            if (each.joinable()) each.join();
    }

  private:
    void run(channel& to) {
        while (!ending_) {
            const status seen = call_once(to, 1);
            ++seen_.at(static_cast<std::size_t>(seen));
            ++done_;
            if (seen != status::ok) last_ = seen;
        }
    }

    std::atomic<bool> ending_{false};
    std::atomic<std::uint64_t> done_{0};
    std::array<std::atomic<std::uint64_t>, status_count> seen_{};
    std::atomic<status> last_{status::ok};
    std::vector<std::thread> threads_;
};

/// ACCEL_TEST_RESTART_CALLS: at least as many calls, for a longer run than the suite's.
std::uint64_t calls_of_restarts() {
    const char* const said = std::getenv("ACCEL_TEST_RESTART_CALLS");
    return said == nullptr ? 4'000 : std::strtoull(said, nullptr, 10);
}

TEST(gateway_losses, no_call_fails_while_one_of_two_servers_restarts_eight_times) {
    auto ctx = context::open({.log = log_level::off});
    ASSERT_TRUE(ctx);
    std::atomic<std::uint64_t> of_first{0};
    const handler counting = [&of_first](exchange one) {
        ++of_first;
        answer_changed(std::move(one));
    };
    server_of_a_gateway first(*ctx, any_uri("tcp"), counting);
    server_of_a_gateway second(*ctx, any_uri("tcp"), answer_changed);
    gateway_process between({"--listen", any_uri("tcp"), "--to", first.uri(), "--to", second.uri()});
    callers load(*ctx, between.uri(), 4);
    constexpr std::uint64_t restarts = 8;
    const std::uint64_t share = calls_of_restarts() / (2 * restarts);
    for (std::uint64_t round = 0; round < restarts; ++round) {
        const std::uint64_t before = of_first;
        ASSERT_TRUE(eventually(
            patience(300s), [&] { return of_first >= before + share; }, 1ms))
            << "it is used again";
        first.end();
        first.start_again(*ctx, counting);
    }
    ASSERT_TRUE(eventually(
        patience(300s), [&] { return load.done() >= calls_of_restarts(); }, 1ms));
    load.end();
    EXPECT_EQ(load.failed(), 0U) << load.last_failure();
    const auto seen = between.stop();
    EXPECT_EQ(seen.at("answers"), load.done());
    EXPECT_EQ(seen.at("errors"), nlohmann::json::object());
    RecordProperty("calls", std::to_string(load.done()));
    RecordProperty("retried", seen.at("retried").dump());
}

/// A server ends when the gateway has the other one back.
TEST(gateway_losses, no_call_fails_while_two_servers_restart_in_turn) {
    auto ctx = context::open({.log = log_level::off});
    ASSERT_TRUE(ctx);
    std::array<std::atomic<std::uint64_t>, 2> seen{};
    const auto counting = [&seen](std::size_t which) -> handler {
        return [&count = seen.at(which)](exchange one) {
            ++count;
            answer_changed(std::move(one));
        };
    };
    server_of_a_gateway first(*ctx, any_uri("tcp"), counting(0));
    server_of_a_gateway second(*ctx, any_uri("tcp"), counting(1));
    gateway_process between({"--listen", any_uri("tcp"), "--to", first.uri(), "--to", second.uri()});
    callers load(*ctx, between.uri(), 4);
    for (std::size_t round = 0; round < 8; ++round) {
        const std::array<std::uint64_t, 2> before{seen[0], seen[1]};
        ASSERT_TRUE(eventually(
            patience(300s), [&] { return seen[0] >= before[0] + 100 && seen[1] >= before[1] + 100; }, 1ms))
            << "both are used";
        server_of_a_gateway& ends = round % 2 == 0 ? first : second;
        ends.end();
        ends.start_again(*ctx, counting(round % 2));
    }
    load.end();
    EXPECT_EQ(load.failed(), 0U) << load.last_failure();
}

/// While both are away, calls do not wait for them.
TEST(gateway_losses, calls_end_as_lost_while_both_servers_restart_at_once) {
    auto ctx = context::open({.log = log_level::off});
    ASSERT_TRUE(ctx);
    server_of_a_gateway first(*ctx, any_uri("tcp"), answer_changed);
    server_of_a_gateway second(*ctx, any_uri("tcp"), answer_changed);
    gateway_process between({"--listen", any_uri("tcp"), "--to", first.uri(), "--to", second.uri()});
    callers load(*ctx, between.uri(), 4);
    const auto reaches = [&](status what) {
        const std::uint64_t before = load.of(what);
        return eventually(
            patience(300s), [&] { return load.of(what) >= before + 100; }, 1ms);
    };
    for (int round = 0; round < 3; ++round) {
        ASSERT_TRUE(reaches(status::ok));
        std::thread ends([&first] { first.end(); });
        second.end();
        ends.join();
        ASSERT_TRUE(reaches(status::peer_lost)) << load.last_failure();
        first.start_again(*ctx, answer_changed);
        second.start_again(*ctx, answer_changed);
    }
    ASSERT_TRUE(reaches(status::ok)) << load.last_failure();
    load.end();
    EXPECT_EQ(load.failed(), load.of(status::peer_lost) + load.of(status::closed)) << load.last_failure();
}

TEST(gateway_losses, a_server_that_ends_and_comes_back_is_used_again) {
    auto ctx = context::open({.log = log_level::off});
    ASSERT_TRUE(ctx);
    held_exchanges held;
    server_of_a_gateway behind(*ctx, any_uri("tcp"), held.keeper());
    gateway_process between({"--listen", any_uri("tcp"), "--to", behind.uri()});
    channel to = connect(*ctx, between.uri());
    call_view call;
    ASSERT_EQ(to.begin(call), status::ok);
    ASSERT_EQ(to.submit(call.id, 10, {.timeout = patience(30s)}), status::ok);
    ASSERT_TRUE(held.wait_for(1));
    behind.end();
    completion c;
    ASSERT_EQ(to.wait({&c, 1}, patience(20s)), 1U);
    EXPECT_TRUE(is_typed_loss(c.status)) << to_string(c.status);
    (void)to.release(c.id);
    held.clear();
    EXPECT_TRUE(is_typed_loss(call_once(to, 1)));
    behind.start_again(*ctx, answer_changed);
    EXPECT_TRUE(eventually(
        patience(20s), [&] { return call_once(to, 2) == status::ok; }, 20ms));
    for (std::uint64_t i = 0; i < 50; ++i) ASSERT_EQ(call_once(to, i), status::ok);
}

TEST(gateway_losses, the_other_server_takes_calls_that_were_never_sent) {
    auto ctx = context::open({.log = log_level::off});
    ASSERT_TRUE(ctx);
    server_of_a_gateway first(*ctx, any_uri("tcp"), answer_changed);
    server_of_a_gateway second(*ctx, any_uri("tcp"), answer_changed);
    gateway_process between({"--listen", any_uri("tcp"), "--to", first.uri(), "--to", second.uri()});
    channel to = connect(*ctx, between.uri());
    for (std::uint64_t i = 0; i < 20; ++i) ASSERT_EQ(call_once(to, i), status::ok);
    first.end();
    // One call may be under way to the dead server, or be given to it before the gateway has noticed.
    int failed = 0;
    for (std::uint64_t i = 0; i < 100; ++i) failed += call_once(to, i) == status::ok ? 0 : 1;
    EXPECT_LE(failed, 2);
    const auto seen = between.stop();
    EXPECT_GT(seen.at("retried"), 0);
}

TEST(gateway_losses, a_server_that_is_absent_at_the_start_joins_later) {
    auto ctx = context::open({.log = log_level::off});
    ASSERT_TRUE(ctx);
    server_of_a_gateway first(*ctx, any_uri("tcp"), answer_changed);
    server_of_a_gateway second(*ctx, any_uri("tcp"), answer_changed);
    second.end();
    gateway_process between({"--listen", any_uri("tcp"), "--to", first.uri(), "--to", second.uri()});
    channel to = connect(*ctx, between.uri());
    for (std::uint64_t i = 0; i < 20; ++i) ASSERT_EQ(call_once(to, i), status::ok);
    second.start_again(*ctx, answer_changed);
    first.end();
    EXPECT_TRUE(eventually(
        patience(20s), [&] { return call_once(to, 2) == status::ok; }, 20ms));
}

}  // namespace
}  // namespace accel::tests
