// SPDX-License-Identifier: Apache-2.0
// The ioctl front end, without libibverbs: what it refuses, and what different versions of the callers see.
#include "abi/dispatch.hpp"
#include "dma/guarded.hpp"
#include "ioctl_builder.hpp"
#include "rig.hpp"

#include <array>
#include <cerrno>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

using testing::ioctl_builder;
using testing::rig;

struct abi : ::testing::Test {
    rig on;
    int file = ::memfd_create("uverbs", MFD_CLOEXEC);
    context target{on.adapter, 0, file};

    abi() { guarded::install_fault_handler(); }
    ~abi() override { ::close(file); }

    int call(ioctl_builder& command) { return dispatch(target, command.get()); }
    int write_command(std::uint64_t number, ioctl_builder& command) {
        command.in(UVERBS_ATTR_WRITE_CMD, number);
        return call(command);
    }
    static ioctl_builder invoke() { return {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE}; }

    std::uint32_t make_pd() {
        ib_uverbs_alloc_pd_resp answer{};
        mlx5_ib_alloc_pd_resp driver{};
        auto command = invoke();
        command.out(UVERBS_ATTR_CORE_OUT, answer).out(UVERBS_ATTR_UHW_OUT, driver);
        EXPECT_EQ(write_command(IB_USER_VERBS_CMD_ALLOC_PD, command), 0);
        return answer.pd_handle;
    }
    int register_memory(std::uint32_t pd, void* at, std::uint64_t length, std::uint32_t flags,
                        ib_uverbs_reg_mr_resp* out = nullptr) {
        ib_uverbs_reg_mr in{};
        in.start = in.hca_va = reinterpret_cast<std::uint64_t>(at);
        in.length = length;
        in.pd_handle = pd;
        in.access_flags = flags;
        struct {
            std::uint32_t handle, lkey, rkey;
        } answer{};
        auto command = invoke();
        command.in(UVERBS_ATTR_CORE_IN, in).out(UVERBS_ATTR_CORE_OUT, answer);
        const int result = write_command(IB_USER_VERBS_CMD_REG_MR, command);
        if (out != nullptr) std::memcpy(out, &answer, sizeof answer);
        return result;
    }
};

TEST_F(abi, unknown_methods_and_mandatory_attributes_are_not_supported) {
    ioctl_builder unknown(0x1234, 7);
    EXPECT_EQ(call(unknown), EPROTONOSUPPORT);
    ib_uverbs_query_port_resp_ex answer{};
    ioctl_builder port(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
    port.in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, std::uint64_t{1}).out(UVERBS_ATTR_QUERY_PORT_RESP, answer);
    EXPECT_EQ(call(port), 0);
    EXPECT_EQ(answer.legacy_resp.state, IBV_PORT_ACTIVE);
    port.raw(99, 0, 0, 0);
    EXPECT_EQ(call(port), 0) << "optional and unknown";
    port.raw(98, 0, 0);
    EXPECT_EQ(call(port), EPROTONOSUPPORT) << "mandatory and unknown";
}

TEST_F(abi, answers_are_cut_or_padded_to_what_the_caller_knows) {
    for (const std::size_t size : {4u, 24u, 56u, 200u}) {
        std::vector<std::uint8_t> answer(size, 0xff);
        ioctl_builder command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
        command.raw(UVERBS_ATTR_UHW_OUT, static_cast<std::uint16_t>(size),
                    reinterpret_cast<std::uint64_t>(answer.data()));
        ASSERT_EQ(call(command), 0);
        EXPECT_EQ(answer[1], 0x80) << "qp_tab_size";
        if (size > sizeof(mlx5_ib_alloc_ucontext_resp)) {
            EXPECT_EQ(answer.back(), 0) << "the tail must be zero";
        }
    }
}

