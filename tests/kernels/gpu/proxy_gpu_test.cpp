// SPDX-License-Identifier: Apache-2.0
// Kernels that post through the proxy engine, with memory and rings in pinned host memory. Without a GPU they
// are skipped.
#include "gpu/gpu_bytes.hpp"
#include "gpu/proxy_kernel.hpp"
#include "rdma/proxy_messages.hpp"
#include "rdma/proxy_rig.hpp"

#include <atomic>
#include <iostream>
#include <thread>

namespace accel::verbs {
namespace {

using tests::max_message_bytes;
using tests::proxy_outcome;

class gpu_proxy : public proxy_rig {
  protected:
    /// What a kernel has in the GPU's memory.
    struct on_gpu {
        proxy::send_queue_state sends;
        proxy::completion_queue_state completions;
        std::uint32_t over;
        proxy_outcome outcome;
        std::uint32_t arrived[64];
    };

    void SetUp() override {
        if (tests::gpu_count() == 0) GTEST_SKIP() << "there is no GPU";
        proxy_rig::SetUp();
        pin(block_.word(), block_.size_bytes());
        pin(first_failure_.word(), first_failure_.size_bytes());
        stream_ = tests::make_stream();
        ASSERT_NE(stream_, nullptr);
    }
    void TearDown() override {
        if (engine_) engine_->stop();
        for (void* each : pinned_) tests::unpin(each);
        tests::end(stream_, kernels_);
    }
    void pin(void* begin, std::size_t bytes) {
        ASSERT_TRUE(tests::pin_for_gpu(begin, bytes));
        pinned_.push_back(begin);
    }
    tests::proxy_asker make_asker(std::uint32_t slots, std::uint32_t rounds, std::uint32_t descriptors) {
        make_engine({}, 128);
        must(engine_->start());
        proxy_session& session = connect(descriptors);
        pin(taker_->ring.word(), taker_->ring.size_bytes());
        pin(session.ring.word(), session.ring.size_bytes());
        on_gpu start{};
        start.sends = {session.first, session.first};
        kernels_ = static_cast<on_gpu*>(tests::gpu_memory(sizeof start));
        if (kernels_ == nullptr) throw std::runtime_error("no GPU memory");
        tests::copy_bytes(nullptr, kernels_, &start, sizeof start);
        tests::proxy_asker out;
        out.sends = session.ref();
        out.sends.state = &kernels_->sends;
        out.completions = taker_->ref();
        out.completions.state = &kernels_->completions;
        out.completions.first_failure = first_failure_.entries();
        out.memory = memory_.data();
        out.local_key = registered_->lkey;
        out.remote_key = registered_->rkey;
        out.slots = slots;
        out.rounds = rounds;
        out.arrived = kernels_->arrived;
        out.over = &kernels_->over;
        return out;
    }
    [[nodiscard]] proxy_outcome outcome() {
        proxy_outcome out;
        EXPECT_TRUE(tests::finish_within(stream_, 60));
        tests::copy_bytes(nullptr, &out, &kernels_->outcome, sizeof out);
        return out;
    }
    /// The peer's answer to what has arrived.
    void answer(proxy_session& session, std::uint32_t slots, std::vector<std::uint32_t>& rounds) {
        for (const std::uint32_t slot : arrivals_at(session)) {
            const auto place = [&](std::uint32_t area) {
                return (std::size_t{area} * slots + slot) * max_message_bytes;
            };
            const std::uint64_t seed = (std::uint64_t{slot + 1} << 32) | rounds.at(slot)++;
            if (!tests::is_message(at(place(1)), seed)) ++wrong_;
            const auto from = range(place(2), tests::write_message(at(place(2)), ~seed));
            if (!write_back(session, from, place(3), slot)) ++wrong_;
        }
    }
    void ask(std::uint32_t slots, std::uint32_t rounds) {
        const tests::proxy_asker asker = make_asker(slots, rounds, 32);
        std::atomic<bool> over{false};
        std::thread peer([&] {
            std::vector<std::uint32_t> seen(slots);
            while (!over) answer(*sessions_.back(), slots, seen);
        });
        tests::launch_asking(stream_, asker, &kernels_->outcome);
        const proxy_outcome got = outcome();
        over = true;
        peer.join();
        EXPECT_EQ(got.right, slots * rounds);
        EXPECT_EQ(got.wrong, 0U);
        EXPECT_EQ(got.expired, 0U);
        EXPECT_EQ(got.strange, 0U);
        EXPECT_EQ(got.sent, slots * ((rounds + 3) / 4));
        EXPECT_EQ(*first_failure_.entries(), 0U);
        EXPECT_EQ(wrong_, 0U);
        std::cout << slots << " slots: " << double(got.nanoseconds) / (slots * rounds) / 1000 << " us a request\n";
    }

    shared_ring<std::uint64_t> first_failure_{1};
    on_gpu* kernels_ = nullptr;
    CUstream_st* stream_ = nullptr;
    std::vector<void*> pinned_;
    std::atomic<std::uint32_t> wrong_{0};
};

TEST_F(gpu_proxy, one_thread_makes_consecutive_requests) {
    ask(1, 20'000);
}
TEST_F(gpu_proxy, a_warp_asks_at_once) {
    ask(32, 2'500);
}
TEST_F(gpu_proxy, two_warps_share_a_ring_smaller_than_two_warps) {
    ask(64, 2'500);
}

TEST_F(gpu_proxy, one_thread_posts_as_fast_as_it_can) {
    constexpr std::uint32_t count = 200'000;
    const tests::proxy_asker asker = make_asker(1, 1, 64);
    tests::launch_posting(stream_, asker, count, &kernels_->outcome);
    const proxy_outcome got = outcome();
    EXPECT_EQ(got.right, count);
    std::cout << double(got.nanoseconds) / count << " ns a request\n";
}

}  // namespace
}  // namespace accel::verbs
