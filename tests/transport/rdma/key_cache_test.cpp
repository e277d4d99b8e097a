// SPDX-License-Identifier: Apache-2.0
#include "backends/rdma/key_cache.hpp"

#include <cstdint>

#include <gtest/gtest.h>

namespace accel::rdma {
namespace {

key_cache::entry entry_of(std::uint64_t region, verbs::access use) {
    return {region, use, {static_cast<std::uint32_t>(region), static_cast<std::uint32_t>(use)}};
}

/// A list of ranges may name that many, again and again.
TEST(key_cache, keeps_the_keys_of_many_regions_for_both_uses) {
    constexpr std::uint64_t first = 1'000'003;
    constexpr std::uint64_t count = 64;
    key_cache cache;
    for (std::uint64_t i = first; i < first + count; ++i)
        for (const auto use : {verbs::access::send, verbs::access::peer_writes}) cache.put(entry_of(i, use));
    for (std::uint64_t i = first; i < first + count; ++i) {
        for (const auto use : {verbs::access::send, verbs::access::peer_writes}) {
            const verbs::memory_keys* const found = cache.find(i, use);
            ASSERT_NE(found, nullptr) << i;
            EXPECT_EQ(found->local, static_cast<std::uint32_t>(i));
            EXPECT_EQ(found->remote, static_cast<std::uint32_t>(use));
        }
    }
    EXPECT_EQ(cache.find(first - 1, verbs::access::send), nullptr);
    EXPECT_EQ(cache.find(first + count, verbs::access::send), nullptr);
}

TEST(key_cache, grows_no_further_than_its_limit) {
    key_cache cache;
    constexpr std::uint64_t regions = 4 * key_cache::most;
    for (std::uint64_t each = 1; each <= regions; ++each) {
        cache.put(entry_of(each, verbs::access::send));
        ASSERT_NE(cache.find(each, verbs::access::send), nullptr) << each;
    }
    EXPECT_EQ(cache.size(), key_cache::most);
    EXPECT_EQ(cache.find(1, verbs::access::send), nullptr);
}

TEST(key_cache, a_new_key_cache_is_empty) {
    const key_cache cache;
    EXPECT_EQ(cache.find(1, verbs::access::send), nullptr);
}

}  // namespace
}  // namespace accel::rdma
