// SPDX-License-Identifier: Apache-2.0
// A modelled link on virtual time, between devices that share a fabric as processes do: what arrives when.
#include "counting_new.hpp"
#include "link_rig.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

using testing::allocations;
using testing::connect;
using testing::connect_pair;
using testing::delay_ns;
using testing::each_packet;
using testing::expect_time;
using testing::gigabits;
using testing::host;
using testing::link_options;
using testing::linked;
using testing::linked_hosts;
using testing::mtu;
using testing::one_ack;
using testing::piece;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::transfer_ns;
using testing::work;

struct link_rate : ::testing::Test, linked_hosts {};

/// What goes there, until it is there; and what comes back, until it is here. Lengths are padded.
TEST_F(link_rate, each_operation_takes_its_bytes_and_its_round_trip) {
    struct row {
        std::uint8_t opcode;
        std::uint32_t length;
        bool inlined;
        double there, back;
    };
    constexpr double request = (each_packet + 16) * 8 / gigabits + delay_ns;
    std::vector<row> rows;
    for (const std::uint32_t length : {0u, 1u, 64u, 1024u, 1025u, 10'000u, 602'112u, 2'000'000u}) {
        const double padded = (length + 3) & ~3u;
        rows.push_back({MLX5_OPCODE_RDMA_WRITE, length, false, transfer_ns(padded, 16) + delay_ns, one_ack});
        rows.push_back({MLX5_OPCODE_RDMA_WRITE_IMM, length, false, transfer_ns(padded, 20) + delay_ns, one_ack});
        rows.push_back({MLX5_OPCODE_SEND, length, false, transfer_ns(padded, 0) + delay_ns, one_ack});
        rows.push_back(
            {MLX5_OPCODE_RDMA_READ, length, false, request, transfer_ns(padded, length > mtu ? 8 : 4) + delay_ns});
    }
    rows.push_back({MLX5_OPCODE_SEND, 200, true, transfer_ns(200, 0) + delay_ns, one_ack});
    rows.push_back({MLX5_OPCODE_ATOMIC_FA, 8, false, (each_packet + 28) * 8 / gigabits + delay_ns,
                    (each_packet + 12) * 8 / gigabits + delay_ns});
    for (const row& each : rows) {
        SCOPED_TRACE(fmt::format("opcode {} length {}", each.opcode, each.length));
        const bool receives = each.opcode == MLX5_OPCODE_SEND || each.opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
        if (receives) two.qp.post_receive(std::array{piece(two.memory.data(), host::bytes, two.key)});
        work what = one.operation(each.opcode, each.inlined ? 0 : each.length, two);
        if (each.inlined) what.inlined.resize(each.length);
        const std::uint64_t from = post(one, what);
        if (receives) expect_time(time.when_completed(two), from, each.there);
        expect_completion(one, from, each.there + each.back);
    }
}

