// SPDX-License-Identifier: Apache-2.0
// The posting functions against libmlx5: the same bytes for the same operations, round the ring.
#include "bench/kernels/post/batch.hpp"
#include "mlx5_queues.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

namespace accel::verbs {
namespace {

class mlx5_bytes : public mlx5_queues {};

/// A random operation, as libibverbs and as the posting functions are told it.
class operation {
  public:
    operation(std::mt19937& dice, std::uint64_t base, std::uint32_t key) {
        struct kind {
            ibv_wr_opcode verbs;
            mlx5::opcode own;
        };
        constexpr std::array<kind, 7> kinds{{{IBV_WR_RDMA_WRITE, mlx5::opcode::write},
                                             {IBV_WR_RDMA_WRITE_WITH_IMM, mlx5::opcode::write_immediate},
                                             {IBV_WR_SEND, mlx5::opcode::send},
                                             {IBV_WR_SEND_WITH_IMM, mlx5::opcode::send_immediate},
                                             {IBV_WR_RDMA_READ, mlx5::opcode::read},
                                             {IBV_WR_ATOMIC_CMP_AND_SWP, mlx5::opcode::compare_swap},
                                             {IBV_WR_ATOMIC_FETCH_AND_ADD, mlx5::opcode::fetch_add}}};
        const auto roll = [&dice](std::uint32_t below) { return static_cast<std::uint32_t>(dice() % below); };
        const kind& chosen = kinds[roll(kinds.size())];
        const bool atomic = mlx5::is_atomic(chosen.own);
        const bool sends = chosen.own == mlx5::opcode::send || chosen.own == mlx5::opcode::send_immediate;
        const bool carries = !atomic && chosen.own != mlx5::opcode::read && roll(2) == 0;
        request.operation = chosen.own;
        request.carries_bytes = carries;
        request.ranges = atomic ? 1 : roll(max_ranges + 1);
        std::uint32_t left = max_inline;
        for (std::uint32_t i = 0; i < request.ranges; ++i) {
            // The receives have no memory, so what is sent has no bytes but may have ranges.
            const std::uint32_t any = roll(4) == 0 ? 0 : roll(carries ? left + 1 : 300);
            ranges[i] = {base + roll(1000), sends ? 0 : any, key};
            if (atomic) ranges[i] = {base + 8 * roll(100), 8, key};
            left -= carries ? ranges[i].length : 0;
            segments[i] = {ranges[i].address, ranges[i].length, ranges[i].key};
        }
        wr.opcode = chosen.verbs;
        wr.num_sge = static_cast<int>(request.ranges);
        wr.send_flags = carries ? IBV_SEND_INLINE : 0;
        for (const unsigned flag : {IBV_SEND_FENCE, IBV_SEND_SOLICITED, IBV_SEND_SIGNALED})
            if (roll(4) == 0) wr.send_flags |= flag;
        request.remote_address = base + 4096 + 8 * roll(1000);
        request.remote_key = key;
        const std::uint32_t immediate = static_cast<std::uint32_t>(dice());
        wr.imm_data = immediate;
        request.immediate = mlx5::be32{immediate};
        if (atomic) {
            request.compare = dice();
            request.swap_or_add = dice();
            wr.wr.atomic.remote_addr = request.remote_address;
            wr.wr.atomic.rkey = key;
            const bool swaps = chosen.own == mlx5::opcode::compare_swap;
            wr.wr.atomic.compare_add = swaps ? request.compare : request.swap_or_add;
            wr.wr.atomic.swap = swaps ? request.swap_or_add : 0;
        } else {
            wr.wr.rdma.remote_addr = request.remote_address;
            wr.wr.rdma.rkey = key;
        }
    }
    /// After it has come to where it stays.
    void finish(bool last) {
        if (last) wr.send_flags |= IBV_SEND_SIGNALED;
        request.flags =
            static_cast<std::uint8_t>(((wr.send_flags & IBV_SEND_SIGNALED) != 0 ? mlx5::flag_signalled : 0) |
                                      ((wr.send_flags & IBV_SEND_SOLICITED) != 0 ? mlx5::flag_solicited : 0) |
                                      ((wr.send_flags & IBV_SEND_FENCE) != 0 ? mlx5::flag_fence : 0));
        request.first = ranges.data();
        wr.sg_list = segments.data();
        wr.next = nullptr;
    }

