// SPDX-License-Identifier: Apache-2.0
// DevX commands for dynamically connected transport and for shared receive queues: what each does, and what it refuses.
#include "devx_fixture.hpp"
#include "model/event_channel.hpp"
#include "transport/dynamic.hpp"

#include <array>
#include <cstring>

namespace accel::softnic {
namespace {

using devx::reason;
using devx::status;
using testing::devx_exchange;
using testing::devx_fixture;

struct devx_dynamic_test : devx_fixture {
    devx_exchange queue = cq_command();
    devx_exchange receives = receives_command();
    std::uint64_t sessions = 0;

    devx_dynamic_test() {
        EXPECT_EQ(create(queue), 0);
        EXPECT_EQ(create(receives), 0);
    }
    [[nodiscard]] devx_exchange a_target() const { return target_command(queue.object(), receives.object()); }
    [[nodiscard]] devx_exchange an_initiator() const { return initiator_command(queue.object()); }
};

TEST_F(devx_dynamic_test, a_target_takes_connections_as_soon_as_it_is_made) {
    auto made = a_target();
    ASSERT_EQ(create(made), 0);
    const queue_pair* target_pair = target.own_device().find_queue_pair(made.object());
    ASSERT_NE(target_pair, nullptr);
    EXPECT_TRUE(target_pair->is_target());
    EXPECT_EQ(target_pair->state, qp_state::ready_to_receive);
    EXPECT_EQ(target_pair->options.access_key, access_key);
    EXPECT_EQ(target_pair->attributes.access, access::remote_read);
    auto ask = step(devx::opcode::query_dct, made.object());
    ASSERT_EQ(query(ask, made.handle), 0);
    const auto get = [&](devx::field of) { return devx::mailbox_in(ask.out).get(of.at(devx::query_dct::context)); };
    EXPECT_EQ(get(devx::dctc::state), 0u) << "active";
    EXPECT_EQ(get(devx::dctc::dc_access_key), access_key);
    EXPECT_EQ(get(devx::dctc::srqn_xrqn), receives.object());
    EXPECT_EQ(get(devx::dctc::cqn), queue.object());
    EXPECT_EQ(get(devx::dctc::rre), 1u);
    EXPECT_EQ(get(devx::dctc::rwe), 0u);
    EXPECT_EQ(get(devx::dctc::min_rnr_nak), 12u);
}

/// The event is armed for one connection with a wrong key; all are counted.
TEST_F(devx_dynamic_test, a_target_reports_wrong_keys_when_armed_and_its_end) {
    auto made = a_target();
    ASSERT_EQ(create(made), 0);
    const auto channel = std::make_shared<event_channel>(false);
    auto& subscribers = *target.devx_space.objects.at(made.handle).subscribers;
    for (const device_event each : {device_event::target_key_violation, device_event::target_drained})
        subscribers.add(std::make_shared<event_subscription>(each, channel, static_cast<std::uint64_t>(each)));
    std::array<std::byte, event_channel::event_bytes> seen{};
    const auto knock = [&](std::uint64_t with) {
        packet_header what{};
        what.kind = packet_kind::write;
        what.from_qpn = 77;
        what.session = ++sessions;
        what.access_key = with;
        dynamic::on_request(on.adapter.state, *target.own_device().find_queue_pair(made.object()), arrival{what, {}});
        return channel->read(seen);
    };
    EXPECT_EQ(knock(access_key ^ 1), -EAGAIN) << "not armed";
    auto arm = step(devx::opcode::arm_dct_for_key_violation, made.object());
    ASSERT_EQ(modify(arm, made.handle), 0);
    EXPECT_EQ(knock(access_key), -EAGAIN);
    EXPECT_EQ(knock(access_key ^ 1), 72);
    EXPECT_EQ(seen[8 + 1], std::byte{0x1d});
    EXPECT_EQ(seen[8 + 59], static_cast<std::byte>(made.object()));
    EXPECT_EQ(knock(access_key ^ 1), -EAGAIN) << "armed once";
    auto ask = step(devx::opcode::query_dct, made.object());
    ASSERT_EQ(query(ask, made.handle), 0);
    EXPECT_EQ(ask.get(devx::dctc::dc_access_key_violation_count.at(devx::query_dct::context)), 3u);
    EXPECT_EQ(destroy(made.handle), 0);
    EXPECT_EQ(channel->read(seen), 72);
    EXPECT_EQ(seen[8 + 1], std::byte{0x1c});
    ::close(channel->descriptor());
}

TEST_F(devx_dynamic_test, commands_of_targets_and_of_queue_pairs_do_not_mix) {
    auto made = a_target();
    ASSERT_EQ(create(made), 0);
    auto other = an_initiator();
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
    auto made = an_initiator();
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
    auto without = an_initiator();
    without.set(devx::qpc::no_sq.at(devx::create_qp::context), 1);
    expect_refused(create(without), without, status::bad_parameter, reason::not_modelled);
    auto unknown = an_initiator();
    unknown.set(devx::qpc::st.at(devx::create_qp::context), 3);
    expect_refused(create(unknown), unknown, status::bad_parameter, reason::not_modelled);
}

TEST_F(devx_dynamic_test, a_receive_queue_is_described_and_limited) {
    auto limit = step(devx::opcode::modify_rmp, receives.object());
    limit.set(devx::modify_rmp::bitmask_lwm, 1).set(in_receives(devx::wq::lwm), 3);
    target.srqs.begin()->second->arm_limit(0);
    // Empty: the limit is met at once, and is off again.
    ASSERT_EQ(modify(limit, receives.handle), 0);
    auto ask = step(devx::opcode::query_rmp, receives.object());
    ASSERT_EQ(query(ask, receives.handle), 0);
    EXPECT_EQ(ask.get(in_receives(devx::wq::lwm)), 0u);
    EXPECT_EQ(ask.get(in_receives(devx::wq::log_wq_sz)), 4u);
    EXPECT_EQ(ask.get(in_receives(devx::wq::wq_type)), 1u);
    limit.set(in_receives(devx::wq::lwm), 16);
    expect_refused(modify(limit, receives.handle), limit, status::bad_parameter, reason::bad_attribute);
}

}  // namespace
}  // namespace accel::softnic
