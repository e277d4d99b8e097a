// SPDX-License-Identifier: Apache-2.0
#include <accel_transport/status.hpp>

#include <array>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

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

TEST(result, a_constant_result_gives_its_value) {
    const result<std::string> r{std::string("value")};
    EXPECT_EQ(*r, "value");
    EXPECT_EQ(r->size(), 5U);
    static_assert(std::is_same_v<decltype(*r), const std::string&>);
}

TEST(result, a_result_of_the_data_path_holds_a_value_or_a_status) {
    using small = result<std::string_view, status>;
    static_assert(std::is_trivially_copyable_v<small>);
    static_assert(sizeof(small) <= sizeof(std::string_view) + alignof(std::string_view));
    const small good{std::string_view("value")};
    EXPECT_TRUE(good);
    EXPECT_EQ(good.code(), status::ok);
    EXPECT_EQ(*good, "value");
    EXPECT_EQ(good->size(), 5U);
    const small none{status::again};
    EXPECT_FALSE(none);
    EXPECT_EQ(none.code(), status::again);
    EXPECT_EQ(none.error(), status::again);
    const auto letters = [](std::span<char> room) -> result<std::span<char>, status> { return room.first(2); };
    std::array<char, 4> room{'a', 'b', 'c', 'd'};
    for (char& each : *letters(room)) each = 'x';  // lives as long as the loop
    EXPECT_EQ(std::string_view(room.data(), room.size()), "xxcd");
}

TEST(result, value_of_an_error_ends_the_process_with_its_sentence) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    result<int> r{error{status::system_error, 98, "the port is taken"}};
    EXPECT_DEATH((void)r.value(), "system_error.*the port is taken");
    EXPECT_DEATH((void)*std::move(r), "the port is taken");
    EXPECT_DEATH((void)*std::as_const(r), "the port is taken");
    const result<int, status> none{status::again};
    EXPECT_DEATH((void)*none, "again");
    EXPECT_DEATH((void)none.value(), "again");
    const result<int, status> one{1};
    EXPECT_DEATH((void)one.error(), "has a value");
}

}  // namespace
}  // namespace accel
