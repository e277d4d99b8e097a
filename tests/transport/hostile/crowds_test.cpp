// SPDX-License-Identifier: Apache-2.0
// Many good clients that come at once, as after a restart of their server.
#include "hostile/arena.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

namespace accel::hostile {
namespace {

/// ACCEL_HOSTILE_CROWD asks for another number of clients. Sanitizers see the same with fewer, which are still
/// more than a server accepts at a time.
std::size_t clients_at_once() {
    const char* text = std::getenv("ACCEL_HOSTILE_CROWD");
    if (text != nullptr) return static_cast<std::size_t>(std::max(1, std::atoi(text)));
    return sanitized() ? 50 : 200;
}

double in_ms(std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

struct crowds : arena {
    mutable std::atomic<bool> said{false};
    /// A client of its own in every respect; how long it took to connect. Nothing: it did not get in.
    [[nodiscard]] std::optional<std::chrono::nanoseconds> connect_once(std::unique_ptr<context>& kept,
                                                                       std::optional<channel>& made) const {
        auto opened = context::open({.log = log_level::off});
        if (!opened) return std::nullopt;
        kept = std::make_unique<context>(std::move(opened).value());
        channel_options options = client_options();
        options.connect_timeout = patience(20s);
        options.peer_timeout = patience(5s);
        const auto start = core::now();
        auto connected = channel::connect(*kept, server_->uri(), options);
        const auto took = core::now() - start;
        if (!connected) {
            if (!said.exchange(true)) fmt::print("a client is kept out: {}\n", connected.error().message);
            return std::nullopt;
        }
        made.emplace(std::move(connected).value());
        return took;
    }
};

TEST_P(crowds, all_clients_of_a_crowd_connect) {
    open("&max_sessions=4096&max_client_sessions=4096");
    for (auto& each : clients_) each->rest(true);
    std::vector<std::chrono::nanoseconds> alone;
    for (int i = 0; i < (sanitized() ? 5 : 50); ++i) {
        std::unique_ptr<context> own;
        std::optional<channel> made;
        const auto took = connect_once(own, made);
        ASSERT_TRUE(took);
        alone.push_back(*took);
    }
    std::sort(alone.begin(), alone.end());
    const std::size_t count = clients_at_once();
    std::vector<std::unique_ptr<context>> contexts(count);
    std::vector<std::optional<channel>> channels(count);
    std::atomic<std::size_t> inside{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            while (!go.load()) std::this_thread::sleep_for(1ms);
            if (connect_once(contexts[i], channels[i])) inside.fetch_add(1);
        });
    }
    const auto start = core::now();
    go.store(true);
    for (std::thread& each : threads) each.join();
    const auto all = core::now() - start;
    fmt::print("connecting alone takes {:.2f} ms (p50); {} clients at once were in after {:.0f} ms\n",
               in_ms(alone[alone.size() / 2]), count, in_ms(all));
    EXPECT_EQ(inside.load(), count);
    EXPECT_LT(all, patience(10s));
    for (auto& each : clients_) each->rest(false);
    channels.clear();
    contexts.clear();
    resident_margin_ += count * (std::size_t{128} << 10);
    expect_unharmed();
}

INSTANTIATE_TEST_SUITE_P(hostile, crowds, ::testing::Bool(), with_or_without_keys);

}  // namespace
}  // namespace accel::hostile
