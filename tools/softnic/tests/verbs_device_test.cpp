// SPDX-License-Identifier: Apache-2.0
// What the device says about itself, its clock, and contexts that are opened twice. Run under `softnic run`.
#include "verbs_fixture.hpp"

#include <array>
#include <cstring>
#include <ctime>

#include <infiniband/mlx5dv.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

namespace st = accel::softnic::testing;

constexpr std::uint64_t standard_flags = IBV_WC_STANDARD_FLAGS;

struct device : st::verbs_fixture {
    std::uint64_t read_clock() {
        ibv_values_ex values{};
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        EXPECT_EQ(ibv_query_rt_values_ex(context.get(), &values), 0);
        EXPECT_EQ(values.comp_mask, static_cast<std::uint32_t>(IBV_VALUES_MASK_RAW_CLOCK));
        return static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
    }
    void write_once(ibv_qp* on) {
        ibv_sge piece{};
        auto what = request(IBV_WR_RDMA_WRITE, piece, 64);
        post(on, what);
    }
};

TEST_F(device, the_device_reports_only_what_it_supports) {
    ibv_device_attr about{};
    ASSERT_EQ(ibv_query_device(context.get(), &about), 0);
    const unsigned refused =
        IBV_DEVICE_XRC | IBV_DEVICE_AUTO_PATH_MIG | IBV_DEVICE_MANAGED_FLOW_STEERING | IBV_DEVICE_UD_IP_CSUM;
    EXPECT_EQ(about.device_cap_flags & refused, 0u);
    const unsigned windows = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    EXPECT_EQ(about.device_cap_flags & windows, windows);
    EXPECT_GT(about.max_mw, 0);
}

constexpr std::uint64_t tolerance_ns = 60'000'000'000;

void expect_wall_time(std::uint64_t nanoseconds) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const auto wall = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
    EXPECT_LT(nanoseconds, wall + tolerance_ns);
    EXPECT_GT(nanoseconds, wall - tolerance_ns);
}

struct extended_cq {
    explicit extended_cq(ibv_context* on, std::uint64_t wc_flags, std::uint32_t flags = 0, std::uint32_t entries = 8) {
        ibv_cq_init_attr_ex how{};
        how.cqe = entries;
        how.wc_flags = wc_flags;
        how.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        how.flags = flags;
        queue = st::required(ibv_create_cq_ex(on, &how), "extended completion queue");
    }
    ~extended_cq() { ibv_destroy_cq(plain()); }
    extended_cq(const extended_cq&) = delete;
    extended_cq& operator=(const extended_cq&) = delete;

    [[nodiscard]] ibv_cq* plain() const { return ibv_cq_ex_to_cq(queue); }
    bool start_poll() const {
        ibv_poll_cq_attr none{};
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (std::chrono::steady_clock::now() < deadline)
            if (ibv_start_poll(queue, &none) == 0) return true;
        return false;
    }
    ibv_cq_ex* queue;
};

