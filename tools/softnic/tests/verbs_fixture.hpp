// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "softnic/softnic.h"
#include "verbs_pair.hpp"

#include <chrono>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace accel::softnic::testing {

inline constexpr int all_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// A device with two connected queue pairs, and memory to move between.
struct verbs_fixture : ::testing::Test {
    std::vector<std::uint8_t> from = std::vector<std::uint8_t>(1 << 20);
    std::vector<std::uint8_t> to = std::vector<std::uint8_t>(1 << 20);
    context_owner context = open_device();
    pd_owner pd{ibv_alloc_pd(context.get())};
    mr_owner from_mr{ibv_reg_mr(pd.get(), from.data(), from.size(), all_access)};
    mr_owner to_mr{ibv_reg_mr(pd.get(), to.data(), to.size(), all_access)};
    channel_owner channel{ibv_create_comp_channel(context.get())};
    cq_owner cq{ibv_create_cq(context.get(), 128, nullptr, channel.get(), 0)};
    cq_owner other_cq{ibv_create_cq(context.get(), 128, nullptr, nullptr, 0)};
    qp_owner qp = make_qp(pd.get(), cq.get(), cq.get());
    qp_owner other = make_qp(pd.get(), other_cq.get(), other_cq.get());

    void SetUp() override {
        for (std::size_t at = 0; at < from.size(); ++at) from[at] = static_cast<std::uint8_t>(at * 7 + (at >> 8));
        connect(qp.get(), other.get());
    }
    void TearDown() override {
        if (softnic_fault_clear) softnic_fault_clear();
        if (softnic_strict) softnic_strict(0);
    }

    ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& piece, std::uint32_t size) const {
        piece = {reinterpret_cast<std::uint64_t>(from.data()), size, from_mr->lkey};
        ibv_send_wr out{};
        out.wr_id = 1000 + size;
        out.sg_list = &piece;
        out.num_sge = 1;
        out.opcode = opcode;
        out.send_flags = IBV_SEND_SIGNALED;
        out.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(to.data());
        out.wr.rdma.rkey = to_mr->rkey;
        return out;
    }
    static void post(ibv_qp* on, ibv_send_wr& what) {
        ibv_send_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_send(on, &what, &bad), 0);
    }
    void receive(ibv_qp* on, std::uint32_t size, std::uint64_t id) const {
        ibv_sge piece{reinterpret_cast<std::uint64_t>(to.data()), size, to_mr->lkey};
        ibv_recv_wr what{id, nullptr, &piece, 1};
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_recv(on, &what, &bad), 0);
    }
    static ibv_wc wait(ibv_cq* on) {
        ibv_wc out{};
        out.status = IBV_WC_GENERAL_ERR;
        out.wr_id = ~0ull;
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (std::chrono::steady_clock::now() < deadline)
            if (ibv_poll_cq(on, 1, &out) == 1) return out;
        ADD_FAILURE() << "no completion";
        return out;
    }
};

}  // namespace accel::softnic::testing
