// SPDX-License-Identifier: Apache-2.0
// DevX commands one by one: what each does, and what it refuses.
#include "devx_fixture.hpp"

#include <infiniband/verbs.h>

namespace accel::softnic {
namespace {

using devx::reason;
using devx::status;
using testing::devx_exchange;
using testing::devx_fixture;

// ---- mailboxes

TEST(devx_mailbox, fields_are_big_endian_bits_from_the_front) {
    std::array<std::byte, 16> bytes{};
    devx::mailbox_out out(bytes);
    out.set({0x00, 16}, 0x1234);
    out.set({0x2d, 3}, 5);
    out.set({0x40, 64}, 0x0102030405060708);
    EXPECT_EQ(bytes[0], std::byte{0x12});
    EXPECT_EQ(bytes[1], std::byte{0x34});
    EXPECT_EQ(bytes[5], std::byte{0x05}) << "bits 0x2d to 0x2f are the last of byte 5";
    EXPECT_EQ(bytes[8], std::byte{0x01});
    EXPECT_EQ(bytes[15], std::byte{0x08});
    const devx::mailbox_in in(bytes);
    EXPECT_EQ(in.get({0x2d, 3}), 5u);
    EXPECT_EQ(in.get({0x40, 64}), 0x0102030405060708u);
    out.set({0x2d, 3}, 2);
    EXPECT_EQ(in.get({0x2d, 3}), 2u) << "replaced, not added";
}

TEST(devx_mailbox, fields_beyond_the_end_read_as_zero_and_are_not_written) {
    std::array<std::byte, 8> bytes{};
    devx::mailbox_out(std::span(bytes).first(4)).set({0x20, 32}, ~0u);
    devx::mailbox_out(std::span(bytes).first(4)).set({0x20, 8}, 1);
    EXPECT_EQ(bytes[4], std::byte{0});
    EXPECT_EQ(devx::mailbox_in(bytes).get({0x40, 32}), 0u);
    EXPECT_TRUE(devx::mailbox_in(bytes).bytes({0x20, 128}).empty());
}

// ---- the driver's own checks

TEST_F(devx_fixture, a_context_without_devx_may_only_ask_for_capabilities) {
    target.devx_space.enabled = false;
    devx_exchange caps(devx::opcode::query_hca_cap);
    EXPECT_EQ(general(caps), 0);
    devx_exchange nop(devx::opcode::nop);
    EXPECT_EQ(general(nop), EINVAL);
    auto queue = cq_command();
    EXPECT_EQ(create(queue), EINVAL);
    std::uint32_t number = 0;
    EXPECT_EQ(register_umem(memory, 4096, 1, number), EINVAL);
}

TEST_F(devx_fixture, mailboxes_shorter_than_a_header_are_refused_by_the_driver) {
    for (const std::size_t size : {0u, 8u, 15u}) {
        devx_exchange short_in(devx::opcode::nop, 16, 16);
        short_in.in.resize(size);
        EXPECT_EQ(general(short_in), EINVAL);
        devx_exchange short_out(devx::opcode::nop, 16, size);
        EXPECT_EQ(general(short_out), EINVAL);
    }
}

TEST_F(devx_fixture, mailboxes_that_are_not_mapped_are_bad_addresses) {
    testing::ioctl_builder command(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER);
    devx_exchange what(devx::opcode::nop);
    command.raw(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, 16, 4096)
        .raw(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, size_of(what.out), address_of(what.out));
    EXPECT_EQ(call(command), EFAULT);
    const auto before = target.pds.size();
    devx_exchange allocate(devx::opcode::alloc_pd);
    testing::ioctl_builder lost(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
    lost.handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)
        .raw(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, size_of(allocate.in), address_of(allocate.in))
        .raw(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, 16, 4096);
    EXPECT_EQ(call(lost), EFAULT);
    EXPECT_EQ(target.pds.size(), before) << "nothing stays that the program does not know of";
}

TEST_F(devx_fixture, commands_are_accepted_only_by_their_own_method) {
    devx_exchange queue = cq_command();
    EXPECT_EQ(general(queue), EINVAL);
    devx_exchange nop(devx::opcode::nop);
    EXPECT_EQ(create(nop), EINVAL);
    devx_exchange tunnel(devx::opcode::alloc_pd);
    tunnel.set(devx::header::vhca_tunnel_id, 1);
    EXPECT_EQ(create(tunnel), EINVAL);
}

TEST_F(devx_fixture, commands_that_the_driver_passes_on_get_the_firmware_status) {
    devx_exchange xrq(static_cast<devx::opcode>(0x717));
    expect_refused(create(xrq), xrq, status::bad_operation, reason::unknown_opcode);
    devx_exchange vport(static_cast<devx::opcode>(0x762));
    expect_refused(general(vport), vport, status::bad_operation, reason::unknown_opcode);
    devx_exchange vendor(static_cast<devx::opcode>(0xb01));
    expect_refused(general(vendor), vendor, status::bad_operation, reason::unknown_opcode);
    devx_exchange nonsense(static_cast<devx::opcode>(0x7777));
    EXPECT_EQ(create(nonsense), EINVAL) << "the driver does not know it either";
    EXPECT_EQ(general(nonsense), EINVAL);
}

TEST_F(devx_fixture, commands_must_be_about_the_object_of_their_handle) {
    auto queue = cq_command();
    ASSERT_EQ(create(queue), 0);
    auto pair = qp_command(queue.object());
    ASSERT_EQ(create(pair), 0);
    auto ask = step(devx::opcode::query_qp, pair.object());
    EXPECT_EQ(query(ask, pair.handle), 0);
    EXPECT_EQ(query(ask, pair.handle + 1000), ENOENT);
    EXPECT_EQ(query(ask, queue.handle), EINVAL);
    auto other = step(devx::opcode::query_qp, pair.object() + 1);
    EXPECT_EQ(query(other, pair.handle), EINVAL);
    EXPECT_EQ(modify(ask, pair.handle), EINVAL) << "not a change";
}

// ---- capabilities and addresses

TEST_F(devx_fixture, capabilities_come_in_groups_and_are_cut_to_the_room) {
    const auto ask = [&](std::uint16_t group, std::size_t out_bytes) {
        devx_exchange what(devx::opcode::query_hca_cap, 16, out_bytes);
        what.set(devx::header::op_mod, static_cast<std::uint64_t>(group) << 1 | 1);
        return what;
    };
    const auto cap = [](const devx_exchange& from, devx::field of) {
        return from.get(of.at(devx::query_hca_cap::capability));
    };
    auto whole = ask(0, 16 + 4096);
    ASSERT_EQ(general(whole), 0);
    EXPECT_EQ(cap(whole, devx::hca_cap::log_max_qp_sz), 15u);
    EXPECT_EQ(cap(whole, devx::hca_cap::port_type), 0u) << "InfiniBand";
    EXPECT_EQ(cap(whole, devx::hca_cap::num_ports), 1u);
    auto cut = ask(0, 32);
    EXPECT_EQ(general(cut), 0);
    auto atomic = ask(3, 16 + 256);
    ASSERT_EQ(general(atomic), 0);
    EXPECT_EQ(cap(atomic, devx::atomic_cap::atomic_size_qp) & 8, 8u);
    auto unknown = ask(0x1a, 16 + 256);
    expect_refused(general(unknown), unknown, status::bad_parameter, reason::unknown_capability);
}

TEST_F(devx_fixture, roce_addresses_are_of_ethernet_ports_only) {
    devx_exchange what(devx::opcode::query_roce_address, 16, devx::query_roce_address::out_bytes);
    expect_refused(general(what), what, status::bad_parameter, reason::not_ethernet);
    what.set(devx::query_roce_address::index, 8);
    expect_refused(general(what), what, status::bad_index, reason::no_such_index);
    what.set(devx::query_roce_address::index, 0).set(devx::query_roce_address::vhca_port_num, 5);
    expect_refused(general(what), what, status::bad_index, reason::no_such_index);
}

TEST(devx_roce, addresses_say_gid_and_version) {
    settings chosen;
    chosen.devices = {{link_layer::ethernet}};
    testing::rig on(chosen);
    const int file = ::memfd_create("uverbs", MFD_CLOEXEC);
    {
        context target(on.adapter, 0, file);
        target.devx_space.enabled = true;
        devx_exchange what(devx::opcode::query_roce_address, 16, devx::query_roce_address::out_bytes);
        what.set(devx::query_roce_address::index, 3);
        testing::ioctl_builder command(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER);
        command.raw(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, 16, reinterpret_cast<std::uint64_t>(what.in.data()))
            .raw(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, devx::query_roce_address::out_bytes,
                 reinterpret_cast<std::uint64_t>(what.out.data()));
        ASSERT_EQ(dispatch(target, command.get()), 0);
        const gid_entry& entry = target.own_device().ports()[0].gids[3];
        EXPECT_EQ(std::memcmp(what.out.data() + 16, entry.bytes.data(), 16), 0);
        EXPECT_EQ(what.get(devx::query_roce_address::roce_version), entry.type == gid_type::roce_v2 ? 2u : 0u);
    }
    ::close(file);
}

// ---- umems and event queues

TEST_F(devx_fixture, umems_must_be_memory_that_can_be_registered) {
    std::uint32_t number = 0;
    EXPECT_EQ(register_umem(memory, 0, 1, number), EINVAL);
    EXPECT_EQ(register_umem(memory, ~0ull, 1, number), EINVAL);
    EXPECT_EQ(register_umem(memory, 4096, IBV_ACCESS_REMOTE_WRITE, number), EINVAL) << "needs local write";
    EXPECT_EQ(register_umem(memory, 4096, IBV_ACCESS_ON_DEMAND, number), EINVAL);
    void* hole = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(hole, 8192);
    EXPECT_EQ(register_umem(hole, 8192, 0, number), EFAULT);
    ASSERT_EQ(register_umem(memory, 4096, 0, number), 0);
    EXPECT_EQ(deregister_umem(number), 0);
    EXPECT_EQ(deregister_umem(number), ENOENT);
}

TEST_F(devx_fixture, umems_without_a_usable_page_or_a_mappable_dma_buf_are_refused) {
    const auto address = reinterpret_cast<std::uint64_t>(memory);
    const auto attempt = [&](std::uint64_t pages, bool buffer) {
        std::uint32_t number = 0;
        testing::ioctl_builder command(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
        command.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, address)
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, std::uint64_t{4096})
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, std::uint32_t{1})
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, pages)
            .out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, number);
        if (buffer) command.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD, 0);
        return call(command);
    };
    EXPECT_EQ(attempt(~std::uint64_t{4095}, false), 0);
    EXPECT_EQ(attempt(0, false), EINVAL);
    EXPECT_EQ(attempt(1 << 21, false), EINVAL) << "only huge pages";
    EXPECT_EQ(attempt(~std::uint64_t{4095}, true), EOPNOTSUPP);
}

