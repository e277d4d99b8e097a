// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "patience.hpp"
#include "verbs/device.hpp"
#include "verbs/domain.hpp"
#include "verbs/mlx5_driver.hpp"

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Queue pairs made with libibverbs alone, for tests of the posting functions.
namespace accel::verbs {

using tests::eventually;
using tests::patience;
using namespace std::chrono_literals;

inline constexpr std::uint32_t all_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr std::uint32_t depth = 64;
inline constexpr std::uint32_t max_ranges = 4;
inline constexpr std::uint32_t max_inline = 200;

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
        wanted.cap = {depth, receives == nullptr ? depth : 0, max_ranges, receives == nullptr ? 1U : 0U, max_inline};
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
        ASSERT_EQ(ibv_modify_qp(&pair, &wanted, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
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
                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                    IBV_QP_MAX_QP_RD_ATOMIC),
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

}  // namespace accel::verbs