/// A register, which it tells how to convert.
TEST_F(device, stamps_completions_with_its_clock) {
    const extended_cq stamped(context.get(), standard_flags | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    const st::qp_owner sender = st::make_qp(pd.get(), stamped.plain(), stamped.plain());
    const st::qp_owner target = st::make_qp(pd.get(), other_cq.get(), other_cq.get());
    st::connect(sender.get(), target.get());
    const std::uint64_t before = read_clock();
    write_once(sender.get());
    ASSERT_TRUE(stamped.start_poll());
    const std::uint64_t at = ibv_wc_read_completion_ts(stamped.queue);
    ibv_end_poll(stamped.queue);
    EXPECT_GE(at, before);
    EXPECT_LE(at, read_clock());
    EXPECT_GT(read_clock(), before);
    mlx5dv_clock_info info{};
    ASSERT_EQ(mlx5dv_get_clock_info(context.get(), &info), 0);
    expect_wall_time(mlx5dv_ts_to_ns(&info, at));
}

TEST_F(device, stamps_completions_with_wall_time) {
    const extended_cq stamped(context.get(), standard_flags | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
    const st::qp_owner sender = st::make_qp(pd.get(), stamped.plain(), stamped.plain());
    const st::qp_owner target = st::make_qp(pd.get(), other_cq.get(), other_cq.get());
    st::connect(sender.get(), target.get());
    write_once(sender.get());
    ASSERT_TRUE(stamped.start_poll());
    expect_wall_time(ibv_wc_read_completion_wallclock_ns(stamped.queue));
    ibv_end_poll(stamped.queue);
}

/// Three times as many completions as places, and nobody reads them.
void overrun(st::verbs_fixture& on, ibv_cq* small, ibv_cq* other_cq, const char* what, ibv_qp_state expected) {
    const st::qp_owner sender = st::make_qp(on.pd.get(), small, small);
    const st::qp_owner target = st::make_qp(on.pd.get(), other_cq, other_cq);
    st::connect(sender.get(), target.get());
    for (int count = 0; count < 24; ++count) {
        std::memset(on.to.data(), 0, 64);
        ibv_sge piece{};
        auto write = on.request(IBV_WR_RDMA_WRITE, piece, 64);
        st::verbs_fixture::post(sender.get(), write);
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(count < 7 ? 5000 : 20);
        volatile std::uint8_t* last = on.to.data() + 63;
        while (*last != on.from[63] && std::chrono::steady_clock::now() < deadline) softnic_progress();
    }
    for (int count = 0; count < 1000; ++count) softnic_progress();
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(sender.get(), &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, expected) << what;
}

TEST_F(device, ignores_overruns_of_a_queue_that_asks_for_it) {
    const extended_cq careless(context.get(), standard_flags, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, 7);
    overrun(*this, careless.plain(), other_cq.get(), "overruns are ignored", IBV_QPS_RTS);
    const extended_cq careful(context.get(), standard_flags, 0, 7);
    overrun(*this, careful.plain(), other_cq.get(), "overruns are an error", IBV_QPS_ERR);
}

TEST_F(device, a_duplicate_of_its_descriptor_opens_the_device) {
    const int duplicate = ::dup(context->cmd_fd);
    struct stat status {};
    ASSERT_EQ(::fstat(duplicate, &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));
    const st::context_owner imported(ibv_import_device(duplicate));  // closes the duplicate
    ASSERT_NE(imported, nullptr);
    ibv_pd* const same_pd = ibv_import_pd(imported.get(), pd->handle);
    ASSERT_NE(same_pd, nullptr);
    ibv_mr* const same_mr = ibv_import_mr(same_pd, to_mr->handle);
    ASSERT_NE(same_mr, nullptr);
    EXPECT_EQ(same_mr->rkey, to_mr->rkey);
    EXPECT_EQ(same_mr->length, to_mr->length);
    ibv_unimport_mr(same_mr);
    ibv_unimport_pd(same_pd);
    EXPECT_EQ(ibv_import_pd(imported.get(), pd->handle + 1000), nullptr);
}

TEST_F(device, carries_work_of_an_imported_protection_domain) {
    const st::context_owner imported(ibv_import_device(::dup(context->cmd_fd)));
    ASSERT_NE(imported, nullptr);
    ibv_pd* const same_pd = ibv_import_pd(imported.get(), pd->handle);
    ASSERT_NE(same_pd, nullptr);
    {
        const st::cq_owner own_cq(ibv_create_cq(imported.get(), 16, nullptr, nullptr, 0));
        const st::qp_owner sender = st::make_qp(same_pd, own_cq.get(), own_cq.get());
        const st::qp_owner target = st::make_qp(pd.get(), other_cq.get(), other_cq.get());
        st::connect(sender.get(), target.get());
        write_once(sender.get());
        EXPECT_EQ(wait(own_cq.get()).status, IBV_WC_SUCCESS) << "with keys of the first context";
        EXPECT_EQ(std::memcmp(from.data(), to.data(), 64), 0);
    }
    ibv_unimport_pd(same_pd);
}

TEST_F(device, works_on_after_its_first_descriptor_is_closed) {
    const st::context_owner imported(ibv_import_device(::dup(context->cmd_fd)));
    ASSERT_NE(imported, nullptr);
    st::context_owner second = st::open_device();
    const st::context_owner duplicate(ibv_import_device(::dup(second->cmd_fd)));
    second.reset();
    const st::pd_owner domain(ibv_alloc_pd(duplicate.get()));
    const st::cq_owner own_cq(ibv_create_cq(duplicate.get(), 16, nullptr, nullptr, 0));
    const st::qp_owner made = st::make_qp(domain.get(), own_cq.get(), own_cq.get());
    EXPECT_NE(made, nullptr) << "its doorbell page is mapped from the duplicate";
}

}  // namespace