TEST_F(link_rate, messages_of_one_port_reach_its_rate) {
    for (const auto& [count, length] : {std::pair{2u, 500'000u}, {30u, 1024u}, {60u, 700u}}) {
        for (std::uint32_t at = 1; at < count; ++at) one.qp.post(one.operation(MLX5_OPCODE_RDMA_WRITE, length, two));
        const std::uint64_t from = post(one, one.operation(MLX5_OPCODE_RDMA_WRITE, length, two));
        for (std::uint32_t done = 1; done <= count; ++done) {
            const bool first = length == 500'000;  // the others come together
            const std::uint64_t at = time.when_completed(one);
            if (first || done == count) expect_time(at, from, done * transfer_ns(length, 16) + delay_ns + one_ack);
        }
    }
}

/// Also of a message that is one of several.
TEST_F(link_rate, the_last_packet_is_invisible_before_it_arrives) {
    constexpr std::uint32_t length = 602'112;
    one.qp.post(one.operation(MLX5_OPCODE_RDMA_WRITE, length, two));
    work other = one.operation(MLX5_OPCODE_RDMA_WRITE, length, two);
    other.remote += length;
    const std::uint64_t from = post(one, other);
    const double last = std::fmod(length - 1, mtu) + 1;
    for (const double end : {1.0 * length, 2.0 * length}) {
        const auto at = static_cast<std::size_t>(end);
        const std::uint64_t seen = time.when([&] { return two.memory[at - static_cast<std::size_t>(last)] != 0; });
        EXPECT_NE(two.memory[at - 1], 0) << "its packet is in memory as a whole";
        expect_time(seen, from, end / length * transfer_ns(length, 16) + delay_ns);
    }
}

TEST_F(link_rate, other_packets_are_in_memory_while_their_message_arrives) {
    constexpr std::uint32_t length = 602'112;
    const std::uint64_t from = post(one, one.operation(MLX5_OPCODE_RDMA_WRITE, length, two));
    for (const std::uint32_t at : {0U, length / 2, length - 2 * static_cast<std::uint32_t>(mtu)}) {
        const std::uint64_t seen = time.when([&] { return two.memory[at] != 0; });
        EXPECT_LT(static_cast<double>(seen - from), transfer_ns(at + mtu, 16)) << at;
    }
    EXPECT_EQ(two.memory[length - 1], 0);
    EXPECT_NE(time.when_completed(one), 0u);
    EXPECT_EQ(two.on.adapter.state.count.early_packets, length / 1024 - 1);
}

TEST_F(link_rate, both_directions_are_independent) {
    constexpr std::uint32_t length = 602'112;
    std::vector<std::uint8_t> back(length, 7);
    std::vector<std::uint8_t> place(length);
    work other_way = two.operation(MLX5_OPCODE_RDMA_WRITE, 0, one);
    other_way.pieces = {piece(back.data(), length, two.on.add_region(back))};
    other_way.remote = reinterpret_cast<std::uint64_t>(place.data());
    other_way.rkey = one.on.add_region(place);
    const std::uint64_t from = post(two, other_way);
    post(one, one.operation(MLX5_OPCODE_RDMA_WRITE, length, two));
    std::array<std::uint64_t, 2> ends{};
    time.when([&] {
        if (one.cq.poll(one.seen)) ends[0] = time.now;
        if (two.cq.poll(two.seen)) ends[1] = time.now;
        return ends[0] != 0 && ends[1] != 0;
    });
    // Acknowledgements of the other direction take their part, one for 16 packets.
    for (const std::uint64_t end : ends) expect_time(end, from, transfer_ns(length, 16) + delay_ns + one_ack);
    EXPECT_EQ(place, back);
}

TEST_F(link_rate, an_acknowledgement_does_not_wait_for_data_in_its_way) {
    std::vector<std::uint8_t> place(1'000'000);
    work bulk = two.operation(MLX5_OPCODE_RDMA_WRITE, 1'000'000, one);
    bulk.remote = reinterpret_cast<std::uint64_t>(place.data());
    bulk.rkey = one.on.add_region(place);
    post(two, bulk);
    time.when([&] { return place[0] != 0 || time.now > 50'000; });
    const std::uint64_t from = post(one, one.operation(MLX5_OPCODE_RDMA_WRITE, 64, two));
    expect_time(time.when_completed(one), from, transfer_ns(64, 16) + delay_ns + one_ack);
}

TEST_F(link_rate, two_senders_share_the_receivers_port) {
    host three(linked(), &one.on);
    test_qp second(two.on.adapter, two.cq, two.cq, 1);
    const link_options how{.mtu = 3};
    connect(three.on.adapter, *three.qp.qp, second.qp->number, how);
    connect(two.on.adapter, *second.qp, three.qp.qp->number, how);
    time.hosts.push_back(&three);
    constexpr std::uint32_t length = 500'000;
    post(one, one.operation(MLX5_OPCODE_RDMA_WRITE, length, two));
    const std::uint64_t from = post(three, three.operation(MLX5_OPCODE_RDMA_WRITE, length, two));
    std::uint64_t first = 0;
    const std::uint64_t last = time.when([&] {
        static int done = 0;
        for (host* each : {&one, &three}) {
            if (!each->cq.poll(each->seen)) continue;
            if (++done == 1) first = time.now;
        }
        return done == 2;
    });
    expect_time(last, from, 2 * transfer_ns(length, 16) + delay_ns + one_ack);
    EXPECT_GT(static_cast<double>(first - from), 1.9 * transfer_ns(length, 16)) << "they take turns";
}

TEST_F(link_rate, a_message_is_late_if_its_receiver_was_away_and_not_otherwise) {
    post(one, one.operation(MLX5_OPCODE_RDMA_WRITE, 2'000'000, two));
    time.when_completed(one);
    post(one, one.operation(MLX5_OPCODE_RDMA_READ, 2'000'000, two));
    time.when_completed(one);
    const auto& mine = one.on.adapter.state.count;
    const auto& theirs = two.on.adapter.state.count;
    EXPECT_EQ(theirs.timed_messages, 2u) << "the write and the request of the read";
    EXPECT_EQ(mine.timed_messages, 1u) << "the read's answer";
    EXPECT_EQ(mine.late_messages + theirs.late_messages, 0u);
    EXPECT_EQ(mine.lateness_ns + theirs.lateness_ns, 0u);
    post(one, one.operation(MLX5_OPCODE_RDMA_WRITE, 1000, two));
    one.on.adapter.progress(time.now);
    time.now += 20'000;
    EXPECT_NE(time.when_completed(one), 0u);
    EXPECT_EQ(theirs.late_messages, 1u);
    EXPECT_GT(theirs.lateness_ns, 18'000u) << "the message itself takes less than 2 us";
    EXPECT_LE(theirs.lateness_ns, 20'000u);
}

TEST_F(link_rate, a_stall_of_the_emulation_does_not_delay_later_messages) {
    constexpr std::uint32_t length = 2'000'000;
    const std::uint64_t from = post(one, one.operation(MLX5_OPCODE_RDMA_WRITE, length, two));
    one.on.adapter.progress(time.now);
    time.now += 100'000;  // nobody runs; the ring holds less than this
    expect_completion(one, from, transfer_ns(length, 16) + delay_ns + one_ack);
}

/// Under a sanitizer a gibibyte takes up to a minute.
#ifdef SOFTNIC_SANITIZED
constexpr std::size_t many_bytes = std::size_t{1} << 26;
#else
constexpr std::size_t many_bytes = std::size_t{1} << 30;
#endif

TEST_F(link_rate, a_large_message_in_flight_takes_no_more_memory_than_a_byte) {
    constexpr std::size_t real = 4 << 20;
    const int file = ::memfd_create("link", 0);
    ASSERT_EQ(::ftruncate(file, real), 0);
    auto* const large = static_cast<std::byte*>(
        ::mmap(nullptr, many_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t at = 0; at < many_bytes; at += real)
        ASSERT_NE(::mmap(large + at, real, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0), MAP_FAILED);
    const std::uint32_t source = one.on.add_region(large, many_bytes, 1, 0xf);
    const std::uint32_t target = two.on.add_region(large, many_bytes, 1, 0xf);
    const auto allocated = [&](std::uint32_t length) {
        work what = one.operation(MLX5_OPCODE_RDMA_WRITE, 0, two);
        what.pieces = {piece(large, length, source)};
        what.remote = reinterpret_cast<std::uint64_t>(large);
        what.rkey = target;
        const std::uint64_t from = post(one, what);
        const std::function<bool()> done = [&] { return one.cq.poll(one.seen); };
        const std::uint64_t before = allocations();
        const std::uint64_t end = time.when(done);
        const std::uint64_t taken = allocations() - before;
        expect_time(end, from, transfer_ns((length + 3u) & ~3u, 16) + delay_ns + one_ack);
        return taken;
    };
    for (int round = 0; round < 64; ++round) allocated(100);  // each place of the requester's ring once
    EXPECT_EQ(allocated(1), 0u);
    EXPECT_EQ(allocated(many_bytes), 0u);
    ::munmap(large, many_bytes);
    ::close(file);
}

TEST(link_with_faults, messages_arrive_despite_loss_and_delays_and_never_early) {
    for (const char* faults : {"drop p=0.01 seed=3", "reorder p=0.01 seed=3; duplicate p=0.01 seed=4; delay p=0.01"}) {
        linked_hosts on(linked(false, faults));
        for (const std::uint8_t opcode : {MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_READ}) {
            const std::uint64_t from = on.post(on.one, on.one.operation(opcode, host::bytes, on.two));
            const std::uint64_t end = on.time.when_completed(on.one);
            ASSERT_NE(end, 0u);
            EXPECT_EQ(on.one.seen.kind, MLX5_CQE_REQ);
            EXPECT_GE(static_cast<double>(end - from), transfer_ns(host::bytes, 16) + 2 * delay_ns);
            EXPECT_EQ(on.one.memory, on.two.memory);
        }
        EXPECT_GT(on.one.on.adapter.state.count.retransmissions, 0u);
    }
}

struct strict_link : ::testing::Test, linked_hosts {
    strict_link() : linked_hosts(linked(true)) {}
};

TEST_F(strict_link, data_may_be_late_and_is_never_early) {
    const std::uint64_t from = post(one, one.operation(MLX5_OPCODE_RDMA_WRITE, 602'112, two));
    const std::uint64_t end = time.when([&] { return two.memory[602'111] != 0; });
    ASSERT_NE(end, 0u);
    EXPECT_GE(static_cast<double>(end - from), transfer_ns(602'112, 16) + delay_ns);
}

/// Both queue pairs on one device, as in a program that talks to itself.
TEST(link_loopback, loopback_messages_take_the_time_of_the_port) {
    rig on(linked());
    test_cq cq(on.adapter, 256);
    test_qp one(on.adapter, cq, cq, 1);
    test_qp two(on.adapter, cq, cq, 1);
    connect_pair(on.adapter, one, two, {.mtu = 3});
    std::vector<std::uint8_t> from(602'112, 9);
    std::vector<std::uint8_t> to(602'112);
    work what;
    what.opcode = MLX5_OPCODE_RDMA_WRITE;
    what.pieces = {piece(from.data(), 602'112, on.add_region(from))};
    what.remote = reinterpret_cast<std::uint64_t>(to.data());
    what.rkey = on.add_region(to);
    one.post(what);
    on.step(0);
    one.ring();
    const std::uint64_t start = on.now;
    seen_completion seen;
    while (!cq.poll(seen)) {
        ASSERT_LT(on.now, start + 1'000'000);
        on.step(100);
    }
    expect_time(on.now, start, transfer_ns(602'112, 16) + delay_ns + one_ack);
    EXPECT_EQ(from, to);
}

}  // namespace
}  // namespace accel::softnic