TEST_F(devx_fixture, umems_in_use_stay) {
    auto queue = cq_command();
    ASSERT_EQ(create(queue), 0);
    EXPECT_EQ(deregister_umem(umem), EBUSY);
    EXPECT_EQ(destroy(queue.handle), 0);
    EXPECT_EQ(deregister_umem(umem), 0);
}

TEST_F(devx_fixture, each_completion_vector_has_an_event_queue) {
    const auto ask = [&](std::uint32_t vector, std::uint32_t& number) {
        testing::ioctl_builder command(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN);
        command.in(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, vector).out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, number);
        return call(command);
    };
    std::uint32_t first = 0;
    std::uint32_t second = 0;
    EXPECT_EQ(ask(0, first), 0);
    EXPECT_EQ(ask(1, second), 0);
    EXPECT_NE(first, second);
    EXPECT_EQ(ask(limits::completion_vectors, first), ENOENT);
}

// ---- completion queues

TEST_F(devx_fixture, completion_queues_outside_their_umem_are_refused) {
    const auto refuse = [&](devx::field where, std::uint64_t value, status expected, reason why) {
        auto what = cq_command();
        what.set(where, value);
        expect_refused(create(what), what, expected, why);
    };
    const auto context = [](devx::field of) { return of.at(devx::create_cq::context); };
    refuse(devx::create_cq::umem_id, umem + 999, status::bad_resource, reason::no_such_umem);
    refuse(context(devx::cqc::dbr_umem_id), 0, status::bad_resource, reason::no_such_umem);
    refuse(devx::create_cq::umem_offset, memory_bytes - 64, status::bad_parameter, reason::outside_umem);
    refuse(devx::create_cq::umem_offset, ~0ull - 63, status::bad_parameter, reason::outside_umem);
    refuse(devx::create_cq::umem_offset, 4, status::bad_parameter, reason::bad_attribute);
    refuse(context(devx::cqc::dbr_addr), memory_bytes - 4, status::bad_parameter, reason::outside_umem);
    refuse(context(devx::cqc::dbr_addr), cq_record + 4, status::bad_parameter, reason::bad_attribute);
    refuse(context(devx::cqc::log_cq_size), 16, status::bad_parameter, reason::outside_umem);
    EXPECT_TRUE(target.cqs.empty());
}

