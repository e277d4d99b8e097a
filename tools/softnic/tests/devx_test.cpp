// SPDX-License-Identifier: Apache-2.0
// DevX commands one by one: what each does, and what it refuses.
#include "devx_fixture.hpp"

#include <optional>
#include <random>

#include <infiniband/verbs.h>

namespace accel::softnic {
namespace {

using devx::reason;
using devx::status;
using testing::devx_exchange;
using testing::devx_fixture;

// ---- mailboxes

/// Against bits in a row; what is not there reads as zero and is not written.
TEST(devx_mailbox, fields_are_big_endian_bits_from_the_front) {
    std::mt19937_64 random(1);
    std::array<std::byte, 16> bytes{};
    std::array<bool, 160> bits{};
    for (int round = 0; round < 20'000; ++round) {
        const auto width = static_cast<std::uint32_t>(random() % 4 == 0 ? 64 : 1 + random() % 32);
        const auto place = static_cast<std::uint32_t>(random() % 4 * 32 + (width == 64 ? 0 : random() % (33 - width)));
        const std::uint64_t value = random();
        const std::size_t size = random() % 8 == 0 ? 8 : bytes.size();
        devx::mailbox_out(std::span(bytes).first(size)).set({place, width}, value);
        for (std::uint32_t at = 0; at < width; ++at)
            if ((place + at) / 32 * 4 < size) bits[place + at] = (value >> (width - 1 - at) & 1) != 0;
        for (std::size_t at = 0; at < bytes.size() * 8; ++at)
            ASSERT_EQ((std::to_integer<unsigned>(bytes[at / 8]) >> (7 - at % 8) & 1) != 0, bits[at])
                << round << " " << at;
        std::uint64_t expected = 0;
        for (std::uint32_t at = 0; at < width; ++at)
            expected = expected << 1 | std::uint64_t{(place + at) / 32 * 4 < size && bits[place + at]};
        ASSERT_EQ(devx::mailbox_in(std::span(bytes).first(size)).get({place, width}), expected);
    }
    EXPECT_TRUE(devx::mailbox_in(std::span(bytes).first(8)).bytes({0x20, 128}).empty());
    EXPECT_EQ(devx::mailbox_in(std::span(bytes).first(8)).bytes({0x20, 32}).data(), bytes.data() + 4);
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

/// Or passes it on, and the firmware does not know it.
TEST_F(devx_fixture, commands_are_accepted_by_their_own_method_alone) {
    using method = int (devx_fixture::*)(devx_exchange&);
    struct sent {
        int opcode;
        method by;
        int expected;
    };
    constexpr method create_it = &devx_fixture::create;
    constexpr method general_it = &devx_fixture::general;
    constexpr int alloc_pd = static_cast<int>(devx::opcode::alloc_pd);
    constexpr int nop = static_cast<int>(devx::opcode::nop);
    for (const auto& [opcode, by, expected] : {sent{nop, general_it, 0},
                                               {nop, create_it, EINVAL},
                                               {alloc_pd, create_it, 0},
                                               {alloc_pd, general_it, EINVAL},
                                               {0x717, create_it, EREMOTEIO},
                                               {0x717, general_it, EINVAL},
                                               {0x762, general_it, EREMOTEIO},
                                               {0xaff, general_it, EINVAL},
                                               {0xb00, general_it, EREMOTEIO},
                                               {0xcff, general_it, EREMOTEIO},
                                               {0xd00, general_it, EINVAL},
                                               {0x7777, create_it, EINVAL},
                                               {0x7777, general_it, EINVAL}}) {
        SCOPED_TRACE(fmt::format("{:#x} {}", opcode, by == create_it));
        devx_exchange what(static_cast<devx::opcode>(opcode));
        EXPECT_EQ((this->*by)(what), expected);
        if (expected == EREMOTEIO) expect_refused(EREMOTEIO, what, status::bad_operation, reason::unknown_opcode);
    }
    devx_exchange tunnel(devx::opcode::alloc_pd);
    tunnel.set(devx::header::vhca_tunnel_id, 1);
    EXPECT_EQ(create(tunnel), EINVAL);
    for (const std::size_t size : {0u, 8u, 15u, 16u}) {
        devx_exchange short_in(devx::opcode::nop, 16, 16);
        short_in.in.resize(size);
        EXPECT_EQ(general(short_in), size == 16 ? 0 : EINVAL) << "shorter than a header";
        devx_exchange short_out(devx::opcode::nop, 16, size);
        EXPECT_EQ(general(short_out), size == 16 ? 0 : EINVAL);
    }
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

TEST_F(devx_fixture, roce_addresses_are_of_ethernet_ports_and_say_gid_and_version) {
    settings chosen;
    chosen.devices = {{link_layer::ethernet}};
    const testing::rig other(chosen);
    devx_exchange what(devx::opcode::query_roce_address, 16, devx::query_roce_address::out_bytes);
    expect_refused(general(what), what, status::bad_parameter, reason::not_ethernet);
    target.own_device().ports()[0] = other.adapter.state.devices[0].ports()[0];
    for (const std::uint32_t index : {0u, 3u, 4u, 7u, 8u}) {
        what.set(devx::query_roce_address::index, index);
        if (index == 8) {
            expect_refused(general(what), what, status::bad_index, reason::no_such_index);
            break;
        }
        ASSERT_EQ(general(what), 0);
        const auto& gids = target.own_device().ports()[0].gids;
        const gid_entry entry = index < gids.size() ? gids[index] : gid_entry{};
        EXPECT_EQ(std::memcmp(what.out.data() + 16, entry.bytes.data(), 16), 0) << index;
        EXPECT_EQ(what.get(devx::query_roce_address::roce_version), entry.type == gid_type::roce_v2 ? 2u : 0u);
    }
    what.set(devx::query_roce_address::index, 0).set(devx::query_roce_address::vhca_port_num, 2);
    expect_refused(general(what), what, status::bad_index, reason::no_such_index);
}

// ---- umems and event queues

struct umem_row {
    const char* name;
    int expected;
    std::uint64_t length = 4096;
    std::uint32_t access = 1;
    std::optional<std::uint64_t> pages = std::nullopt;
    bool hole = false, dmabuf = false;
};

TEST_F(devx_fixture, umems_are_memory_that_can_be_registered) {
    void* hole = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(hole, 8192);
    for (const umem_row& row :
         {umem_row{"memory", 0}, umem_row{"to be read only", 0, 4096, 0}, umem_row{"nothing", EINVAL, 0},
          umem_row{"around the address space", EINVAL, ~0ull},
          umem_row{"remote write without local write", EINVAL, 4096, IBV_ACCESS_REMOTE_WRITE},
          umem_row{"an unknown right", EINVAL, 4096, IBV_ACCESS_ON_DEMAND},
          umem_row{"not mapped", EFAULT, 8192, 0, std::nullopt, true},
          umem_row{"any page", 0, 4096, 1, ~std::uint64_t{4095}}, umem_row{"no page", EINVAL, 4096, 1, 0},
          umem_row{"the pages of this machine", 0, 4096, 1, 1 << 12},
          umem_row{"only larger pages", EINVAL, 4096, 1, 1 << 13},
          umem_row{"a dma-buf that cannot be mapped", EOPNOTSUPP, 4096, 1, std::nullopt, false, true}}) {
        SCOPED_TRACE(row.name);
        const auto address = reinterpret_cast<std::uint64_t>(row.hole ? hole : memory);
        std::uint32_t number = 0;
        testing::ioctl_builder command(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
        command.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, address)
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, row.length)
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, row.access)
            .out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, number);
        if (row.pages) command.in(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, *row.pages);
        if (row.dmabuf) command.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD, 0);
        EXPECT_EQ(call(command), row.expected);
    }
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

