// SPDX-License-Identifier: Apache-2.0
// Which connection goes when room is needed for one more.
#include "core/control/half_open_table.hpp"

#include "core/control/server_connection.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core::testing {
namespace {

/// Who goes first, looked up slowly.
struct plain_table {
    std::map<std::string, std::set<std::uint64_t>> waiting;
    std::map<std::string, int> known;  ///< how many of their peers are connected

    [[nodiscard]] std::optional<std::uint64_t> first_to_go() const {
        std::optional<std::pair<std::int64_t, std::uint64_t>> first;
        for (const auto& [address, ids] : waiting) {
            if (ids.empty()) continue;
            const bool knows = known.contains(address);
            const auto few = static_cast<std::int64_t>(knows ? half_open_table::few_of_known : half_open_table::few);
            const std::int64_t too_many = std::max<std::int64_t>(static_cast<std::int64_t>(ids.size()) - few, 0);
            const std::pair one{too_many > 0 ? -too_many : knows ? 1 : 0, *ids.begin()};
            first = std::min(first.value_or(one), one);
        }
        return first ? std::optional(first->second) : std::nullopt;
    }
};

TEST(half_open_table, the_oldest_of_the_address_with_most_too_many_goes_first_and_known_ones_last) {
    const std::vector<std::string> addresses{"flood", "flood", "flood", "client", "client", "a", "b", "c"};
    for (std::uint32_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::minstd_rand random(seed);
        half_open_table table;
        plain_table model;
        std::uint64_t newest = 0;
        for (int step = 0; step < 600; ++step) {
            const std::string& address = addresses[random() % addresses.size()];
            auto& ids = model.waiting[address];
            const auto what = random() % 16;
            if (what < 11) {
                table.add(address, ++newest);
                ids.insert(newest);
            } else if (what < 13 && !ids.empty()) {
                const auto gone = std::next(ids.begin(), static_cast<std::ptrdiff_t>(random() % ids.size()));
                table.remove(address, *gone);
                ids.erase(gone);
            } else if (what == 13 && random() % 20 == 0) {
                table.let_in(address);
                ++model.known[address];
            } else if (what == 14 && model.known.contains(address) && model.known[address] > 0) {
                table.left(address);  // and is known all the same
                --model.known[address];
            }
            ASSERT_EQ(table.first_to_go(), model.first_to_go()) << "step " << step;
            ASSERT_EQ(table.knows(address), model.known.contains(address)) << "step " << step;
        }
        for (std::size_t left = table.size(); left > 0; --left) {
            const std::uint64_t first = table.first_to_go().value();
            ASSERT_EQ(first, model.first_to_go());
            for (auto& [address, ids] : model.waiting)
                if (ids.erase(first) > 0) table.remove(address, first);
        }
        EXPECT_EQ(table.first_to_go(), std::nullopt);
        EXPECT_EQ(table.size(), 0U);
    }
}

TEST(half_open_table, the_table_remembers_a_bounded_number_of_former_clients) {
    half_open_table table;
    table.let_in("stays");
    table.add("gone 1", 1);
    for (std::size_t i = 0; i < 2 * half_open_table::max_known; ++i) {
        const std::string each = "gone " + std::to_string(i);
        table.let_in(each);
        table.left(each);
    }
    EXPECT_TRUE(table.knows("stays"));
    EXPECT_FALSE(table.knows("gone 1"));
    EXPECT_TRUE(table.knows("gone " + std::to_string(2 * half_open_table::max_known - 1)));
    EXPECT_EQ(table.first_to_go(), 1U);
    table.remove("gone 1", 1);
    EXPECT_EQ(table.first_to_go(), std::nullopt);
    EXPECT_EQ(table.size(), 0U);
}

client_identity stranger_at(const std::string& address) {
    return server_connection(1, {}, address, {}).client;
}

TEST(strangers, strangers_in_one_ipv6_network_share_one_account) {
    const client_identity one = stranger_at("2001:db8:0:1::1");
    const client_identity neighbour = stranger_at("2001:db8:0:1::2");
    EXPECT_EQ(one.place(), neighbour.place());
    EXPECT_EQ(one.account(), neighbour.account());
    EXPECT_NE(one.text(), neighbour.text()) << "the log says which";
    EXPECT_NE(one.place(), stranger_at("2001:db8:0:2::1").place());
    EXPECT_NE(stranger_at("10.0.0.1").place(), stranger_at("10.0.0.2").place());
    client_identity named = one;
    named.name = "key";
    EXPECT_EQ(named.account(), "key");
    EXPECT_EQ(named.place(), one.place());
}

}  // namespace
}  // namespace accel::core::testing
