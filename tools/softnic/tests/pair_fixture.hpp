// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rig.hpp"

#include <numeric>

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

namespace accel::softnic::testing {

/// Two connected RC queue pairs of one device, with memory on both sides.
struct connected {
    rig on;
    std::shared_ptr<event_pipe> events = std::make_shared<event_pipe>(event_pipe::kind::asynchronous);
    test_cq cq{on.adapter, 256};
    test_cq other_cq{on.adapter, 256};
    test_qp qp{on.adapter, cq, cq, 1, qp_type::reliable_connection, events};
    test_qp other{on.adapter, other_cq, other_cq, 1, qp_type::reliable_connection, events};
    std::vector<std::uint8_t> from = std::vector<std::uint8_t>(5000);
    std::vector<std::uint8_t> to = std::vector<std::uint8_t>(5000);
    std::uint32_t from_key = on.add_region(from);
    std::uint32_t to_key = on.add_region(to);
    seen_completion seen;

    explicit connected(const link_options& how = {}, settings chosen = {}) : on(std::move(chosen)) {
        std::iota(from.begin(), from.end(), std::uint8_t{1});
        connect_pair(on.adapter, qp, other, how);
    }
    ~connected() { ::close(events->read_descriptor()); }
    connected(const connected&) = delete;
    connected& operator=(const connected&) = delete;

    work message(std::uint8_t opcode, std::uint32_t length) {
        work what;
        what.opcode = opcode;
        if (length != 0) what.pieces = {piece(from.data(), length, from_key)};
        what.remote = reinterpret_cast<std::uint64_t>(to.data());
        what.rkey = to_key;
        return what;
    }
    std::uint16_t run(const work& what) {
        const std::uint16_t index = qp.post(what);
        qp.ring();
        EXPECT_TRUE(on.settle());
        return index;
    }
    void expect_done(std::uint16_t index) {
        ASSERT_TRUE(cq.poll(seen));
        EXPECT_EQ(seen.kind, MLX5_CQE_REQ) << "syndrome " << int{seen.syndrome};
        EXPECT_EQ(seen.index, index);
    }
    void expect_error(std::uint16_t index, syndrome expected) {
        ASSERT_TRUE(cq.poll(seen));
        EXPECT_EQ(seen.kind, MLX5_CQE_REQ_ERR);
        EXPECT_EQ(seen.index, index);
        EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(expected));
        EXPECT_NE(seen.vendor, 0);
        EXPECT_EQ(seen.user_index, 0x777u);
        EXPECT_EQ(qp.qp->state, qp_state::error);
    }
    /// Of the asynchronous events the next one, or `no_event`.
    std::uint32_t next_event() {
        ib_uverbs_async_event_desc event{};
        if (!events->readable()) return no_event;
        EXPECT_EQ(::read(events->read_descriptor(), &event, sizeof event), static_cast<ssize_t>(sizeof event));
        return event.event_type;
    }
    static constexpr std::uint32_t no_event = ~0u;
};

struct pair : ::testing::Test, connected {};

}  // namespace accel::softnic::testing
