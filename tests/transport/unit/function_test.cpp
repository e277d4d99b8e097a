// SPDX-License-Identifier: Apache-2.0
#include <accel_transport/function.hpp>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

namespace accel {
namespace {

int twice(int value) {
    return 2 * value;
}

TEST(shared_function, calls_what_it_was_made_from) {
    const shared_function<int(int)> of_function = twice;
    EXPECT_EQ(of_function(4), 8);
    int calls = 0;
    const shared_function<void()> of_lambda = [&calls] { ++calls; };
    of_lambda();
    EXPECT_EQ(calls, 1);
    static_assert(!std::is_constructible_v<shared_function<int(int)>, std::string>);
    static_assert(!std::is_constructible_v<shared_function<int(int)>, void (*)()>);
}

TEST(shared_function, takes_and_passes_what_can_only_be_moved) {
    using owned = std::unique_ptr<std::string>;
    const shared_function<owned(owned)> joined = [tail = std::make_unique<std::string>("tail")](owned head) {
        *head += *tail;
        return head;
    };
    EXPECT_EQ(*joined(std::make_unique<std::string>("head and ")), "head and tail");
}

TEST(shared_function, copies_share_the_callable_and_the_last_one_destroys_it) {
    auto alive = std::make_shared<int>(0);
    const std::weak_ptr<int> watched = alive;
    shared_function<int()> first = [count = std::move(alive)] { return ++*count; };
    {
        const shared_function<int()> second = first;  // NOLINT(performance-unnecessary-copy-initialization)
        EXPECT_EQ(first() + second(), 3);
        first = {};
        EXPECT_FALSE(first);
        EXPECT_FALSE(watched.expired());
        EXPECT_EQ(second(), 3);
    }
    EXPECT_TRUE(watched.expired());
}

TEST(shared_function, is_empty_without_a_callable) {
    EXPECT_FALSE(shared_function<void()>{});
    int (*none)(int) = nullptr;
    EXPECT_FALSE((shared_function<int(int)>{none}));
    EXPECT_TRUE((shared_function<int(int)>{twice}));
}

}  // namespace
}  // namespace accel
