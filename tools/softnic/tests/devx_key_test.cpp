// SPDX-License-Identifier: Apache-2.0
// DevX commands for memory keys: over umems, and made of other keys. What they refuse is in devx_objects_test.cpp.
#include "devx_fixture.hpp"

namespace accel::softnic {
namespace {

using testing::devx_exchange;
using testing::devx_fixture;

struct devx_keys : devx_fixture {
    [[nodiscard]] region_table::result check(std::uint32_t key, std::uint64_t at, std::uint64_t size,
                                             std::uint32_t needed) {
        return target.own_device().regions.check(key, {.pd = pd}, at, size, needed);
    }
};

TEST_F(devx_keys, a_key_covers_its_range_of_a_umem_with_its_rights) {
    constexpr std::pair<devx::field, std::uint32_t> rights[]{{devx::mkc::lw, access::local_write},
                                                             {devx::mkc::rw, access::remote_write},
                                                             {devx::mkc::rr, access::remote_read},
                                                             {devx::mkc::a, access::remote_atomic}};
    for (const auto& [field, right] : rights) {
        auto made = key_command();
        for (const auto& [each, of_each] : rights) made.set(in_key(each), of_each == right ? 1 : 0);
        made.set(in_key(devx::mkc::mkey_7_0), 0x77);
        ASSERT_EQ(create(made), 0);
        const std::uint32_t key = made.object() << 8 | 0x77;
        for (const auto& [each, needed] : rights) {
            const auto expected = needed == right ? access_check::ok : access_check::denied;
            EXPECT_EQ(check(key, key_begin, 8, needed).status, expected) << needed << " of " << right;
        }
        EXPECT_EQ(check(key, key_begin, 16384, right).status, access_check::ok);
        EXPECT_EQ(check(key, key_begin + 1, 16384, right).status, access_check::out_of_bounds);
        EXPECT_EQ(check(key, key_begin + 16, 8, right).region->engine_address(key_begin + 16),
                  reinterpret_cast<std::uint64_t>(memory) + 4096 + 16);
        EXPECT_EQ(destroy(made.handle), 0);
    }
    EXPECT_EQ(target.own_device().regions.size(), 0u);
}

TEST_F(devx_keys, a_key_of_pieces_leads_to_the_same_bytes_at_other_addresses) {
    auto base = key_command();
    ASSERT_EQ(create(base), 0);
    auto made = alias_command(base.object() << 8);
    ASSERT_EQ(create(made), 0);
    const std::uint32_t key = made.object() << 8;
    const std::uint64_t begin = key_begin + 0x508;
    const auto found = check(key, begin + 4096, 64, access::remote_read);
    ASSERT_EQ(found.status, access_check::ok);
    EXPECT_EQ(found.region->engine_address(begin + 4096), reinterpret_cast<std::uint64_t>(memory) + 4096 + 4096);
    EXPECT_EQ(check(key, begin, 16384, access::remote_read).status, access_check::ok);
    EXPECT_EQ(check(key, begin, 16385, access::remote_read).status, access_check::out_of_bounds);
    EXPECT_EQ(check(key, begin, 8, access::remote_write).status, access_check::denied);
    auto longer = alias_command(base.object() << 8);
    longer.set(in_key(devx::mkc::translations_octword_size), 1).set(in_key(devx::mkc::log_entity_size), 20);
    longer.set(in_key(devx::mkc::len), 1 << 20);
    ASSERT_EQ(create(longer), 0);
    const std::uint32_t beyond = longer.object() << 8;
    EXPECT_EQ(check(beyond, begin + 16380, 4, access::remote_read).status, access_check::ok);
    EXPECT_EQ(check(beyond, begin + 16380, 5, access::remote_read).status, access_check::out_of_bounds)
        << "it ends with the region that it refers to";
}

}  // namespace
}  // namespace accel::softnic