TEST_F(devx_fixture, completion_queues_with_a_bad_context_are_refused) {
    const auto refuse = [&](devx::field where, std::uint64_t value, status expected, reason why) {
        auto what = cq_command();
        what.set(where.at(devx::create_cq::context), value);
        expect_refused(create(what), what, expected, why);
    };
    refuse(devx::cqc::cqe_sz, 2, status::bad_parameter, reason::bad_attribute);
    refuse(devx::cqc::cqe_comp_en, 1, status::bad_parameter, reason::not_modelled);
    refuse(devx::cqc::log_cq_size, 23, status::limit_exceeded, reason::bad_queue_size);
    refuse(devx::cqc::log_cq_size, 31, status::limit_exceeded, reason::bad_queue_size);
    refuse(devx::cqc::uar_page, uar + 1, status::bad_resource, reason::no_such_uar);
    refuse(devx::cqc::c_eqn, 3, status::bad_resource, reason::no_such_index);
    auto cut = cq_command();
    cut.in.resize(devx::create_cq::in_bytes - 1);
    expect_refused(create(cut), cut, status::bad_input_length, reason::input_too_short);
}

TEST_F(devx_fixture, a_query_describes_completion_queues) {
    auto made = cq_command();
    made.set(devx::cqc::cc.at(devx::create_cq::context), 1).set(devx::cqc::oi.at(devx::create_cq::context), 1);
    ASSERT_EQ(create(made), 0);
    auto ask = step(devx::opcode::query_cq, made.object());
    ASSERT_EQ(query(ask, made.handle), 0);
    const auto get = [&](devx::field of) { return ask.get(of.at(devx::query_cq::context)); };
    EXPECT_EQ(get(devx::cqc::cc), 1u);
    EXPECT_EQ(get(devx::cqc::oi), 1u);
    EXPECT_EQ(get(devx::cqc::log_cq_size), 4u);
    EXPECT_EQ(get(devx::cqc::producer_counter), 0u);
    ask.out.resize(devx::query_cq::out_bytes - 1);
    expect_refused(query(ask, made.handle), ask, status::bad_output_length, reason::output_too_short);
    auto moderate = step(devx::opcode::modify_cq, made.object());
    EXPECT_EQ(modify(moderate, made.handle), 0);
    moderate.set(devx::header::op_mod, 1);
    expect_refused(modify(moderate, made.handle), moderate, status::bad_parameter, reason::not_modelled);
}

