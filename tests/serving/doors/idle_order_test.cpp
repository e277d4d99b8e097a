// SPDX-License-Identifier: Apache-2.0
// Which connection ends for a newcomer.
#include "serving/doors/http/idle_order.hpp"

#include <cstddef>
#include <deque>
#include <string>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

struct entry : idle_entry {
    using idle_entry::idle_entry;
};

/// Connections of clients, each idle since a later time than the one before it.
class doors_idle_order : public testing::Test {
  protected:
    entry& add(const char* client) {
        entry& one = all.emplace_back(boost::asio::ip::make_address(client));
        order.join(one);
        order.set_idle(one);
        return one;
    }
    [[nodiscard]] entry* longest(const char* client = nullptr) {
        const auto any = [this](entry&) { return ++looks > refused; };
        if (client == nullptr) return order.longest(nullptr, any);
        const auto address = boost::asio::ip::make_address(client);
        return order.longest(&address, any);
    }

    std::deque<entry> all;
    idle_order<entry> order;
    std::size_t looks = 0;
    std::size_t refused = 0;
};

TEST_F(doors_idle_order, longest_idle_connection_comes_first) {
    entry& first = add("1.1.1.1");
    entry& second = add("2.2.2.2");
    entry& third = add("1.1.1.1");
    EXPECT_EQ(longest(), &first);
    EXPECT_EQ(longest("2.2.2.2"), &second);
    order.set_idle(first);
    EXPECT_EQ(longest(), &second);
    EXPECT_EQ(longest("1.1.1.1"), &third);
    order.set_busy(second);
    EXPECT_EQ(longest(), &third);
    EXPECT_EQ(longest("2.2.2.2"), nullptr);
    order.leave(third);
    EXPECT_EQ(longest(), &first);
}

TEST_F(doors_idle_order, connections_are_counted_by_client) {
    entry& first = add("1.1.1.1");
    entry& second = add("1.1.1.1");
    add("2.2.2.2");
    const auto client = boost::asio::ip::make_address("1.1.1.1");
    EXPECT_EQ(order.count(client), 2U);
    order.set_busy(first);
    EXPECT_EQ(order.count(client), 2U) << "also without an idle one";
    order.leave(first);
    order.leave(second);
    EXPECT_EQ(order.count(client), 0U);
    order.set_idle(first);
    EXPECT_NE(longest(), &first) << "it has left";
}

TEST_F(doors_idle_order, a_new_connection_costs_few_looks_at_others) {
    for (int i = 0; i < 100'000; ++i) add("1.1.1.1");
    refused = all.size();
    EXPECT_EQ(longest(), nullptr);
    EXPECT_LE(looks, 16U);
    looks = 0;
    EXPECT_EQ(longest("1.1.1.1"), nullptr);
    EXPECT_LE(looks, 16U);
    refused = 0;
    EXPECT_EQ(longest(), &all[32]) << "the next one looks at others";
}

}  // namespace
}  // namespace accel::examples::serving::doors