TEST_F(abi, wild_pointers_are_bad_addresses) {
    EXPECT_EQ(dispatch(target, reinterpret_cast<ib_uverbs_ioctl_hdr*>(8)), EFAULT);
    auto command = invoke();
    command.raw(UVERBS_ATTR_CORE_IN, sizeof(ib_uverbs_reg_mr), 4096);
    EXPECT_NE(write_command(IB_USER_VERBS_CMD_REG_MR, command), 0);
    ioctl_builder port(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
    port.in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, std::uint64_t{1}).raw(UVERBS_ATTR_QUERY_PORT_RESP, 48, 4096);
    EXPECT_EQ(call(port), EFAULT);
}

TEST_F(abi, lying_headers_are_refused) {
    ioctl_builder command(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
    command.handle(UVERBS_ATTR_DESTROY_PD_HANDLE, 1);
    auto* header = command.get();
    header->num_attrs = 2;
    EXPECT_EQ(dispatch(target, header), EINVAL);
    header->num_attrs = 60000;
    EXPECT_EQ(dispatch(target, header), EINVAL);
}

TEST_F(abi, memory_registrations_are_checked) {
    const std::uint32_t pd = make_pd();
    std::vector<std::uint8_t> memory(10000);
    ib_uverbs_reg_mr_resp answer{};
    EXPECT_EQ(register_memory(pd, memory.data(), memory.size(), 0xf, &answer), 0);
    EXPECT_EQ(answer.lkey, answer.rkey);
    EXPECT_EQ(register_memory(pd + 1000, memory.data(), 100, 0xf), EINVAL) << "no such domain";
    EXPECT_EQ(register_memory(pd, memory.data(), 0, 0xf), EINVAL);
    EXPECT_EQ(register_memory(pd, memory.data(), ~0ull, 0xf), EINVAL);
    EXPECT_EQ(register_memory(pd, memory.data(), 100, IBV_ACCESS_REMOTE_WRITE), EINVAL) << "needs local write";
    EXPECT_EQ(register_memory(pd, memory.data(), 100, IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
    void* hole = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(hole, 8192);
    EXPECT_EQ(register_memory(pd, hole, 8192, 0), EFAULT);

    ioctl_builder destroy_pd(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
    destroy_pd.handle(UVERBS_ATTR_DESTROY_PD_HANDLE, pd);
    EXPECT_EQ(call(destroy_pd), EBUSY);
    ioctl_builder destroy_mr(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY);
    destroy_mr.handle(UVERBS_ATTR_DESTROY_MR_HANDLE, answer.mr_handle);
    EXPECT_EQ(call(destroy_mr), 0);
    EXPECT_EQ(call(destroy_mr), EINVAL);
    EXPECT_EQ(call(destroy_pd), 0);
    EXPECT_EQ(on.adapter.state.devices[0].regions.size(), 0u);
}

TEST_F(abi, dmabuf_registrations_are_checked) {
    const std::uint32_t pd = make_pd();
    const int buffer = ::memfd_create("buffer", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(buffer, 8192), 0);
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;
    const auto attempt = [&](std::uint64_t offset, std::uint64_t length, int descriptor) {
        ioctl_builder command(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
        command.handle(UVERBS_ATTR_REG_DMABUF_MR_HANDLE)
            .handle(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd)
            .in(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset)
            .in(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length)
            .in(UVERBS_ATTR_REG_DMABUF_MR_IOVA, std::uint64_t{0x10000 + offset})
            .handle(UVERBS_ATTR_REG_DMABUF_MR_FD, static_cast<std::uint64_t>(descriptor))
            .in(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, std::uint32_t{0xf})
            .out(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, lkey)
            .out(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, rkey);
        return call(command);
    };
    EXPECT_EQ(attempt(100, 8192, buffer), EOPNOTSUPP) << "longer than the buffer";
    EXPECT_EQ(attempt(0, 100, -1), EOPNOTSUPP);
    ASSERT_EQ(attempt(100, 1000, buffer), 0);
    memory_region* region = on.adapter.state.devices[0].regions.find(lkey);
    ASSERT_NE(region, nullptr);
    EXPECT_TRUE(region->engine->write(region->engine_address(0x10000 + 100), "x", 1));
    char seen = 0;
    EXPECT_EQ(::pread(buffer, &seen, 1, 100), 1);
    EXPECT_EQ(seen, 'x');
    ::close(buffer);
}

TEST_F(abi, queue_pairs_need_what_they_name) {
    const std::uint32_t pd = make_pd();
    mlx5_ib_create_qp driver{};
    driver.buf_addr = 4096;
    driver.db_addr = 4096;
    driver.sq_wqe_count = 64;
    mlx5_ib_create_qp_resp driver_answer{};
    ib_uverbs_qp_cap cap{};
    std::uint32_t qpn = 0;
    const auto attempt = [&](std::uint64_t type, std::uint32_t cq) {
        ioctl_builder command(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
        command.handle(UVERBS_ATTR_CREATE_QP_HANDLE)
            .handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd)
            .handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq)
            .handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq)
            .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{1})
            .in(UVERBS_ATTR_CREATE_QP_CAP, cap)
            .in(UVERBS_ATTR_CREATE_QP_TYPE, type)
            .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, cap)
            .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qpn)
            .in(UVERBS_ATTR_UHW_IN, driver)
            .out(UVERBS_ATTR_UHW_OUT, driver_answer);
        return call(command);
    };
    EXPECT_EQ(attempt(IBV_QPT_RC, 12345), EINVAL) << "no such CQ";
    EXPECT_EQ(attempt(IBV_QPT_UC, 12345), EOPNOTSUPP);
    testing::test_cq cq(on.adapter);
    target.cqs[500] = cq.queue;
    driver.sq_wqe_count = 65;
    EXPECT_EQ(attempt(IBV_QPT_RC, 500), EINVAL) << "not a power of two";
    driver.sq_wqe_count = 64;
    EXPECT_EQ(attempt(IBV_QPT_RC, 500), 0);
    EXPECT_GE(qpn, first_qpn);
    EXPECT_EQ(on.adapter.state.net->owner_of(0, qpn), on.adapter.state.node());
}

