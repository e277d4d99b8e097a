// SPDX-License-Identifier: Apache-2.0
// DevX commands for memory keys: over umems, and made of other keys.
#include "devx_fixture.hpp"

namespace accel::softnic {
namespace {

using devx::reason;
using devx::status;
using testing::devx_exchange;
using testing::devx_fixture;

struct devx_keys : devx_fixture {};

TEST_F(devx_keys, keys_cover_their_range_of_a_umem) {
    const auto key_command = [&] {
        devx_exchange what(devx::opcode::create_mkey);
        const auto put = [&](devx::field of, std::uint64_t value) {
            what.set(of.at(devx::create_mkey::context), value);
        };
        put(devx::mkc::access_mode_1_0, 1);
        put(devx::mkc::lw, 1);
        put(devx::mkc::mkey_7_0, 0x77);
        put(devx::mkc::pd, pd);
        put(devx::mkc::start_addr, 0x5000);
        put(devx::mkc::len, 4096);
        what.set(devx::create_mkey::umem_id, umem).set(devx::create_mkey::umem_offset, 8192);
        return what;
    };
    auto made = key_command();
    ASSERT_EQ(create(made), 0);
    const auto& regions = target.own_device().regions;
    const std::uint32_t key = made.object() << 8 | 0x77;
    EXPECT_EQ(regions.check(key, {.pd = pd}, 0x5000, 4096, access::local_write).status, access_check::ok);
    EXPECT_EQ(regions.check(key, {.pd = pd}, 0x5001, 4096, 0).status, access_check::out_of_bounds);
    EXPECT_EQ(regions.check(key, {.pd = pd}, 0x5000, 8, access::remote_write).status, access_check::denied);
    EXPECT_EQ(regions.find(key)->engine_address(0x5010), reinterpret_cast<std::uint64_t>(memory) + 8192 + 16);
    const auto refuse = [&](devx::field where, std::uint64_t value, status expected, reason why) {
        auto what = key_command();
        what.set(where, value);
        expect_refused(create(what), what, expected, why);
    };
    const auto context = [](devx::field of) { return of.at(devx::create_mkey::context); };
    refuse(devx::create_mkey::umem_offset, memory_bytes - 4095, status::bad_parameter, reason::outside_umem);
    refuse(context(devx::mkc::len), 0, status::bad_parameter, reason::bad_attribute);
    refuse(context(devx::mkc::start_addr), ~0ull, status::bad_parameter, reason::bad_attribute);
    refuse(context(devx::mkc::access_mode_1_0), 2, status::bad_parameter, reason::not_modelled);
    refuse(context(devx::mkc::length64), 1, status::bad_parameter, reason::not_modelled);
    refuse(context(devx::mkc::pd), pd + 999, status::bad_resource, reason::no_such_domain);
    EXPECT_EQ(destroy(made.handle), 0);
    EXPECT_EQ(regions.size(), 0u);
}

TEST_F(devx_keys, keys_that_write_need_a_umem_that_may_be_written) {
    std::uint32_t read_only = 0;
    ASSERT_EQ(register_umem(memory, 4096, 0, read_only), 0);
    devx_exchange what(devx::opcode::create_mkey);
    what.set(devx::mkc::access_mode_1_0.at(devx::create_mkey::context), 1);
    what.set(devx::mkc::pd.at(devx::create_mkey::context), pd);
    what.set(devx::mkc::len.at(devx::create_mkey::context), 4096);
    what.set(devx::create_mkey::umem_id, read_only);
    EXPECT_EQ(create(what), 0);
    what.set(devx::mkc::lw.at(devx::create_mkey::context), 1);
    expect_refused(create(what), what, status::bad_parameter, reason::umem_is_read_only);
}

// ---- keys made of others

struct devx_alias : devx_fixture {
    static constexpr std::uint64_t begin = 0x7000'0000;
    std::uint32_t base_key = 0;
    std::uint32_t base_handle = 0;

