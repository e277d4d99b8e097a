// SPDX-License-Identifier: Apache-2.0
#include "digits/digit_answer.hpp"
#include "digits/network_math.hpp"
#include "digits/service_choice.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace accel::examples::digits {
namespace {

std::int64_t distance(float a, float b) {
    return std::abs(std::int64_t{std::bit_cast<std::int32_t>(a)} - std::bit_cast<std::int32_t>(b));
}

TEST(digits_exponential, the_exponential_is_the_nearest_float_or_its_neighbour_and_exact_at_its_ends) {
    for (float x = 0.0f; x > -104.0f; x -= 0.00137f) {
        const auto nearest = static_cast<float>(std::exp(static_cast<double>(x)));
        ASSERT_LE(distance(exponential(x), nearest), 1) << x;
    }
    EXPECT_EQ(exponential(0.0f), 1.0f);
    EXPECT_EQ(exponential(-0.0f), 1.0f);
    EXPECT_EQ(exponential(-104.0f), 0.0f);
    EXPECT_EQ(exponential(-std::numeric_limits<float>::infinity()), 0.0f);
    EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEST(digits_refusals, refusals_travel_in_the_label) {
    for (std::uint32_t digit = 0; digit < class_count; ++digit) EXPECT_EQ(refusal_of(digit), failure::none);
    for (int i = 1; i <= static_cast<int>(failure::frame_blank); ++i)
        EXPECT_EQ(refusal_of(label_of(static_cast<failure>(i))), static_cast<failure>(i));
    EXPECT_EQ(refusal_of(label_of(failure::frame_blank) + 1), failure::none);
    EXPECT_EQ(refusal_of(0xFFFFFFFF), failure::none);
}

TEST(digits_memory_option, takes_host_gpus_by_number_and_auto) {
    EXPECT_EQ(parse_memory("host"), memory_kind::host());
    EXPECT_EQ(parse_memory("cuda:0"), memory_kind::cuda(0));
    EXPECT_EQ(parse_memory("cuda:7"), memory_kind::cuda(7));
    for (const char* wrong : {"", "cuda", "cuda:", "cuda:-1", "cuda:0x", "cuda:99999", "gpu", "auto"})
        EXPECT_EQ(parse_memory(wrong), std::nullopt) << wrong;
    for (const char* good : {"host", "cuda:0", "auto"}) EXPECT_EQ(check_memory_option(good), "");
    EXPECT_NE(check_memory_option("gpu"), "");
    EXPECT_EQ(to_text(memory_kind::cuda(3)), "cuda:3");
    EXPECT_EQ(to_text(memory_kind::host()), "host");
}

TEST(digits_place, the_chosen_place_has_a_reason) {
    auto context = context::open({.log = log_level::off});
    ASSERT_TRUE(context);
    const auto host = choose_place(*context, "host");
    ASSERT_TRUE(host);
    EXPECT_EQ(host.value().memory, memory_kind::host());
    const auto chosen = choose_place(*context, "auto");
    ASSERT_TRUE(chosen);
    EXPECT_FALSE(chosen.value().reason.empty());
    // No machine has so many.
    const auto named = choose_place(*context, "cuda:32000");
    ASSERT_FALSE(named);
    EXPECT_EQ(named.error().code, status::unsupported);
    EXPECT_FALSE(named.error().message.empty());
}

}  // namespace
}  // namespace accel::examples::digits
