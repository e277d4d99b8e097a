// SPDX-License-Identifier: Apache-2.0
// The registrations of lent memory: once for each range, merged, and never one of memory that is gone.
#include "verbs/domain.hpp"

#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace accel::verbs {
namespace {

class verbs_domain : public ::testing::Test {
  protected:
    [[nodiscard]] std::span<std::byte> part(std::size_t offset, std::size_t length) {
        return std::span{memory_}.subspan(offset, length);
    }
    [[nodiscard]] memory_keys acquire(std::uint64_t user, std::span<std::byte> range, access use = access::send) {
        return domain_->acquire(user, range, use).value();
    }
    std::vector<std::byte> memory_ = std::vector<std::byte>(64 << 10);
    std::shared_ptr<device> device_ = device::open({}, {}).value();
    std::shared_ptr<domain> domain_ = domain::create(device_).value();
};

TEST_F(verbs_domain, a_fork_leaves_registered_pages_to_the_device) {
    // Unneeded, too, is well.
    EXPECT_NE(ibv_is_fork_initialized(), IBV_FORK_DISABLED);
}

/// The peer is told no key that does more than it has to.
TEST_F(verbs_domain, a_range_is_registered_once_for_each_use) {
    const auto sent = acquire(1, part(0, 8192), access::send);
    const auto written = acquire(1, part(0, 8192), access::peer_writes);
    EXPECT_NE(sent.local, written.local);
    for (const auto& [use, keys] : {std::pair{access::send, sent}, std::pair{access::peer_writes, written}}) {
        EXPECT_EQ(acquire(1, part(0, 8192), use).local, keys.local);
        EXPECT_EQ(acquire(2, part(100, 1000), use).local, keys.local) << "inside of it";
    }
    EXPECT_EQ(domain_->registrations(), 2U);
}

TEST_F(verbs_domain, ranges_that_touch_or_overlap_become_one) {
    (void)acquire(1, part(0, 4096));
    (void)acquire(2, part(4096, 4096));
    EXPECT_EQ(domain_->registrations(), 2U) << "the first stays for whoever has its keys";
    const auto both = acquire(3, part(0, 8192));
    EXPECT_EQ(domain_->registrations(), 2U);
    EXPECT_EQ(acquire(4, part(2000, 5000)).local, both.local);
    (void)acquire(5, part(16384, 4096));
    EXPECT_EQ(domain_->registrations(), 3U) << "far away";
}

TEST_F(verbs_domain, forgotten_memory_is_registered_again) {
    const auto first = acquire(1, part(0, 8192));
    (void)acquire(2, part(0, 4096));
    domain_->forget(1, part(0, 8192));
    EXPECT_EQ(domain_->registrations(), 1U) << "the second still has its keys";
    const auto fresh = acquire(3, part(0, 8192));
    EXPECT_NE(fresh.local, first.local) << "other memory may lie there by now";
    domain_->forget(2, part(0, 4096));
    domain_->forget(3, part(0, 8192));
    EXPECT_EQ(domain_->registrations(), 0U);
}

TEST_F(verbs_domain, an_unmapped_neighbour_does_not_prevent_a_registration) {
    constexpr std::size_t page = 4096;
    auto* map =
        static_cast<std::byte*>(::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(map, MAP_FAILED);
    ASSERT_TRUE(domain_->acquire(1, {map, page}, access::send).ok());
    ASSERT_EQ(::munmap(map, page), 0);  // its owner forgot to say so
    EXPECT_TRUE(domain_->acquire(2, {map + page, page}, access::send).ok());
    ::munmap(map + page, 2 * page);
}

TEST_F(verbs_domain, unmapped_memory_is_an_error_with_a_sentence) {
    // Linux maps nothing at so low an address (vm.mmap_min_addr). Memory that the test unmaps itself might be mapped
    // again at once, by another thread.
    auto* const nowhere = reinterpret_cast<std::byte*>(std::uintptr_t{4096});
    const auto refused = domain_->acquire(1, {nowhere, 4096}, access::send);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("cannot register 4096 bytes"), std::string::npos);
    EXPECT_EQ(domain_->registrations(), 0U);
}

}  // namespace
}  // namespace accel::verbs
