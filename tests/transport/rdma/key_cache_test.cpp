// SPDX-License-Identifier: Apache-2.0
#include "backends/rdma/key_cache.hpp"

#include <cstdint>
#include <random>
#include <set>
#include <utility>

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

TEST(key_cache, grows_no_further_than_its_limit_and_never_has_a_wrong_key) {
    std::mt19937 random(1);
    key_cache cache;
    EXPECT_EQ(cache.find(1, verbs::access::send), nullptr);
    std::set<std::pair<std::uint64_t, verbs::access>> put;
    const auto find = [&](std::uint64_t region, verbs::access use) {
        const verbs::memory_keys* const found = cache.find(region, use);
        if (found == nullptr) return false;
        EXPECT_TRUE(put.contains({region, use}));
        EXPECT_EQ(found->local, static_cast<std::uint32_t>(region));
        EXPECT_EQ(found->remote, static_cast<std::uint32_t>(use));
        return true;
    };
    for (std::uint64_t each = 1; each <= 4 * key_cache::most; ++each) {
        const auto use = random() % 2 == 0 ? verbs::access::send : verbs::access::peer_writes;
        cache.put(entry_of(each, use));
        put.insert({each, use});
        ASSERT_TRUE(find(each, use)) << each;
        (void)find(1 + random() % (each + 2), use);
        ASSERT_LE(cache.size(), key_cache::most);
    }
    EXPECT_EQ(cache.size(), key_cache::most);
}

}  // namespace
}  // namespace accel::rdma