TEST_F(devx_fixture, ignored_overruns_write_on_and_collapsed_queues_write_one_place) {
    auto made = cq_command();
    made.set(devx::cqc::cc.at(devx::create_cq::context), 1).set(devx::cqc::oi.at(devx::create_cq::context), 1);
    ASSERT_EQ(create(made), 0);
    completion_queue& queue = *target.cqs.at(made.handle);
    for (std::uint16_t at = 0; at < 100; ++at) {
        completion what;
        what.wqe_counter = at;
        ASSERT_EQ(queue.put(what, 0, 0), completion_queue::outcome::written);
        EXPECT_EQ(std::to_integer<unsigned>(memory[cq_place + 61]), at) << "low byte of the counter";
    }
    EXPECT_EQ(memory[cq_place + 64], std::byte{0xf0}) << "the second place is untouched";
    EXPECT_EQ(queue.produced(), 100u);
}

// ---- queue pairs

struct devx_qp : devx_fixture {
    devx_exchange queue = cq_command();
    devx_qp() { EXPECT_EQ(create(queue), 0); }

    void refuse(devx::field where, std::uint64_t value, status expected, reason why) {
        auto what = qp_command(queue.object());
        what.set(where, value);
        expect_refused(create(what), what, expected, why);
    }
    static devx::field context(devx::field of) { return of.at(devx::create_qp::context); }
    std::uint32_t state_of(const devx_exchange& of) {
        auto ask = step(devx::opcode::query_qp, of.object());
        EXPECT_EQ(query(ask, of.handle), 0);
        return ask.get(devx::qpc::state.at(devx::query_qp::context));
    }
};

