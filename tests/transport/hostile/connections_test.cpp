// SPDX-License-Identifier: Apache-2.0
// Connections that are not what they should be: too many, too slow, cut off, garbled.
#include "hostile/attacks.hpp"

#include <cstring>
#include <random>

#include <fmt/format.h>

namespace accel::hostile {
namespace {

using tests::eventually;

struct connections : arena {
    /// What comes first on a connection: a ClientHello, or the greeting and a query.
    [[nodiscard]] std::vector<std::byte> beginning() const {
        if (keyed()) return client_hello(client_keys("stranger"));
        auto out = bytes_of(core::control_greeting);
        const auto question = frame(control_message{1, core::query{}});
        out.insert(out.end(), question.begin(), question.end());
        return out;
    }
};

TEST_P(connections, slow_handshakes_are_closed) {
    open();
    const siege slow(drip(stranger_address, 100, beginning(), 100ms), server_->where(), 1);
    ASSERT_TRUE(eventually(patience(2s), [&] { return server_->descriptors() > 100; }));
    expect_newcomer_served("beside slow ones");
    const unique_fd slowest = connect_from(stranger_address, server_->where());
    const std::vector<std::byte> whole = beginning();
    push(slowest.get(), std::span(whole).first(3));
    EXPECT_TRUE(ends(slowest.get(), patience(5s))) << "three seconds are enough to say who one is";
}

TEST_P(connections, connections_that_never_read_take_little_memory) {
    open();
    const auto question = frame(control_message{1, core::query{}});
    const std::size_t before = server_->resident_bytes();
    {
        const siege deaf(
            [&](const target& at, const std::atomic<bool>& go) {
                std::vector<wire> all;
                for (int i = 0; i < 200 && go.load(); ++i) {
                    auto one = wire::open(stranger_address, at, client_keys());
                    if (one && one->send(core::control_greeting)) all.push_back(std::move(*one));
                }
                const auto many = repeated(question, 16 << 10);
                while (go.load()) {
                    for (wire& each : all) {
                        if (!each.stream().wants_to_write()) static_cast<void>(each.stream().send_raw(many));
                        static_cast<void>(each.stream().flush());
                    }
                    std::this_thread::sleep_for(1ms);
                }
            },
            server_->where(), 1);
        // Under sanitizers the bound of memory below is too wide to be reached.
        std::this_thread::sleep_for(sanitized() ? 500ms : 1500ms);
        expect_newcomer_served("beside deaf ones");
        const std::size_t during = server_->resident_bytes();
        fmt::print("memory: {} KiB, before {}\n", during >> 10, before >> 10);
        EXPECT_LT(during, before + (std::size_t{time_factor() > 1 ? 512U : 48U} << 20));
    }
    expect_unharmed();
}

TEST_P(connections, connections_with_odd_frames_are_closed) {
    open();
    const auto framed = [](std::uint32_t length, std::size_t body) {
        std::vector<std::byte> out(sizeof length + body, std::byte{'A'});
        std::memcpy(out.data(), &length, sizeof length);
        return out;
    };
    for (const auto& [odd, closes] : {std::pair{framed(0, 0), true}, std::pair{framed(0xffff'ffff, 5000), true},
                                      std::pair{framed(2049, 2049), true}, std::pair{framed(2048, 100), false}}) {
        auto one = wire::open(stranger_address, server_->where(), client_keys());
        ASSERT_TRUE(one);
        ASSERT_TRUE(one->send(core::control_greeting));
        ASSERT_TRUE(one->send(odd));
        EXPECT_EQ(one->ends(closes ? patience(2s) : 200ms), closes);
    }
    expect_unharmed();
}

TEST_P(connections, truncated_or_changed_handshakes_do_no_harm) {
    open();
    const std::vector<std::byte> whole = beginning();
    std::vector<std::vector<std::byte>> all;
    for (std::size_t length = 1; length < whole.size(); ++length)
        all.emplace_back(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    std::minstd_rand random{13};
    for (int i = 0; i < 400; ++i) {
        auto changed = whole;
        for (int k = 0; k < 1 + i % 4; ++k) changed[random() % changed.size()] = static_cast<std::byte>(random());
        all.push_back(std::move(changed));
    }
    for (const auto& each : all) {
        const unique_fd fd = connect_from(stranger_address, server_->where());
        ASSERT_TRUE(fd.open());
        ASSERT_TRUE(push(fd.get(), each));
        static_cast<void>(ends(fd.get(), 0ms));
    }
    expect_unharmed();
}

TEST_P(connections, connections_with_the_other_security_are_refused_at_once) {
    open();
    if (keyed()) {
        auto plain = wire::open(stranger_address, server_->where(), nullptr);
        ASSERT_TRUE(plain);
        ASSERT_TRUE(plain->send(core::control_greeting));
        const auto told = plain->hear(patience(2s));
        ASSERT_TRUE(told);
        ASSERT_TRUE(std::holds_alternative<core::refused>(told->body));
        EXPECT_EQ(std::get<core::refused>(told->body).code, status::unauthorized);
    } else {
        auto loaded = core::load_client_security(folder_.client());
        ASSERT_TRUE(loaded);
        const auto start = core::now();
        EXPECT_FALSE(wire::open(stranger_address, server_->where(), *loaded));
        EXPECT_LT(core::now() - start, patience(1s));
    }
    expect_unharmed();
}

INSTANTIATE_TEST_SUITE_P(hostile, connections, ::testing::Bool(), with_or_without_keys);

}  // namespace
}  // namespace accel::hostile
