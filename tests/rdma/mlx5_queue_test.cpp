// The posting functions against libmlx5 and the device: the same bytes for the same operations, round the
// ring; and what the device answers, read without libmlx5.
#include "conformance/patience.hpp"
#include "verbs/device.hpp"
#include "verbs/domain.hpp"
#include "verbs/mlx5_driver.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace accel::verbs {
namespace {

using tests::eventually;
using tests::patience;
using namespace std::chrono_literals;

constexpr std::uint32_t all_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint32_t depth = 64;
constexpr std::uint32_t most_ranges = 4;
constexpr std::uint32_t most_inline = 200;

/// Two queue pairs of this process that are connected with each other, each with a completion queue.
class mlx5_queues : public ::testing::Test {
  protected:
    struct end {
        cq_handle completions;
        qp_handle pair;
    };

    void SetUp() override {
        auto found = mlx5_driver::of(device_->context());
        if (!found) GTEST_SKIP() << found.error().message;
        driver_ = *found;
        registered_.reset(ibv_reg_mr(domain_->get(), memory_.data(), memory_.size(), all_access));
        ASSERT_NE(registered_, nullptr);
    }
    [[nodiscard]] end make_end(ibv_srq* receives = nullptr) {
        end out;
        out.completions.reset(ibv_create_cq(&device_->context(), 4 * depth, nullptr, nullptr, 0));
        ibv_qp_init_attr wanted{};
        wanted.send_cq = wanted.recv_cq = out.completions.get();
        wanted.srq = receives;
        wanted.qp_type = IBV_QPT_RC;
        wanted.cap = {depth, receives == nullptr ? depth : 0, most_ranges, receives == nullptr ? 1U : 0U,
                      most_inline};
        out.pair.reset(ibv_create_qp(domain_->get(), &wanted));
        if (!out.completions || !out.pair) throw std::runtime_error("no queue pair");
        return out;
    }
    void connect(ibv_qp& one, ibv_qp& other) {
        for (auto [each, peer] : {std::pair{&one, &other}, std::pair{&other, &one}}) bring_up(*each, *peer);
    }
    void bring_up(ibv_qp& pair, const ibv_qp& peer) {
        const port_address& port = device_->port();
        ibv_qp_attr wanted{};
        wanted.qp_state = IBV_QPS_INIT;
        wanted.port_num = port.number;
        wanted.qp_access_flags = all_access;
        ASSERT_EQ(ibv_modify_qp(&pair, &wanted,
                                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
                  0);
        wanted.qp_state = IBV_QPS_RTR;
        wanted.path_mtu = port.mtu;
        wanted.dest_qp_num = peer.qp_num;
        wanted.max_dest_rd_atomic = 4;
        wanted.min_rnr_timer = 1;
        wanted.ah_attr.port_num = port.number;
        wanted.ah_attr.dlid = port.lid;
        wanted.ah_attr.is_global = port.ethernet ? 1 : 0;
        wanted.ah_attr.grh.dgid = port.gid;
        wanted.ah_attr.grh.sgid_index = port.gid_index;
        wanted.ah_attr.grh.hop_limit = 1;
        ASSERT_EQ(ibv_modify_qp(&pair, &wanted,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                  0);
        wanted.qp_state = IBV_QPS_RTS;
        wanted.timeout = 14;
        wanted.retry_cnt = 6;
        wanted.rnr_retry = 7;
        wanted.max_rd_atomic = 4;
        ASSERT_EQ(ibv_modify_qp(&pair, &wanted,
                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                  0);
    }
    [[nodiscard]] std::uint64_t address(std::size_t offset) const {
        return reinterpret_cast<std::uintptr_t>(memory_.data()) + offset;
    }
    [[nodiscard]] mlx5::local_range range(std::size_t offset, std::uint32_t length) const {
        return {address(offset), length, registered_->lkey};
    }
    static bool take(const mlx5::completion_queue_ref& queue, mlx5::completion& out) {
        const bool taken = eventually(
            patience(5s), [&] { return mlx5::take(queue, out); }, 10us);
        if (taken) mlx5::publish_taken(queue);
        return taken;
    }

    std::vector<std::byte> memory_ = std::vector<std::byte>(64 << 10);
    std::shared_ptr<device> device_ = device::open({}, {}).value();
    std::shared_ptr<domain> domain_ = domain::create(device_).value();
    region_handle registered_;
    const mlx5_driver* driver_ = nullptr;
};

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
        request.ranges = atomic ? 1 : roll(most_ranges + 1);
        std::uint32_t left = most_inline;
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
        for (const unsigned flag : {IBV_SEND_FENCE, IBV_SEND_SOLICITED, IBV_SEND_SIGNALED}) {
            if (roll(4) == 0) wr.send_flags |= flag;
        }
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
    std::array<mlx5::local_range, most_ranges> ranges{};
    std::array<ibv_sge, most_ranges> segments{};
};

TEST_F(mlx5_queues, work_requests_are_those_of_libmlx5_to_the_byte) {
    const end client = make_end();
    const end server = make_end();
    connect(*client.pair, *server.pair);
    const auto theirs = driver_->locate(*client.pair).value().sends;

    // A ring that no device reads, of the same size and for the same number.
    const std::size_t bytes = std::size_t{theirs.blocks} * mlx5::block_bytes;
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
            const mlx5::work_request& request = operations[i].request;
            const mlx5::request_size size = mlx5::size_of(request);
            ASSERT_EQ(mlx5::reserve(ours, mlx5::blocks_of(size.units), last), status::ok) << batch;
            mlx5::fill(ours, last, request, size);
        }
        mlx5::publish(ours, state.reserved);
        mlx5::ring(ours, last);

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
        std::memcpy(&first_bytes, theirs.ring + (last % theirs.blocks) * std::size_t{64}, 8);
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
        ASSERT_EQ(mlx5::free_blocks(ours), ours.blocks);
    }
    EXPECT_GT(state.reserved, 0x1'0000U + ours.blocks) << "the counters of 16 bits have to wrap";
}

TEST_F(mlx5_queues, a_full_ring_says_again_and_takes_nothing) {
    std::vector<std::byte> ring(8 * mlx5::block_bytes);
    mlx5::be32 record{};
    std::uint64_t doorbell = 0;
    mlx5::send_queue_state state{0xffff'fffa, 0xffff'fffa};  // soon to wrap
    const mlx5::send_queue_ref queue{ring.data(), 8, 0x123, &record, &doorbell, &state};
    mlx5::work_request request;
    const mlx5::local_range payload = range(0, 128);
    request.ranges = 1;
    request.first = &payload;
    request.carries_bytes = true;
    ASSERT_EQ(mlx5::blocks_of(mlx5::size_of(request).units), 3U);
    EXPECT_EQ(mlx5::post(queue, request), status::ok);
    EXPECT_EQ(mlx5::post(queue, request), status::ok);
    EXPECT_EQ(mlx5::free_blocks(queue), 2U);
    const std::uint64_t rung = doorbell;
    EXPECT_EQ(mlx5::post(queue, request), status::again);
    EXPECT_EQ(mlx5::free_blocks(queue), 2U);
    EXPECT_EQ(doorbell, rung);
    EXPECT_EQ(mlx5::from_be(record), 0U) << "-6 + 2 * 3";

    EXPECT_FALSE(mlx5::release(queue, 0)) << "nothing begins there";
    EXPECT_FALSE(mlx5::release(queue, 0xfff9)) << "nor before the first";
    EXPECT_TRUE(mlx5::release(queue, 0xfffa));
    EXPECT_EQ(mlx5::free_blocks(queue), 5U);
    EXPECT_FALSE(mlx5::release(queue, 0xfffa)) << "once";
    EXPECT_EQ(mlx5::post(queue, request), status::ok);
    EXPECT_TRUE(mlx5::release(queue, 0)) << "it completes the one before it too";
    EXPECT_EQ(mlx5::free_blocks(queue), 8U);
}

TEST_F(mlx5_queues, a_request_longer_than_any_may_be_is_refused) {
    std::vector<std::byte> ring(64 * mlx5::block_bytes);
    mlx5::be32 record{};
    std::uint64_t doorbell = 0;
    mlx5::send_queue_state state;
    const mlx5::send_queue_ref queue{ring.data(), 64, 0x123, &record, &doorbell, &state};
    const mlx5::local_range payload = range(0, 1000);
    mlx5::work_request request;
    request.ranges = 1;
    request.first = &payload;
    request.carries_bytes = true;
    EXPECT_EQ(mlx5::post(queue, request), status::message_too_large);
    EXPECT_EQ(mlx5::free_blocks(queue), 64U);
}

/// A queue pair whose both queues and completion queue are driven here.
struct driven {
    driven(const mlx5_driver& driver, ibv_qp& pair, ibv_cq& completions)
        : queues(driver.locate(pair).value()), done(driver.locate(completions).value()) {
        queues.sends.state = &sends;
        done.state = &taken;
    }
    mlx5_queue_pair queues;
    mlx5::completion_queue_ref done;
    mlx5::send_queue_state sends;
    mlx5::completion_queue_state taken;
};

TEST_F(mlx5_queues, messages_go_round_all_rings) {
    const end one = make_end();
    ibv_srq_init_attr shape{};
    shape.attr = {depth, 1, 0};
    const srq_handle shared(ibv_create_srq(domain_->get(), &shape));
    const end other = make_end(shared.get());
    connect(*one.pair, *other.pair);
    driven client(*driver_, *one.pair, *one.completions);
    driven server(*driver_, *other.pair, *other.completions);
    auto chain = driver_->locate(*shared).value();
    ASSERT_GE(mlx5::write_empty_receives(chain), depth);
    mlx5::post_empty(chain, depth);
    mlx5::write_empty_receives(client.queues.receives);
    mlx5::post_empty(client.queues.receives, depth);

    mlx5::work_request request;
    request.operation = mlx5::opcode::write_immediate;
    request.flags = mlx5::flag_signalled;
    request.remote_key = registered_->rkey;
    request.ranges = 1;
    for (std::uint32_t i = 0; i < 3'000; ++i) {
        const bool to_server = i % 2 == 0;
        driven& from = to_server ? client : server;
        driven& to = to_server ? server : client;
        const mlx5::local_range payload = range(8, 32 + i % 100);
        std::memcpy(memory_.data() + 8, &i, sizeof i);
        request.first = &payload;
        request.carries_bytes = i % 3 == 0;
        request.immediate = mlx5::to_be32(i);
        request.remote_address = address(4096);
        ASSERT_EQ(mlx5::post(from.queues.sends, request), status::ok) << i;
        mlx5::completion arrived;
        ASSERT_TRUE(take(to.done, arrived)) << i;
        ASSERT_EQ(arrived.kind, mlx5::entry_kind::write_immediate) << i;
        EXPECT_EQ(arrived.queue_pair, to.queues.sends.queue_pair);
        EXPECT_EQ(mlx5::from_be(arrived.immediate), i);
        EXPECT_EQ(arrived.length, payload.length);
        std::uint32_t seen = 0;
        std::memcpy(&seen, memory_.data() + 4096, sizeof seen);
        EXPECT_EQ(seen, i);
        if (to_server) {
            mlx5::take_back(chain, arrived.counter);
            mlx5::post_empty(chain, 1);
        } else {
            mlx5::post_empty(client.queues.receives, 1);
        }
        mlx5::completion sent;
        ASSERT_TRUE(take(from.done, sent)) << i;
        ASSERT_EQ(sent.kind, mlx5::entry_kind::request);
        EXPECT_EQ(sent.operation, mlx5::opcode::write_immediate);
        ASSERT_TRUE(mlx5::release(from.queues.sends, sent.counter)) << i;
        ASSERT_EQ(mlx5::free_blocks(from.queues.sends), from.queues.sends.blocks);
    }
    EXPECT_EQ(client.taken.first_failure, 0U);
}

TEST_F(mlx5_queues, the_first_failure_stays_and_names_its_reason) {
    const end one = make_end();
    const end other = make_end();
    connect(*one.pair, *other.pair);
    driven client(*driver_, *one.pair, *one.completions);
    mlx5::work_request request;
    const mlx5::local_range payload = range(0, 8);
    request.ranges = 1;
    request.first = &payload;
    request.remote_address = address(4096);
    request.remote_key = registered_->rkey ^ 0x5500;
    for (int i = 0; i < 3; ++i) ASSERT_EQ(mlx5::post(client.queues.sends, request), status::ok);

    mlx5::completion first;
    ASSERT_TRUE(take(client.done, first));
    EXPECT_EQ(first.kind, mlx5::entry_kind::request_error);
    EXPECT_EQ(first.failure, mlx5::syndrome::remote_access);
    EXPECT_EQ(first.queue_pair, one.pair->qp_num);
    EXPECT_EQ(first.counter, 0);
    const std::uint64_t told = client.taken.first_failure;
    EXPECT_EQ((told >> 8) & 0xff, static_cast<std::uint64_t>(mlx5::syndrome::remote_access));
    EXPECT_EQ((told >> 16) & 0xff, first.vendor_syndrome);
    EXPECT_EQ((told >> 24) & 0xff'ffff, one.pair->qp_num);
    for (std::uint16_t i = 1; i < 3; ++i) {
        mlx5::completion flushed;
        ASSERT_TRUE(take(client.done, flushed)) << "also those that asked for no completion";
        EXPECT_EQ(flushed.failure, mlx5::syndrome::flushed);
        EXPECT_EQ(flushed.counter, i);
    }
    EXPECT_EQ(client.taken.first_failure, told);
}

TEST_F(mlx5_queues, a_disowned_number_is_never_told_again) {
    const end one = make_end();
    const end other = make_end();
    connect(*one.pair, *other.pair);
    driven client(*driver_, *one.pair, *one.completions);
    mlx5::work_request request;
    request.remote_address = address(4096);
    request.remote_key = registered_->rkey;
    request.flags = mlx5::flag_signalled;
    for (int i = 0; i < 3; ++i) ASSERT_EQ(mlx5::post(client.queues.sends, request), status::ok);
    mlx5::completion done;
    ASSERT_TRUE(take(client.done, done));
    EXPECT_EQ(done.queue_pair, one.pair->qp_num);
    const auto* const last = mlx5::detail::entry_at(client.done, 2);
    ASSERT_TRUE(eventually(
        patience(5s),
        [&] { return mlx5::detail::is_written(client.done, 2, mlx5::load_whole(&last->owner_kind)); }, 10us));
    mlx5::disown(client.done, one.pair->qp_num);
    for (int i = 1; i < 3; ++i) {
        ASSERT_TRUE(take(client.done, done));
        EXPECT_EQ(done.queue_pair, mlx5::no_queue_pair);
    }
    EXPECT_FALSE(mlx5::take(client.done, done));
}

}  // namespace
}  // namespace accel::verbs
