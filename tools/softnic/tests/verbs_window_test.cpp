// SPDX-License-Identifier: Apache-2.0
// Memory windows of both types, through the stock libraries. `other` owns the memory `to` and opens parts of it; `qp`
// is the peer that uses them.
#include "verbs_fixture.hpp"

#include <cerrno>
#include <cstring>
#include <memory>

namespace {

namespace st = accel::softnic::testing;

using mw_owner = st::owned<ibv_mw, ibv_dealloc_mw>;

constexpr std::uint64_t offset = 4096;
constexpr std::uint64_t length = 1000;

struct windows : st::verbs_fixture {
    st::mr_owner bindable{ibv_reg_mr(pd.get(), to.data(), to.size(), st::all_access | IBV_ACCESS_MW_BIND)};

    mw_owner make(ibv_mw_type type) const { return mw_owner(st::required(ibv_alloc_mw(pd.get(), type), "window")); }

    ibv_mw_bind_info part_of(ibv_mr* region, unsigned access) const {
        return {region, reinterpret_cast<std::uint64_t>(to.data()) + offset, length, access};
    }
    /// Binds a window of type 2. Its key is the new one afterwards.
    ibv_wc_status bind(ibv_mw* window, ibv_mr* region, unsigned access = IBV_ACCESS_REMOTE_WRITE) {
        ibv_send_wr what{};
        what.opcode = IBV_WR_BIND_MW;
        what.send_flags = IBV_SEND_SIGNALED;
        what.bind_mw.mw = window;
        what.bind_mw.rkey = ibv_inc_rkey(window->rkey);
        what.bind_mw.bind_info = part_of(region, access);
        post(other.get(), what);
        const ibv_wc done = wait(other_cq.get());
        EXPECT_TRUE(done.status != IBV_WC_SUCCESS || done.opcode == IBV_WC_BIND_MW);
        if (done.status == IBV_WC_SUCCESS) window->rkey = what.bind_mw.rkey;
        return done.status;
    }
    /// Of type 1; of no bytes: takes it back.
    void bind_1(ibv_mw* window, std::uint64_t bytes = length) {
        ibv_mw_bind how{};
        how.send_flags = IBV_SEND_SIGNALED;
        how.bind_info = part_of(bindable.get(), IBV_ACCESS_REMOTE_WRITE);
        how.bind_info.length = bytes;
        ASSERT_EQ(ibv_bind_mw(other.get(), window, &how), 0);
        ASSERT_EQ(wait(other_cq.get()).status, IBV_WC_SUCCESS);
    }
    ibv_wc_status invalidate(ibv_mw* window) {
        ibv_send_wr what{};
        what.opcode = IBV_WR_LOCAL_INV;
        what.send_flags = IBV_SEND_SIGNALED;
        what.invalidate_rkey = window->rkey;
        post(other.get(), what);
        const ibv_wc done = wait(other_cq.get());
        EXPECT_TRUE(done.status != IBV_WC_SUCCESS || done.opcode == IBV_WC_LOCAL_INV);
        return done.status;
    }
    ibv_wc_status write(std::uint32_t rkey, std::uint64_t at = offset, std::uint32_t size = length) {
        ibv_sge piece{};
        auto what = request(IBV_WR_RDMA_WRITE, piece, size);
        what.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(to.data()) + at;
        what.wr.rdma.rkey = rkey;
        post(qp.get(), what);
        return wait(cq.get()).status;
    }
    [[nodiscard]] bool arrived(std::uint64_t at, std::uint64_t size) const {
        return std::memcmp(to.data() + at, from.data(), size) == 0;
    }
};

TEST_F(windows, a_window_of_type_1_opens_memory_until_it_is_bound_anew_or_to_nothing) {
    const auto window = make(IBV_MW_TYPE_1);
    bind_1(window.get());
    EXPECT_EQ(write(window->rkey), IBV_WC_SUCCESS);
    EXPECT_TRUE(arrived(offset, length));
    const std::uint32_t earlier = window->rkey;  // bound anew: a key of one variant more
    bind_1(window.get());
    EXPECT_NE(window->rkey, earlier);
    EXPECT_EQ(write(window->rkey), IBV_WC_SUCCESS);
    bind_1(window.get(), 0);
    EXPECT_EQ(write(window->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(windows, a_window_of_type_2_opens_memory_until_it_is_invalidated) {
    const auto window = make(IBV_MW_TYPE_2);
    ASSERT_EQ(bind(window.get(), bindable.get()), IBV_WC_SUCCESS);
    EXPECT_EQ(write(window->rkey), IBV_WC_SUCCESS);
    EXPECT_TRUE(arrived(offset, length));
    ASSERT_EQ(invalidate(window.get()), IBV_WC_SUCCESS);
    ASSERT_EQ(bind(window.get(), bindable.get()), IBV_WC_SUCCESS);
    EXPECT_EQ(write(window->rkey, offset + 10, 20), IBV_WC_SUCCESS);
    EXPECT_EQ(write(window->rkey, offset + 1, length), IBV_WC_REM_ACCESS_ERR);
}

/// The other refusals are in model_test.cpp.
TEST_F(windows, a_bind_that_is_refused_is_an_error_of_the_binder) {
    const auto window = make(IBV_MW_TYPE_2);
    EXPECT_EQ(bind(window.get(), to_mr.get()), IBV_WC_MW_BIND_ERR) << "the region allows no windows";
}

TEST_F(windows, a_bound_window_keeps_its_region_and_its_domain) {
    auto window = make(IBV_MW_TYPE_2);
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
    ASSERT_EQ(bind(window.get(), bindable.get()), IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_dereg_mr(bindable.get()), EBUSY);
    window.reset();
    EXPECT_EQ(ibv_dereg_mr(bindable.release()), 0);
}

TEST_F(windows, a_send_with_invalidate_frees_a_window_of_type_2) {
    const auto window = make(IBV_MW_TYPE_2);
    ASSERT_EQ(bind(window.get(), bindable.get()), IBV_WC_SUCCESS);
    receive(other.get(), 64, 7);
    ibv_sge piece{};
    auto what = request(IBV_WR_SEND_WITH_INV, piece, 64);
    what.invalidate_rkey = window->rkey;
    post(qp.get(), what);
    ASSERT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);
    const ibv_wc got = wait(other_cq.get());
    ASSERT_EQ(got.status, IBV_WC_SUCCESS);
    EXPECT_NE(got.wc_flags & IBV_WC_WITH_INV, 0u);
    EXPECT_EQ(got.invalidated_rkey, window->rkey);
    ASSERT_EQ(bind(window.get(), bindable.get()), IBV_WC_SUCCESS) << "it is free";
    EXPECT_EQ(write(window->rkey), IBV_WC_SUCCESS);
}

/// What is posted behind a bind may use the new key at once.
TEST_F(windows, requests_after_a_bind_may_use_the_new_key) {
    const auto window = make(IBV_MW_TYPE_2);
    for (int round = 0; round < 100; ++round) {
        ibv_send_wr binding{};
        ibv_send_wr told{};
        ibv_sge piece{};
        binding.opcode = IBV_WR_BIND_MW;
        binding.bind_mw.mw = window.get();
        binding.bind_mw.rkey = ibv_inc_rkey(window->rkey);
        binding.bind_mw.bind_info = part_of(bindable.get(), IBV_ACCESS_REMOTE_WRITE);
        binding.next = &told;
        told = request(IBV_WR_SEND, piece, 8);
        receive(qp.get(), 8, 1);
        post(other.get(), binding);
        window->rkey = binding.bind_mw.rkey;
        ASSERT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);
        ASSERT_EQ(wait(other_cq.get()).status, IBV_WC_SUCCESS);
        ASSERT_EQ(write(window->rkey, offset, 8), IBV_WC_SUCCESS) << round;
        ASSERT_EQ(invalidate(window.get()), IBV_WC_SUCCESS);
    }
}

}  // namespace