    static devx::field context(devx::field of) { return of.at(devx::create_qp::context); }
    std::uint32_t state_of(const devx_exchange& of) {
        auto ask = step(devx::opcode::query_qp, of.object());
        EXPECT_EQ(query(ask, of.handle), 0);
        return ask.get(devx::qpc::state.at(devx::query_qp::context));
    }
};

TEST_F(devx_qp, a_queue_pair_without_receives_needs_no_queue_for_them) {
    auto what = qp_command(queue.object());
    what.set(context(devx::qpc::cqn_rcv), 0).set(context(devx::qpc::rq_type), 3);
    ASSERT_EQ(create(what), 0);
    auto first = to_init(what.object());
    EXPECT_EQ(modify(first, what.handle), 0);
    auto to_error = step(devx::opcode::qp_2err, what.object());
    EXPECT_EQ(modify(to_error, what.handle), 0) << "flushing must not look for it";
}

/// Each command in each state that steps lead to.
TEST_F(devx_qp, each_step_starts_from_its_own_state) {
    struct step_row {
        devx::opcode code;
        std::uint32_t from, to;
    };
    constexpr step_row steps[]{{devx::opcode::rst2init_qp, 0, 1},
                               {devx::opcode::init2init_qp, 1, 1},
                               {devx::opcode::init2rtr_qp, 1, 2},
                               {devx::opcode::rtr2rts_qp, 2, 3},
                               {devx::opcode::rts2rts_qp, 3, 3}};
    for (std::uint32_t reached = 0; reached < 4; ++reached) {
        for (const step_row& tried : steps) {
            auto made = qp_command(queue.object());
            ASSERT_EQ(create(made), 0);
            const std::uint32_t number = made.object();
            devx_exchange path[]{to_init(number), to_receive(number, number), to_send(number)};
            for (std::uint32_t at = 0; at < reached; ++at) ASSERT_EQ(modify(path[at], made.handle), 0);
            auto what = tried.from < 3 && tried.to != tried.from ? path[tried.from] : step(tried.code, number);
            const int result = modify(what, made.handle);
            if (tried.from == reached)
                EXPECT_EQ(result, 0);
            else
                expect_refused(result, what, status::bad_qp_state, reason::wrong_state);
            EXPECT_EQ(state_of(made), tried.from == reached ? tried.to : reached);
            auto back = step(devx::opcode::qp_2rst, number);
            ASSERT_EQ(modify(back, made.handle), 0);
            EXPECT_EQ(state_of(made), 0u);
        }
    }
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

}  // namespace
}  // namespace accel::softnic
