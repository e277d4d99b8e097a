// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/zerocopy.hpp"
#include "core/net/socket.hpp"
#include "patience.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace accel::tcp {
namespace {

/// A ledger that is on, if this OS can.
class zerocopy : public ::testing::Test {
  protected:
    static constexpr std::uint32_t slots = 4;
    static constexpr std::uint32_t most = 256;  ///< of calls that are not acknowledged

    void SetUp() override {
        ledger_.enable(socket_.get(), slots);
        if (!ledger_.useful()) GTEST_SKIP() << "this OS has no MSG_ZEROCOPY";
    }
    core::unique_fd socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    zerocopy_ledger ledger_;
};

TEST_F(zerocopy, each_call_is_acknowledged_once_in_any_order) {
    std::minstd_rand random(1);
    std::uint32_t next = 0;
    std::map<std::uint32_t, std::uint32_t> open;  // slots by call
    bool was_full = false;
    for (int step = 0; step < 20'000; ++step) {
        const std::uint32_t slot = static_cast<std::uint32_t>(random() % slots);
        const bool fills = step / 1'000 % 2 == 0;
        if (random() % 3 < (fills ? 2 : 1) && !ledger_.full()) {
            ledger_.sent(slot);
            open[next++] = slot;
        } else {
            // Mostly one of the oldest; sometimes one that was acknowledged or not sent.
            const std::uint32_t oldest = open.empty() ? next : open.begin()->first;
            const std::uint32_t id = oldest + static_cast<std::uint32_t>(random() % 12) - 2;
            const auto found = open.find(id);
            const std::uint32_t expected = found == open.end() ? zerocopy_ledger::none : found->second;
            ASSERT_EQ(ledger_.take(id), expected) << id << " of " << oldest << " to " << next;
            if (found != open.end()) open.erase(found);
        }
        const auto of_slot = std::count_if(open.begin(), open.end(), [&](const auto& e) { return e.second == slot; });
        ASSERT_EQ(ledger_.pending(slot), of_slot > 0);
        ASSERT_EQ(ledger_.pending(), !open.empty());
        ASSERT_EQ(ledger_.full(), !open.empty() && next - open.begin()->first >= most);
        was_full = was_full || ledger_.full();
    }
    EXPECT_TRUE(was_full);
    ledger_.sent(0);
    ledger_.forget();
    EXPECT_FALSE(ledger_.pending());
}

TEST_F(zerocopy, is_not_useful_once_the_os_has_copied_sixteen_calls_in_a_row) {
    using namespace std::chrono_literals;
    auto listening = core::listen_on("127.0.0.1", 0);
    ASSERT_TRUE(listening);
    auto client = core::connect_to("127.0.0.1", core::local_port(listening->get()), core::deadline_after(20s));
    ASSERT_TRUE(client);
    zerocopy_ledger ledger;
    ledger.enable(client->get(), slots);
    const std::vector<char> payload(1'000);
    std::uint32_t acknowledged = 0;
    for (std::uint32_t call = 0; call < 16; ++call) {
        EXPECT_TRUE(ledger.useful()) << call;
        ASSERT_EQ(::send(client->get(), payload.data(), payload.size(), MSG_ZEROCOPY | MSG_NOSIGNAL),
                  static_cast<ssize_t>(payload.size()));
        ledger.sent(call % slots);
        std::uint32_t first = 0;
        std::uint32_t last = 0;
        ASSERT_TRUE(tests::eventually([&] { return ledger.read(client->get(), first, last); }));
        ASSERT_EQ(first, acknowledged);
        ASSERT_EQ(last, call);
        acknowledged = last + 1;
        EXPECT_EQ(ledger.take(call), call % slots);
        std::uint32_t none = 0;
        EXPECT_FALSE(ledger.read(client->get(), none, none));
    }
    EXPECT_FALSE(ledger.useful()) << "loopback copies all the same";
}

}  // namespace
}  // namespace accel::tcp