TEST_F(devx_qp, queue_pairs_outside_their_umem_are_refused) {
    refuse(devx::create_qp::wq_umem_id, umem + 999, status::bad_resource, reason::no_such_umem);
    refuse(devx::create_qp::wq_umem_offset, memory_bytes - 256, status::bad_parameter, reason::outside_umem);
    refuse(devx::create_qp::wq_umem_offset, ~0ull, status::bad_parameter, reason::outside_umem);
    refuse(devx::create_qp::wq_umem_offset, 8, status::bad_parameter, reason::bad_attribute);
    refuse(context(devx::qpc::dbr_umem_id), 0, status::bad_resource, reason::no_such_umem);
    refuse(context(devx::qpc::dbr_addr), memory_bytes, status::bad_parameter, reason::outside_umem);
    refuse(context(devx::qpc::log_sq_size), 15, status::bad_parameter, reason::outside_umem);
    refuse(context(devx::qpc::log_rq_stride), 7, status::limit_exceeded, reason::bad_queue_size);
    EXPECT_TRUE(target.qps.empty());
}

TEST_F(devx_qp, queue_pairs_with_a_bad_context_are_refused) {
    refuse(context(devx::qpc::st), 3, status::bad_parameter, reason::not_modelled);
    refuse(context(devx::qpc::rq_type), 2, status::bad_parameter, reason::not_modelled);
    refuse(context(devx::qpc::send_dbr_mode), 1, status::bad_parameter, reason::not_modelled);
    refuse(context(devx::qpc::pd), pd + 999, status::bad_resource, reason::no_such_domain);
    refuse(context(devx::qpc::uar_page), uar + 1, status::bad_resource, reason::no_such_uar);
    refuse(context(devx::qpc::cqn_snd), 0, status::bad_resource, reason::no_such_completion_queue);
    refuse(context(devx::qpc::cqn_rcv), 0, status::bad_resource, reason::no_such_completion_queue);
    refuse(context(devx::qpc::rq_type), 1, status::bad_resource, reason::no_such_receive_queue);
    auto cut = qp_command(queue.object());
    cut.in.resize(devx::create_qp::in_bytes - 4);
    expect_refused(create(cut), cut, status::bad_input_length, reason::input_too_short);
}

TEST_F(devx_qp, a_queue_pair_without_receives_needs_no_queue_for_them) {
    auto what = qp_command(queue.object());
    what.set(context(devx::qpc::cqn_rcv), 0).set(context(devx::qpc::rq_type), 3);
    ASSERT_EQ(create(what), 0);
    auto first = to_init(what.object());
    EXPECT_EQ(modify(first, what.handle), 0);
    auto to_error = step(devx::opcode::qp_2err, what.object());
    EXPECT_EQ(modify(to_error, what.handle), 0) << "flushing must not look for it";
}

TEST_F(devx_qp, steps_out_of_order_are_refused) {
    auto made = qp_command(queue.object());
    ASSERT_EQ(create(made), 0);
    const std::uint32_t number = made.object();
    auto send = to_send(number);
    auto receive = to_receive(number, number);
    auto init = to_init(number);
    expect_refused(modify(send, made.handle), send, status::bad_qp_state, reason::wrong_state);
    expect_refused(modify(receive, made.handle), receive, status::bad_qp_state, reason::wrong_state);
    EXPECT_EQ(state_of(made), 0u);
    ASSERT_EQ(modify(init, made.handle), 0);
    EXPECT_EQ(state_of(made), 1u);
    expect_refused(modify(init, made.handle), init, status::bad_qp_state, reason::wrong_state);
    ASSERT_EQ(modify(receive, made.handle), 0);
    EXPECT_EQ(state_of(made), 2u);
    ASSERT_EQ(modify(send, made.handle), 0);
    EXPECT_EQ(state_of(made), 3u);
    auto back = step(devx::opcode::qp_2rst, number);
    ASSERT_EQ(modify(back, made.handle), 0);
    EXPECT_EQ(state_of(made), 0u);
}

