// SPDX-License-Identifier: Apache-2.0
// The posting functions on the device: full rings, what it answers, read without libmlx5.
#include "bench/kernels/post/deferred_doorbell.hpp"
#include "kernels/queues/devx_queue_pair.hpp"
#include "mlx5_queues.hpp"

#include <cstring>

namespace accel::verbs {
namespace {

class mlx5_queue : public mlx5_queues {};

TEST_F(mlx5_queue, a_full_ring_says_again_and_takes_nothing) {
    std::vector<std::byte> ring(8 * mlx5::wqebb_bytes);
    mlx5::be32 record{};
    std::uint64_t doorbell = 0;
    mlx5::send_queue_state state{0xffff'fffa, 0xffff'fffa};  // soon to wrap
    const mlx5::send_queue_ref queue{ring.data(), 8, 0x123, &record, &doorbell, &state};
    mlx5::work_request request;
    const mlx5::local_range payload = range(0, 128);
    request.ranges = 1;
    request.first = &payload;
    request.carries_bytes = true;
    ASSERT_EQ(mlx5::wqebbs_of(mlx5::size_of(request).ds), 3U);
    EXPECT_EQ(mlx5::post(queue, request), status::ok);
    EXPECT_EQ(mlx5::post(queue, request), status::ok);
    EXPECT_EQ(mlx5::free_wqebbs(queue), 2U);
    const std::uint64_t rung = doorbell;
    EXPECT_EQ(mlx5::post(queue, request), status::again);
    EXPECT_EQ(mlx5::free_wqebbs(queue), 2U);
    EXPECT_EQ(doorbell, rung);
    EXPECT_EQ(mlx5::from_be(record), 0U) << "-6 + 2 * 3";

    EXPECT_FALSE(mlx5::release(queue, 0)) << "nothing begins there";
    EXPECT_FALSE(mlx5::release(queue, 0xfff9)) << "nor before the first";
    EXPECT_TRUE(mlx5::release(queue, 0xfffa));
    EXPECT_EQ(mlx5::free_wqebbs(queue), 5U);
    EXPECT_FALSE(mlx5::release(queue, 0xfffa)) << "once";
    EXPECT_EQ(mlx5::post(queue, request), status::ok);
    EXPECT_TRUE(mlx5::release(queue, 0)) << "it completes the one before it too";
    EXPECT_EQ(mlx5::free_wqebbs(queue), 8U);
}

// Whoever polls before the adapter has written would take a zeroed entry for a completion of the first round.
TEST(devx_memory, new_completion_queues_hold_no_completion) {
    constexpr std::uint32_t sends = 64;  // rings of one page each
    std::vector<std::byte> memory = gpu::devx_queue_pair::initial_memory(sends);
    ASSERT_EQ(memory.size(), gpu::devx_queue_pair::memory_bytes(sends));
    ASSERT_EQ(memory.size(), 3U * 4096) << "the send queue, the completion queue, the records";
    mlx5::completion_queue_state state;
    mlx5::completion_queue_ref queue;
    queue.entries = memory.data() + 4096;
    queue.count = sends;
    queue.entry_bytes = sizeof(mlx5::completion_entry);
    queue.state = &state;
    for (state.taken = 0; state.taken < sends; state.taken = state.taken + 1)
        EXPECT_FALSE(mlx5::is_next_there(queue)) << state.taken;
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

TEST_F(mlx5_queue, messages_wrap_around_all_rings) {
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
        ASSERT_EQ(mlx5::free_wqebbs(from.queues.sends), from.queues.sends.wqebbs);
    }
    EXPECT_EQ(client.taken.first_failure, 0U);
}

TEST_F(mlx5_queue, a_rung_doorbell_completes_all_deferred_requests) {
    const end one = make_end();
    const end other = make_end();
    connect(*one.pair, *other.pair);
    driven client(*driver_, *one.pair, *one.completions);
    bench::deferred_doorbell deferred;
    mlx5::work_request request;
    request.flags = mlx5::flag_signalled;
    request.remote_key = registered_->rkey;
    request.ranges = 1;
    const auto post = [&](mlx5::opcode operation, const mlx5::local_range& here, std::size_t there) {
        request.operation = operation;
        request.first = &here;
        request.remote_address = address(there);
        return bench::post(client.queues.sends, request, deferred);
    };
    for (std::uint32_t i = 0; i < 3'000; ++i) {
        const std::uint32_t writes = 1 + i % 5;
        for (std::uint32_t each = 0; each < writes; ++each) {
            const std::uint32_t content = i * 8 + each;
            std::memcpy(memory_.data() + 8 * each, &content, sizeof content);
            ASSERT_EQ(post(mlx5::opcode::write, range(8 * each, 8), 4096 + 8 * each), status::ok) << i;
        }
        // A completed write need not be in memory yet; what is read behind it is.
        ASSERT_EQ(post(mlx5::opcode::read, range(8192, 8 * writes), 4096), status::ok) << i;
        bench::ring(client.queues.sends, deferred);
        for (std::uint32_t each = 0; each < writes + 1; ++each) {
            mlx5::completion sent;
            ASSERT_TRUE(take(client.done, sent)) << i;
            ASSERT_EQ(sent.failure, mlx5::syndrome::none);
            ASSERT_TRUE(mlx5::release(client.queues.sends, sent.counter));
        }
        ASSERT_EQ(std::memcmp(memory_.data(), memory_.data() + 8192, std::size_t{8} * writes), 0) << i;
        ASSERT_EQ(mlx5::free_wqebbs(client.queues.sends), client.queues.sends.wqebbs);
    }
}

TEST_F(mlx5_queue, the_first_failure_is_kept_with_its_reason) {
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

TEST_F(mlx5_queue, discarded_completions_are_never_reported) {
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
    const auto* const last = mlx5::entry_at(client.done, 2);
    ASSERT_TRUE(eventually(
        patience(5s), [&] { return mlx5::is_written(client.done, 2, mlx5::load_whole(&last->owner_kind)); }, 10us));
    mlx5::discard_completions(client.done, one.pair->qp_num);
    for (int i = 1; i < 3; ++i) {
        ASSERT_TRUE(take(client.done, done));
        EXPECT_EQ(done.queue_pair, mlx5::no_queue_pair);
    }
    EXPECT_FALSE(mlx5::take(client.done, done));
}

}  // namespace
}  // namespace accel::verbs