TEST_F(abi, closing_gives_everything_back) {
    std::uint32_t qpn = 0;
    {
        context other(on.adapter, 0, file);
        testing::test_cq cq(on.adapter);
        other.cqs[1] = cq.queue;
        queue_pair_options options;
        options.send_cq = options.receive_cq = cq.queue;
        qpn = on.adapter.create_qp(0, options)->number;
        other.qps[2] = qpn;
    }
    EXPECT_EQ(on.adapter.state.net->owner_of(0, qpn), -1);
    EXPECT_EQ(on.adapter.state.devices[0].find_queue_pair(qpn), nullptr);
}

TEST_F(abi, doorbell_pages_coalesce) {
    std::uint64_t offset = 0;
    std::uint32_t length = 0;
    std::uint32_t page_number = 0;
    ioctl_builder command(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
    command.handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
        .in(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, std::uint32_t{0})
        .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset)
        .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, length)
        .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page_number);
    ASSERT_EQ(call(command), 0);
    auto* page = static_cast<std::uint64_t*>(
        ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset)));
    ASSERT_NE(page, MAP_FAILED);
    EXPECT_FALSE(on.adapter.has_something_to_do());
    page[0x800 / 8] = 1;
    page[0xa00 / 8] = 2;
    EXPECT_TRUE(on.adapter.has_something_to_do());
    on.step();
    EXPECT_EQ(on.adapter.state.count.doorbells, 1u) << "two rings, one look";
    EXPECT_EQ(page[0x800 / 8], 0u);
    EXPECT_FALSE(on.adapter.has_something_to_do());
    ::munmap(page, length);
}

}  // namespace
}  // namespace accel::softnic
