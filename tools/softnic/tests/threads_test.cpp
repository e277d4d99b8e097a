// SPDX-License-Identifier: Apache-2.0
// The device's own thread against several of the program's; what ThreadSanitizer looks at.
#include "engine/runner.hpp"
#include "rig.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

namespace accel::softnic {
namespace {

using testing::piece;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::work;

/// Posts writes and waits for each, as a program thread would: only the doorbell and set-up take the lock.
void write_many(nic& adapter, runner& driver, rig& on, int count, std::atomic<int>& done) {
    std::vector<std::uint8_t> from(3000, 7);
    std::vector<std::uint8_t> to(3000);
    std::unique_ptr<test_cq> cq;
    std::unique_ptr<test_qp> qp;
    std::unique_ptr<test_qp> other;
    work what;
    {
        const model_guard guard(adapter);
        cq = std::make_unique<test_cq>(adapter);
        qp = std::make_unique<test_qp>(adapter, *cq, *cq, 1);
        other = std::make_unique<test_qp>(adapter, *cq, *cq, 1);
        testing::connect_pair(adapter, *qp, *other);
        what.opcode = MLX5_OPCODE_RDMA_WRITE;
        what.pieces = {piece(from.data(), 3000, on.add_region(from))};
        what.remote = reinterpret_cast<std::uint64_t>(to.data());
        what.rkey = on.add_region(to);
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (int round = 0; round < count; ++round) {
        qp->post(what);
        {
            const model_guard guard(adapter);
            qp->ring();
        }
        seen_completion seen;
        while (!cq->poll(seen) && std::chrono::steady_clock::now() < deadline)
            if (round % 2 == 0) driver.help();
        if (seen.kind == MLX5_CQE_REQ) ++done;
    }
    const model_guard guard(adapter);
    other.reset();
    qp.reset();
    adapter.remove_cq(*cq->queue);
}

/// Never destroyed, as in the preload library: the thread goes on for ever.
TEST(threads, threads_of_program_and_device_work_together) {
    for (const poll_mode mode : {poll_mode::adaptive, poll_mode::spin}) {
        settings chosen;
        chosen.mode = mode;
        auto& on = *new rig(chosen);
        auto& driver = *new runner(on.adapter);
        driver.start();
        std::atomic<int> done = 0;
        constexpr int rounds = 200;
        std::vector<std::thread> program;
        for (int count = 0; count < 3; ++count)
            program.emplace_back([&] { write_many(on.adapter, driver, on, rounds, done); });
        for (auto& each : program) each.join();
        EXPECT_EQ(done, 3 * rounds) << to_string(mode);
        on.adapter.mutex.lock();  // the thread stops here, so that it does not disturb the other tests
    }
}

}  // namespace
}  // namespace accel::softnic
