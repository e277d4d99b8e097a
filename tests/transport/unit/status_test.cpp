// SPDX-License-Identifier: Apache-2.0
#include <accel_transport/status.hpp>

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace accel {
namespace {

TEST(status, values_are_those_of_the_wire) {
    EXPECT_EQ(static_cast<int>(status::ok), 0);
    EXPECT_EQ(static_cast<int>(status::again), 1);
    EXPECT_EQ(static_cast<int>(status::timed_out), 2);
    EXPECT_EQ(static_cast<int>(status::cancelled), 3);
    EXPECT_EQ(static_cast<int>(status::peer_lost), 4);
    EXPECT_EQ(static_cast<int>(status::message_too_large), 6);
    EXPECT_EQ(static_cast<int>(status::overloaded), 7);
    EXPECT_EQ(static_cast<int>(status::unauthorized), 11);
    EXPECT_EQ(static_cast<int>(status::application_error), 16);
    EXPECT_EQ(static_cast<int>(status::device_lost), 18);
    EXPECT_EQ(static_cast<int>(status::not_found), status_count - 1);
}

TEST(status, every_value_has_a_name_of_its_own) {
    std::set<std::string_view> names;
    for (std::uint16_t i = 0; i < status_count; ++i) names.insert(to_string(static_cast<status>(i)));
    EXPECT_EQ(names.size(), status_count);
    EXPECT_EQ(to_string(status::peer_lost), "peer_lost");
    EXPECT_EQ(to_string(status::ok), "ok");
    EXPECT_FALSE(to_string(static_cast<status>(status_count)).empty()) << "from elsewhere";
    EXPECT_FALSE(to_string(static_cast<status>(0xffff)).empty());
}

TEST(result, a_result_holds_a_value_or_an_error) {
    result<std::string> r{std::string("value")};
    EXPECT_TRUE(r);
    EXPECT_TRUE(r.ok());
    EXPECT_EQ(r.code(), status::ok);
    EXPECT_EQ(*r, "value");
    EXPECT_EQ(r->size(), 5U);
    EXPECT_EQ(std::move(r).value(), "value");
    const result<int> late{error{status::timed_out, 110, "too late"}};
    EXPECT_FALSE(late);
    EXPECT_EQ(late.code(), status::timed_out);
    EXPECT_EQ(late.error().native, 110);
    EXPECT_EQ(late.error().message, "too late");
    EXPECT_TRUE(result<void>{});
    const result<void> failed{error{status::closed, 0, "gone"}};
    EXPECT_FALSE(failed);
    EXPECT_EQ(failed.code(), status::closed);
}

TEST(result, value_of_an_error_ends_the_process_with_its_sentence) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    result<int> r{error{status::system_error, 98, "the port is taken"}};
    EXPECT_DEATH((void)r.value(), "system_error.*the port is taken");
    EXPECT_DEATH((void)*std::move(r), "the port is taken");
}

}  // namespace
}  // namespace accel