TEST_F(devx_qp, steps_with_values_out_of_range_change_nothing) {
    auto made = qp_command(queue.object());
    ASSERT_EQ(create(made), 0);
    auto no_port = to_init(made.object());
    no_port.set(in_path(devx::ads::vhca_port_num), 9);
    expect_refused(modify(no_port, made.handle), no_port, status::bad_parameter, reason::bad_attribute);
    auto no_key = to_init(made.object());
    no_key.set(in_path(devx::ads::pkey_index), 9999);
    expect_refused(modify(no_key, made.handle), no_key, status::bad_parameter, reason::bad_attribute);
    auto init = to_init(made.object());
    ASSERT_EQ(modify(init, made.handle), 0);
    for (const std::uint32_t mtu : {0u, 6u, 7u}) {
        auto receive = to_receive(made.object(), 1);
        receive.set(in_step(devx::qpc::mtu), mtu);
        expect_refused(modify(receive, made.handle), receive, status::bad_parameter, reason::bad_attribute);
    }
    auto many_reads = to_receive(made.object(), 1);
    many_reads.set(in_step(devx::qpc::log_rra_max), 5);
    expect_refused(modify(many_reads, made.handle), many_reads, status::bad_parameter, reason::bad_attribute);
    EXPECT_EQ(state_of(made), 1u);
}

TEST_F(devx_qp, a_query_shows_what_the_steps_set) {
    auto made = qp_command(queue.object());
    ASSERT_EQ(create(made), 0);
    auto init = to_init(made.object());
    auto receive = to_receive(made.object(), 0xabc);
    auto send = to_send(made.object());
    for (auto* each : {&init, &receive, &send}) ASSERT_EQ(modify(*each, made.handle), 0);
    auto ask = step(devx::opcode::query_qp, made.object());
    ASSERT_EQ(query(ask, made.handle), 0);
    const auto get = [&](devx::field of) { return ask.get(of.at(devx::query_qp::context)); };
    EXPECT_EQ(get(devx::qpc::remote_qpn), 0xabcu);
    EXPECT_EQ(get(devx::qpc::mtu), 3u);
    EXPECT_EQ(get(devx::qpc::next_rcv_psn), 77u);
    EXPECT_EQ(get(devx::qpc::next_send_psn), 99u);
    EXPECT_EQ(get(devx::qpc::rwe), 1u);
    EXPECT_EQ(get(devx::qpc::rre), 0u);
    EXPECT_EQ(get(devx::qpc::log_rra_max), 2u);
    EXPECT_EQ(get(devx::qpc::log_sq_size), 4u);
    EXPECT_EQ(get(devx::qpc::log_rq_stride), 2u);
    EXPECT_EQ(get(devx::qpc::cqn_snd), queue.object());
    EXPECT_EQ(get(devx::ads::rlid.at(devx::qpc::primary_address_path)), 1u);
    EXPECT_EQ(get(devx::ads::ack_timeout.at(devx::qpc::primary_address_path)), 10u);
}

TEST_F(devx_qp, options_of_a_step_change_only_what_their_mask_names) {
    auto made = qp_command(queue.object());
    ASSERT_EQ(create(made), 0);
    auto init = to_init(made.object());
    auto receive = to_receive(made.object(), 1);
    receive.set(in_step(devx::qpc::rre), 1).set(in_step(devx::qpc::rae), 1);
    receive.set(devx::modify_qp::opt_param_mask, devx::opt_param::rre);
    ASSERT_EQ(modify(init, made.handle), 0);
    ASSERT_EQ(modify(receive, made.handle), 0);
    const queue_pair* qp = target.own_device().find_queue_pair(made.object());
    EXPECT_EQ(qp->attributes.access, access::remote_write | access::remote_read) << "not the atomics";
}

TEST_F(devx_qp, objects_in_use_stay_and_all_end_with_the_context) {
    auto made = qp_command(queue.object());
    ASSERT_EQ(create(made), 0);
    EXPECT_EQ(destroy(queue.handle), EBUSY);
    EXPECT_EQ(destroy(made.handle), 0);
    EXPECT_EQ(destroy(made.handle), ENOENT);
    EXPECT_EQ(destroy(queue.handle), 0);
    EXPECT_TRUE(target.qps.empty());
    EXPECT_TRUE(on.adapter.cqs().empty());
}

// ---- domains

TEST_F(devx_fixture, domains_in_use_stay) {
    auto queue = cq_command();
    ASSERT_EQ(create(queue), 0);
    auto pair = qp_command(queue.object());
    ASSERT_EQ(create(pair), 0);
    const std::uint32_t domain = pd;  // number and handle are the same
    EXPECT_EQ(destroy(domain), EBUSY);
    EXPECT_EQ(destroy(pair.handle), 0);
    EXPECT_EQ(destroy(domain), 0);
    EXPECT_EQ(destroy(domain), ENOENT);
}

}  // namespace
}  // namespace accel::softnic
