// SPDX-License-Identifier: Apache-2.0
// DevX commands for dynamically connected transport and for shared receive queues: what each does, and what it refuses.
#include "devx_fixture.hpp"

#include <array>
#include <cstring>

namespace accel::softnic {
namespace {

using devx::reason;
using devx::status;
using testing::devx_exchange;
using testing::devx_fixture;

devx::field of_target(devx::field of) {
    return of.at(devx::create_dct::context);
}
devx::field of_receives(devx::field of) {
    return of.at(devx::rmpc::queue).at(devx::create_rmp::context);
}

struct devx_dynamic_test : devx_fixture {
    static constexpr std::size_t receives_place = 32 * 1024;
    static constexpr std::size_t receives_record = 62 * 1024;
    static constexpr std::uint64_t key = 0x0123456789abcdef;

    devx_exchange queue = cq_command();
    devx_exchange receives = receives_command();

    devx_dynamic_test() {
        EXPECT_EQ(create(queue), 0);
        EXPECT_EQ(create(receives), 0);
    }
    [[nodiscard]] devx_exchange receives_command() const {
        devx_exchange what(devx::opcode::create_rmp);
        what.set(devx::rmpc::state.at(devx::create_rmp::context), 1);
        what.set(of_receives(devx::wq::wq_type), 1).set(of_receives(devx::wq::pd), pd);
        what.set(of_receives(devx::wq::log_wq_stride), 5).set(of_receives(devx::wq::log_wq_sz), 4);
        what.set(of_receives(devx::wq::dbr_umem_id), umem).set(of_receives(devx::wq::dbr_addr), receives_record);
        what.set(of_receives(devx::wq::wq_umem_id), umem);
        return what.set(of_receives(devx::wq::wq_umem_offset), receives_place);
    }
    [[nodiscard]] devx_exchange target_command() const {
        devx_exchange what(devx::opcode::create_dct);
        what.set(of_target(devx::dctc::pd), pd).set(of_target(devx::dctc::cqn), queue.object());
        what.set(of_target(devx::dctc::srqn_xrqn), receives.object());
        what.set(of_target(devx::dctc::dc_access_key), key);
        what.set(of_target(devx::dctc::rre), 1).set(of_target(devx::dctc::min_rnr_nak), 12);
        return what.set(of_target(devx::dctc::mtu), 3).set(of_target(devx::dctc::port), 1);
    }
    [[nodiscard]] devx_exchange initiator_command() const {
        auto what = qp_command(queue.object());
        return what.set(devx::qpc::st.at(devx::create_qp::context), 5);
    }
    void refuse(devx_exchange what, devx::field where, std::uint64_t value, status expected, reason why) {
        what.set(where, value);
        expect_refused(create(what), what, expected, why);
    }
};

TEST_F(devx_dynamic_test, a_target_takes_connections_as_soon_as_it_is_made) {
    auto made = target_command();
    ASSERT_EQ(create(made), 0);
    const queue_pair* target_pair = target.own_device().find_queue_pair(made.object());
    ASSERT_NE(target_pair, nullptr);
    EXPECT_TRUE(target_pair->is_target());
    EXPECT_EQ(target_pair->state, qp_state::ready_to_receive);
    EXPECT_EQ(target_pair->options.access_key, key);
    EXPECT_EQ(target_pair->attributes.access, access::remote_read);
    auto ask = step(devx::opcode::query_dct, made.object());
    ASSERT_EQ(query(ask, made.handle), 0);
    const auto get = [&](devx::field of) { return devx::mailbox_in(ask.out).get(of.at(devx::query_dct::context)); };
    EXPECT_EQ(get(devx::dctc::state), 0u) << "active";
    EXPECT_EQ(get(devx::dctc::dc_access_key), key);
    EXPECT_EQ(get(devx::dctc::srqn_xrqn), receives.object());
    EXPECT_EQ(get(devx::dctc::cqn), queue.object());
    EXPECT_EQ(get(devx::dctc::rre), 1u);
    EXPECT_EQ(get(devx::dctc::rwe), 0u);
    EXPECT_EQ(get(devx::dctc::min_rnr_nak), 12u);
}

TEST_F(devx_dynamic_test, invalid_targets_are_refused) {
    const auto plain = target_command();
    refuse(plain, of_target(devx::dctc::pd), pd + 999, status::bad_resource, reason::no_such_domain);
    refuse(plain, of_target(devx::dctc::cqn), 999, status::bad_resource, reason::no_such_completion_queue);
    refuse(plain, of_target(devx::dctc::srqn_xrqn), 999, status::bad_resource, reason::no_such_receive_queue);
    refuse(plain, of_target(devx::dctc::port), 2, status::bad_parameter, reason::bad_attribute);
    refuse(plain, of_target(devx::dctc::port), 0, status::bad_parameter, reason::bad_attribute);
    refuse(plain, of_target(devx::dctc::mtu), 7, status::bad_parameter, reason::bad_attribute);
    refuse(plain, of_target(devx::dctc::pkey_index), 0xffff, status::bad_parameter, reason::bad_attribute);
    refuse(plain, of_target(devx::dctc::offload_type), 1, status::bad_parameter, reason::not_modelled);
    auto cut = plain;
    cut.in.resize(devx::create_dct::in_bytes - 1);
    expect_refused(create(cut), cut, status::bad_input_length, reason::input_too_short);
    EXPECT_TRUE(target.qps.empty());
    EXPECT_TRUE(target.own_device().queue_pairs().empty()) << "nothing stays of those that were refused";
}

TEST_F(devx_dynamic_test, commands_of_targets_and_of_queue_pairs_do_not_mix) {
    auto made = target_command();
    ASSERT_EQ(create(made), 0);
    auto other = initiator_command();
    ASSERT_EQ(create(other), 0);
    auto as_pair = step(devx::opcode::query_qp, made.object());
    EXPECT_EQ(query(as_pair, made.handle), EINVAL);
    auto to_error = step(devx::opcode::qp_2err, made.object());
    EXPECT_EQ(modify(to_error, made.handle), EINVAL);
    auto as_target = step(devx::opcode::query_dct, other.object());
    EXPECT_EQ(query(as_target, other.handle), EINVAL);
    auto arm = step(devx::opcode::arm_dct_for_key_violation, other.object());
    EXPECT_EQ(modify(arm, other.handle), EINVAL);
    auto drain = step(static_cast<devx::opcode>(0x712), made.object());
    EXPECT_EQ(modify(drain, made.handle), EINVAL) << "the driver keeps DRAIN_DCT to itself";
    EXPECT_EQ(general(drain), EINVAL);
}

TEST_F(devx_dynamic_test, an_initiator_ignores_attributes_for_receiving) {
    auto made = initiator_command();
    ASSERT_EQ(create(made), 0);
    const queue_pair* pair = target.own_device().find_queue_pair(made.object());
    ASSERT_TRUE(pair->is_initiator());
    EXPECT_EQ(pair->options.receives.entries, 0u);
    std::memset(memory + qp_place, 0x77, 16);
    std::array<std::byte, 16> first{};
    ASSERT_TRUE(pair->options.send_buffer.read(0, first.data(), first.size()));
    EXPECT_EQ(first[0], std::byte{0x77}) << "the send queue is not behind receives that are not there";
    auto init = to_init(made.object());
    auto receive = to_receive(made.object(), 77);
    receive.set(devx::modify_qp::opt_param_mask, devx::opt_param::rae).set(in_step(devx::qpc::rae), 1);
    auto send = to_send(made.object());
    ASSERT_EQ(modify(init, made.handle), 0);
    ASSERT_EQ(modify(receive, made.handle), 0);
    ASSERT_EQ(modify(send, made.handle), 0);
    EXPECT_EQ(pair->state, qp_state::ready_to_send);
    EXPECT_EQ(pair->attributes.access, 0u);
    EXPECT_EQ(pair->attributes.remote_qpn, 0u);
    EXPECT_EQ(pair->attributes.path_mtu, 3u);
    auto ask = step(devx::opcode::query_qp, made.object());
    ASSERT_EQ(query(ask, made.handle), 0);
    EXPECT_EQ(ask.get(devx::qpc::st.at(devx::query_qp::context)), 5u);
    auto without = initiator_command();
    without.set(devx::qpc::no_sq.at(devx::create_qp::context), 1);
    expect_refused(create(without), without, status::bad_parameter, reason::not_modelled);
    auto unknown = initiator_command();
    unknown.set(devx::qpc::st.at(devx::create_qp::context), 3);
    expect_refused(create(unknown), unknown, status::bad_parameter, reason::not_modelled);
}

TEST_F(devx_dynamic_test, receive_queues_lie_inside_their_umem_and_within_limits) {
    const auto plain = receives_command();
    refuse(plain, of_receives(devx::wq::wq_umem_offset), memory_bytes - 511, status::bad_parameter,
           reason::outside_umem);
    refuse(plain, of_receives(devx::wq::wq_umem_offset), 32, status::bad_parameter, reason::bad_attribute);
    refuse(plain, of_receives(devx::wq::dbr_addr), memory_bytes, status::bad_parameter, reason::outside_umem);
    refuse(plain, of_receives(devx::wq::wq_umem_id), 999, status::bad_resource, reason::no_such_umem);
    refuse(plain, of_receives(devx::wq::pd), 999, status::bad_resource, reason::no_such_domain);
    refuse(plain, of_receives(devx::wq::log_wq_stride), 4, status::limit_exceeded, reason::bad_queue_size);
    refuse(plain, of_receives(devx::wq::log_wq_stride), 11, status::limit_exceeded, reason::bad_queue_size);
    refuse(plain, of_receives(devx::wq::log_wq_sz), 31, status::limit_exceeded, reason::bad_queue_size);
    refuse(plain, of_receives(devx::wq::wq_type), 3, status::bad_parameter, reason::not_modelled);
    refuse(plain, devx::rmpc::basic_cyclic_rcv_wqe.at(devx::create_rmp::context), 1, status::bad_parameter,
           reason::not_modelled);
    refuse(plain, devx::rmpc::state.at(devx::create_rmp::context), 0, status::bad_parameter, reason::bad_attribute);
    EXPECT_EQ(target.srqs.size(), 1u);
}

TEST_F(devx_dynamic_test, a_receive_queue_is_described_limited_and_kept_while_it_is_used) {
    auto made = target_command();
    ASSERT_EQ(create(made), 0);
    EXPECT_EQ(destroy(receives.handle), EBUSY);
    EXPECT_EQ(deregister_umem(umem), EBUSY);
    auto limit = step(devx::opcode::modify_rmp, receives.object());
    limit.set(devx::modify_rmp::bitmask_lwm, 1).set(of_receives(devx::wq::lwm), 3);
    target.srqs.begin()->second->arm_limit(0);
    // Empty: the limit is met at once, and is off again.
    ASSERT_EQ(modify(limit, receives.handle), 0);
    auto ask = step(devx::opcode::query_rmp, receives.object());
    ASSERT_EQ(query(ask, receives.handle), 0);
    EXPECT_EQ(ask.get(of_receives(devx::wq::lwm)), 0u);
    EXPECT_EQ(ask.get(of_receives(devx::wq::log_wq_sz)), 4u);
    EXPECT_EQ(ask.get(of_receives(devx::wq::wq_type)), 1u);
    limit.set(of_receives(devx::wq::lwm), 16);
    expect_refused(modify(limit, receives.handle), limit, status::bad_parameter, reason::bad_attribute);
    EXPECT_EQ(destroy(made.handle), 0);
    EXPECT_EQ(destroy(made.handle), ENOENT);
    EXPECT_EQ(destroy(receives.handle), 0);
}

TEST_F(devx_dynamic_test, targets_are_destroyed_with_their_context) {
    std::uint32_t number = 0;
    {
        auto made = target_command();
        ASSERT_EQ(create(made), 0);
        number = made.object();
    }
    EXPECT_NE(target.own_device().find_queue_pair(number), nullptr);
    while (!target.qps.empty()) target.destroy_qp(target.qps.begin()->first);
    EXPECT_EQ(target.own_device().find_queue_pair(number), nullptr);
}

}  // namespace
}  // namespace accel::softnic
