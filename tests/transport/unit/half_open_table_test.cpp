// SPDX-License-Identifier: Apache-2.0
// Which connection goes when room is needed for one more.
#include "core/control/half_open_table.hpp"

#include "core/control/server_connection.hpp"

#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace accel::core::testing {
namespace {

std::string address(std::size_t number) {
    return "10.0." + std::to_string(number / 256) + "." + std::to_string(number % 256);
}

TEST(half_open_table, the_busiest_address_loses_its_oldest_first) {
    half_open_table table;
    EXPECT_EQ(table.first_to_go(), std::nullopt);
    table.add("other", 1);
    for (std::uint64_t id = 2; id < 30; ++id) table.add("flood", id);
    EXPECT_EQ(table.size(), 29U);
    EXPECT_EQ(table.first_to_go(), 2U);
    table.remove("flood", 2);
    EXPECT_EQ(table.first_to_go(), 3U);
}

TEST(half_open_table, a_flood_from_many_addresses_loses_its_own_oldest_first) {
    half_open_table table;
    std::uint64_t id = 0;
    for (std::size_t i = 0; i < 3000; ++i) table.add(address(i), ++id);
    for (std::size_t i = 0; i < half_open_table::few; ++i) table.add("honest", ++id);
    for (std::uint64_t gone = 1; gone <= 3000; ++gone) {
        ASSERT_EQ(table.first_to_go(), gone);
        table.remove(address(gone - 1), gone);
    }
    EXPECT_EQ(table.first_to_go(), 3001U);
}

TEST(half_open_table, known_addresses_are_closed_after_strangers) {
    half_open_table table;
    table.let_in("client");
    EXPECT_TRUE(table.knows("client"));
    for (std::uint64_t id = 1; id <= half_open_table::few_of_known; ++id) table.add("client", id);
    table.add("stranger", 100);
    EXPECT_EQ(table.first_to_go(), 100U);
    table.remove("stranger", 100);
    EXPECT_EQ(table.first_to_go(), 1U);
    table.left("client");
    table.add("stranger", 101);
    EXPECT_EQ(table.first_to_go(), 101U) << "it is known after its clients have left";
}

TEST(half_open_table, a_known_address_has_its_own_limit) {
    half_open_table table;
    for (std::uint64_t id = 1; id <= half_open_table::few_of_known + 1; ++id) table.add("client", id);
    table.add("stranger", 100);
    table.let_in("client");
    EXPECT_EQ(table.first_to_go(), 1U);
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
}

TEST(strangers, a_named_client_is_counted_by_its_name) {
    client_identity named = stranger_at("2001:db8::1");
    named.name = "key";
    EXPECT_EQ(named.account(), "key");
}

}  // namespace
}  // namespace accel::core::testing