    mlx5::work_request request;
    ibv_send_wr wr{};
    std::array<mlx5::local_range, max_ranges> ranges{};
    std::array<ibv_sge, max_ranges> segments{};
};

/// The first block of the last of them.
std::uint32_t post_together(const mlx5::send_queue_ref& queue, const std::vector<operation>& operations) {
    std::vector<mlx5::work_request> requests;
    for (const operation& each : operations) requests.push_back(each.request);
    const auto count = static_cast<std::uint32_t>(requests.size());
    EXPECT_EQ(bench::post<accel::device::thread_scope>(queue, requests.data(), count), status::ok);
    return queue.state->reserved - mlx5::wqebbs_of(mlx5::size_of(requests.back()).ds);
}

TEST_F(mlx5_bytes, work_requests_are_those_of_libmlx5_to_the_byte) {
    const end client = make_end();
    const end server = make_end();
    connect(*client.pair, *server.pair);
    const auto theirs = driver_->locate(*client.pair).value().sends;

    // A ring that no device reads, of the same size and for the same number.
    const std::size_t bytes = std::size_t{theirs.wqebbs} * mlx5::wqebb_bytes;
    std::vector<std::byte> ring(theirs.ring, theirs.ring + bytes);
    mlx5::be32 record{};
    std::uint64_t doorbell = 0;
    mlx5::send_queue_state state;
    mlx5::send_queue_ref ours = theirs;
    ours.ring = ring.data();
    ours.doorbell_record = &record;
    ours.doorbell = &doorbell;
    ours.state = &state;

    std::mt19937 dice(20261121);
    for (unsigned batch = 0; batch < 18'500; ++batch) {
        std::vector<operation> operations;
        const std::size_t count = 1 + dice() % 5;
        for (std::size_t i = 0; i < count; ++i) operations.emplace_back(dice, address(0), registered_->lkey);
        std::uint32_t last = 0;
        for (std::size_t i = 0; i < count; ++i) {
            operations[i].finish(i + 1 == count);
            if (i > 0) operations[i - 1].wr.next = &operations[i].wr;
        }
        if (batch % 2 == 0) {
            for (const operation& each : operations) {
                const mlx5::request_size size = mlx5::size_of(each.request);
                ASSERT_EQ(mlx5::reserve(ours, mlx5::wqebbs_of(size.ds), last), status::ok) << batch;
                mlx5::fill(ours, last, each.request, size);
            }
            mlx5::publish(ours, state.reserved);
            mlx5::ring(ours, last);
        } else {
            last = post_together(ours, operations);
        }

        std::vector<ibv_recv_wr> receives(count);
        for (ibv_recv_wr& each : receives) {
            ibv_recv_wr* failed = nullptr;
            (void)ibv_post_recv(server.pair.get(), &each, &failed);  // full at times: some use none
        }
        ibv_send_wr* failed = nullptr;
        ASSERT_EQ(ibv_post_send(client.pair.get(), &operations[0].wr, &failed), 0) << batch;
        const bool same = std::memcmp(ring.data(), theirs.ring, bytes) == 0;
        ASSERT_TRUE(same) << "batch " << batch << " at block " << last;
        ASSERT_EQ(record, *theirs.doorbell_record);
        std::uint64_t first_bytes = 0;
        std::memcpy(&first_bytes, theirs.ring + (last % theirs.wqebbs) * std::size_t{64}, 8);
        ASSERT_EQ(doorbell, first_bytes);

        std::size_t signalled = 0;
        for (const operation& each : operations) signalled += (each.wr.send_flags & IBV_SEND_SIGNALED) != 0;
        std::array<ibv_wc, 8> done{};
        std::size_t got = 0;
        ASSERT_TRUE(eventually(
            patience(5s),
            [&] {
                const int now = ibv_poll_cq(client.completions.get(), 8, done.data());
                for (int i = 0; i < now; ++i) EXPECT_EQ(done[static_cast<std::size_t>(i)].status, 0);
                got += static_cast<std::size_t>(std::max(now, 0));
                return got == signalled;
            },
            10us))
            << batch;
        while (ibv_poll_cq(server.completions.get(), 8, done.data()) > 0) continue;
        ASSERT_TRUE(mlx5::release(ours, static_cast<std::uint16_t>(last)));
        ASSERT_EQ(mlx5::free_wqebbs(ours), ours.wqebbs);
    }
    EXPECT_GT(state.reserved, 0x1'0000U + ours.wqebbs) << "the counters of 16 bits have to wrap";
}

}  // namespace
}  // namespace accel::verbs