    devx_alias() {
        devx_exchange what(devx::opcode::create_mkey);
        const auto put = [&](devx::field of, std::uint64_t value) { what.set(in_key(of), value); };
        put(devx::mkc::access_mode_1_0, 1);
        for (const devx::field right : {devx::mkc::lw, devx::mkc::rw, devx::mkc::rr}) put(right, 1);
        put(devx::mkc::pd, pd);
        put(devx::mkc::start_addr, begin);
        put(devx::mkc::len, 16384);
        what.set(devx::create_mkey::umem_id, umem);
        EXPECT_EQ(create(what), 0);
        base_key = what.object() << 8;
        base_handle = what.handle;
    }
    static devx::field in_key(devx::field of) { return of.at(devx::create_mkey::context); }
    static devx::field in_entry(devx::field of, std::uint32_t index) {
        return of.at(devx::create_mkey::entries + index * devx::klm::bytes * 8);
    }
    /// Four pieces of 4 KiB from `begin` on, at addresses that are 0x508 higher, for reading only.
    [[nodiscard]] devx_exchange alias_command() const {
        devx_exchange what(devx::opcode::create_mkey, devx::create_mkey::in_bytes + 4 * devx::klm::bytes);
        const auto put = [&](devx::field of, std::uint64_t value) { what.set(in_key(of), value); };
        put(devx::mkc::access_mode_1_0, 3);
        put(devx::mkc::rr, 1);
        put(devx::mkc::pd, pd);
        put(devx::mkc::start_addr, begin + 0x508);
        put(devx::mkc::len, 16384);
        put(devx::mkc::translations_octword_size, 4);
        put(devx::mkc::log_entity_size, 12);
        for (std::uint32_t at = 0; at < 4; ++at)
            what.set(in_entry(devx::klm::mkey, at), base_key).set(in_entry(devx::klm::address, at), begin + at * 4096);
        return what;
    }
    [[nodiscard]] region_table::result check(std::uint32_t key, std::uint64_t at, std::uint64_t size,
                                             std::uint32_t needed) {
        return target.own_device().regions.check(key, {.pd = pd}, at, size, needed);
    }
};

TEST_F(devx_alias, a_key_of_pieces_leads_to_the_same_bytes_at_other_addresses) {
    auto made = alias_command();
    ASSERT_EQ(create(made), 0);
    const std::uint32_t key = made.object() << 8;
    const auto found = check(key, begin + 0x508 + 4096, 64, access::remote_read);
    ASSERT_EQ(found.status, access_check::ok);
    EXPECT_EQ(found.region->engine_address(begin + 0x508 + 4096), reinterpret_cast<std::uint64_t>(memory) + 4096);
    EXPECT_EQ(check(key, begin + 0x508, 16384, access::remote_read).status, access_check::ok);
    EXPECT_EQ(check(key, begin + 0x508, 16385, access::remote_read).status, access_check::out_of_bounds);
    EXPECT_EQ(check(key, begin, 8, access::remote_read).status, access_check::out_of_bounds);
    EXPECT_EQ(check(key, begin + 0x508, 8, access::remote_write).status, access_check::denied);
    EXPECT_EQ(destroy(base_handle), 0);
    EXPECT_EQ(check(key, begin + 0x508, 8, access::remote_read).status, access_check::bad_key)
        << "nothing is behind it any more";
    EXPECT_EQ(destroy(made.handle), 0);
}

TEST_F(devx_alias, a_key_of_pieces_ends_with_the_region_that_it_refers_to) {
    auto made = alias_command();
    made.set(in_key(devx::mkc::translations_octword_size), 1).set(in_key(devx::mkc::log_entity_size), 20);
    made.set(in_key(devx::mkc::len), 1 << 20);
    ASSERT_EQ(create(made), 0);
    const std::uint32_t key = made.object() << 8;
    EXPECT_EQ(check(key, begin + 0x508 + 16380, 4, access::remote_read).status, access_check::ok);
    EXPECT_EQ(check(key, begin + 0x508 + 16380, 5, access::remote_read).status, access_check::out_of_bounds);
    EXPECT_EQ(check(key, begin + 0x508 + 20000, 4, access::remote_read).status, access_check::out_of_bounds);
}

TEST_F(devx_alias, keys_of_pieces_are_checked_whole) {
    const auto refuse = [&](devx::field where, std::uint64_t value, status expected, reason why) {
        auto what = alias_command();
        what.set(where, value);
        expect_refused(create(what), what, expected, why);
    };
    const auto count = in_key(devx::mkc::translations_octword_size);
    refuse(count, 5, status::bad_input_length, reason::input_too_short);
    refuse(count, 0xffffffff, status::bad_input_length, reason::input_too_short);
    refuse(count, 0, status::bad_input_length, reason::input_too_short);
    refuse(count, 3, status::bad_parameter, reason::bad_attribute);
    refuse(in_entry(devx::klm::address, 2), begin, status::bad_parameter, reason::not_modelled);
    refuse(in_entry(devx::klm::mkey, 3), base_key + 1, status::bad_parameter, reason::not_modelled);
    auto nobody = alias_command();
    for (std::uint32_t at = 0; at < 4; ++at) nobody.set(in_entry(devx::klm::mkey, at), 0x777700);
    expect_refused(create(nobody), nobody, status::bad_resource, reason::no_such_key);
    auto first = alias_command();
    ASSERT_EQ(create(first), 0);
    auto second = alias_command();
    for (std::uint32_t at = 0; at < 4; ++at) second.set(in_entry(devx::klm::mkey, at), first.object() << 8);
    expect_refused(create(second), second, status::bad_parameter, reason::not_modelled);
}

}  // namespace
}  // namespace accel::softnic
