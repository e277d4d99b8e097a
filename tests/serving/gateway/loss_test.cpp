// SPDX-License-Identifier: Apache-2.0
// A gateway whose servers die: calls that were never sent go to another server, the others end with a typed error.
#include "callers.hpp"
#include "gateway_rig.hpp"
#include "held_exchanges.hpp"
#include "payload.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

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

/// Which requests servers have seen.
class seen_requests {
  public:
    [[nodiscard]] handler counter(std::size_t server) {
        return [this, server](exchange one) {
            ++of_.at(server);
            const std::uint64_t number = one.trace_id();
            {
                const std::lock_guard lock(mutex_);
                if (!all_.insert(number).second) ++twice_;
            }
            answer_changed(std::move(one));
        };
    }
    [[nodiscard]] std::uint64_t of(std::size_t server) const { return of_.at(server); }
    [[nodiscard]] std::uint64_t twice() const { return twice_; }
    [[nodiscard]] std::uint64_t all() const {
        const std::lock_guard lock(mutex_);
        return all_.size();
    }

  private:
    mutable std::mutex mutex_;
    std::set<std::uint64_t> all_;
    std::atomic<std::uint64_t> twice_{0};
    std::array<std::atomic<std::uint64_t>, 3> of_{};
};

/// Three servers end and come back in random order; one of them is not there at the start, and one is there always.
TEST(gateway_losses, no_call_is_lost_or_repeated_while_servers_end_and_come_back) {
    auto ctx = context::open({.log = log_level::off});
    ASSERT_TRUE(ctx);
    seen_requests seen;
    std::deque<server_of_a_gateway> servers;
    for (std::size_t i = 0; i < 3; ++i) servers.emplace_back(*ctx, any_uri("tcp"), seen.counter(i));
    servers[2].end();
    std::array<bool, 3> there{true, true, false};
    gateway_process between(
        {"--listen", any_uri("tcp"), "--to", servers[0].uri(), "--to", servers[1].uri(), "--to", servers[2].uri()});
    callers load(*ctx, between.uri(), 4);
    std::mt19937 random(7);
    for (int round = 0; round < 16; ++round) {
        SCOPED_TRACE(round);
        const std::size_t one = random() % 3;
        if (!there[one]) {
            servers[one].start_again(*ctx, seen.counter(one));
            there[one] = true;
        } else if (std::ranges::count(there, true) > 1) {
            servers[one].end();
            there[one] = false;
        }
        const std::array before{seen.of(0), seen.of(1), seen.of(2)};
        ASSERT_TRUE(eventually(
            patience(300s),
            [&] {
                for (std::size_t i = 0; i < 3; ++i)
                    if (there[i] && seen.of(i) < before[i] + 20) return false;
                return true;
            },
            1ms))
            << "all that are there are used";
    }
    load.end();
    EXPECT_EQ(load.failed(), 0U) << load.last_failure();
    EXPECT_EQ(seen.twice(), 0U);
    EXPECT_EQ(seen.all(), load.done());
    const auto counted = between.stop();
    EXPECT_EQ(counted.at("answers"), load.done());
    EXPECT_GT(counted.at("retried"), 0);
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
    const auto call = to.begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(to.submit(call->id, 10, {.timeout = patience(30s)}), status::ok);
    ASSERT_TRUE(held.wait_for(1));
    behind.end();
    completion c;
    ASSERT_EQ(to.wait({&c, 1}, patience(20s)), 1U);
    EXPECT_TRUE(is_typed_loss(c.status)) << to_string(c.status);
    c.release();
    held.clear();
    EXPECT_TRUE(is_typed_loss(call_once(to, 1)));
    behind.start_again(*ctx, answer_changed);
    EXPECT_TRUE(eventually(
        patience(20s), [&] { return call_once(to, 2) == status::ok; }, 20ms));
    for (std::uint64_t i = 0; i < 50; ++i) ASSERT_EQ(call_once(to, i), status::ok);
}

}  // namespace
}  // namespace accel::tests
