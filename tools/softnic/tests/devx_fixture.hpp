// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "abi/dispatch.hpp"
#include "devx/layout.hpp"
#include "devx/status.hpp"
#include "dma/guarded.hpp"
#include "ioctl_builder.hpp"
#include "rig.hpp"

#include <cerrno>
#include <cstdlib>

#include <gtest/gtest.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <unistd.h>

namespace accel::softnic::testing {

/// One DevX command as the driver sees it: mailboxes of any length.
struct devx_exchange {
    std::vector<std::byte> in;
    std::vector<std::byte> out;
    std::uint32_t handle = 0;

    explicit devx_exchange(devx::opcode code, std::size_t in_bytes = 0x110, std::size_t out_bytes = 0x110)
        : in(in_bytes), out(out_bytes, std::byte{0xee}) {
        set(devx::header::opcode, static_cast<std::uint64_t>(code));
    }
    devx_exchange& set(devx::field where, std::uint64_t value) {
        devx::mailbox_out(in).set(where, value);
        return *this;
    }
    [[nodiscard]] std::uint32_t get(devx::field where) const { return devx::mailbox_in(out).get32(where); }
    [[nodiscard]] devx::status status() const { return static_cast<devx::status>(get(devx::header::status)); }
    [[nodiscard]] devx::reason reason() const { return static_cast<devx::reason>(get(devx::header::syndrome)); }
    [[nodiscard]] std::uint32_t object() const { return get(devx::header::object); }
};

/// A context with DevX, and what queues need: a domain, a doorbell page, memory registered as a umem.
struct devx_fixture : ::testing::Test {
    static constexpr std::size_t memory_bytes = 64 * 1024;
    static constexpr std::size_t cq_place = 0;
    static constexpr std::size_t qp_place = 16 * 1024;
    static constexpr std::size_t receives_place = 32 * 1024;
    static constexpr std::size_t cq_record = 60 * 1024;
    static constexpr std::size_t qp_record = 61 * 1024;
    static constexpr std::size_t receives_record = 62 * 1024;
    static constexpr std::uint64_t access_key = 0x0123456789abcdef;  ///< of targets
    static constexpr std::uint64_t key_begin = 0x7000'0000;          ///< first address of keys

    rig on;
    int file = ::memfd_create("uverbs", MFD_CLOEXEC);
    context target{on.adapter, 0, file};
    std::byte* memory = static_cast<std::byte*>(std::aligned_alloc(4096, memory_bytes));
    std::uint32_t umem = 0;
    std::uint32_t uar = 0;
    std::uint32_t pd = 0;

    devx_fixture() {
        guarded::install_fault_handler();
        std::memset(memory, 0xf0, memory_bytes);
        std::memset(memory + cq_record, 0, 4096);
        open(true);
        EXPECT_EQ(register_umem(memory, memory_bytes, 1, umem), 0);
        make_uar();
        devx_exchange allocate(devx::opcode::alloc_pd);
        EXPECT_EQ(create(allocate), 0);
        pd = allocate.object();
    }
    ~devx_fixture() override {
        ::close(file);
        std::free(memory);
    }

    int call(ioctl_builder& command) { return dispatch(target, command.get()); }

    void open(bool with_devx) {
        mlx5_ib_alloc_ucontext_req_v2 wanted{};
        if (with_devx) wanted.flags = MLX5_IB_ALLOC_UCTX_DEVX;
        mlx5_ib_alloc_ucontext_resp answer{};
        ioctl_builder command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
        command.in(UVERBS_ATTR_UHW_IN, wanted).out(UVERBS_ATTR_UHW_OUT, answer);
        EXPECT_EQ(call(command), 0);
    }
    int register_umem(void* at, std::uint64_t length, std::uint32_t access, std::uint32_t& number) {
        const auto address = reinterpret_cast<std::uint64_t>(at);
        ioctl_builder command(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
        command.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, address)
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, length)
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, access)
            .out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, number);
        return call(command);
    }
    /// `offset` is into the buffer.
    int register_dmabuf(int buffer, std::uint64_t offset, std::uint64_t length, std::uint32_t& number) {
        ioctl_builder command(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
        command.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, offset)
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, length)
            .in(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, std::uint32_t{1})
            .out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, number)
            .handle(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD, static_cast<std::uint64_t>(buffer));
        return call(command);
    }
    int deregister_umem(std::uint32_t number) {
        ioctl_builder command(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG);
        command.handle(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, number);
        return call(command);
    }
    void make_uar() {
        std::uint64_t offset = 0;
        std::uint32_t length = 0;
        ioctl_builder command(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
        command.handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
            .in(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, std::uint32_t{0})
            .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset)
            .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, length)
            .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, uar);
        EXPECT_EQ(call(command), 0);
    }

    static std::uint16_t size_of(const std::vector<std::byte>& bytes) {
        return static_cast<std::uint16_t>(bytes.size());
    }
    static std::uint64_t address_of(const std::vector<std::byte>& bytes) {
        return reinterpret_cast<std::uint64_t>(bytes.data());
    }
    int general(devx_exchange& what) {
        ioctl_builder command(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER);
        command.raw(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, size_of(what.in), address_of(what.in))
            .raw(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, size_of(what.out), address_of(what.out));
        return call(command);
    }
    int create(devx_exchange& what) {
        ioctl_builder command(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
        command.handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)
            .raw(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, size_of(what.in), address_of(what.in))
            .raw(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, size_of(what.out), address_of(what.out));
        const int result = call(command);
        what.handle = static_cast<std::uint32_t>(command.result(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE));
        return result;
    }
    int on_object(devx_exchange& what, std::uint16_t method, std::uint32_t handle) {
        ioctl_builder command(MLX5_IB_OBJECT_DEVX_OBJ, method);
        // Modify and query number their attributes alike.
        command.handle(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, handle)
            .raw(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, size_of(what.in), address_of(what.in))
            .raw(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, size_of(what.out), address_of(what.out));
        return call(command);
    }
    int modify(devx_exchange& what, std::uint32_t handle) {
        return on_object(what, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, handle);
    }
    int query(devx_exchange& what, std::uint32_t handle) {
        return on_object(what, MLX5_IB_METHOD_DEVX_OBJ_QUERY, handle);
    }
    int destroy(std::uint32_t handle) {
        ioctl_builder command(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY);
        command.handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, handle);
        return call(command);
    }

    // Commands that succeed as they are; tests change one field.
    [[nodiscard]] devx_exchange cq_command() const {
        devx_exchange what(devx::opcode::create_cq);
        const auto put = [&](devx::field of, std::uint64_t value) { what.set(of.at(devx::create_cq::context), value); };
        put(devx::cqc::log_cq_size, 4);
        put(devx::cqc::uar_page, uar);
        put(devx::cqc::c_eqn, 8);
        put(devx::cqc::dbr_umem_id, umem);
        put(devx::cqc::dbr_addr, cq_record);
        what.set(devx::create_cq::umem_id, umem).set(devx::create_cq::umem_offset, cq_place);
        return what;
    }
    [[nodiscard]] devx_exchange qp_command(std::uint32_t cq) const {
        devx_exchange what(devx::opcode::create_qp);
        const auto put = [&](devx::field of, std::uint64_t value) { what.set(of.at(devx::create_qp::context), value); };
        put(devx::qpc::pd, pd);
        put(devx::qpc::uar_page, uar);
        put(devx::qpc::cqn_snd, cq);
        put(devx::qpc::cqn_rcv, cq);
        put(devx::qpc::log_sq_size, 4);
        put(devx::qpc::log_rq_size, 2);
        put(devx::qpc::log_rq_stride, 2);
        put(devx::qpc::dbr_umem_id, umem);
        put(devx::qpc::dbr_addr, qp_record);
        what.set(devx::create_qp::wq_umem_id, umem).set(devx::create_qp::wq_umem_offset, qp_place);
        return what;
    }
    [[nodiscard]] devx_exchange initiator_command(std::uint32_t cq) const {
        auto what = qp_command(cq);
        return what.set(devx::qpc::st.at(devx::create_qp::context), 5);
    }
    static devx::field in_receives(devx::field of) { return of.at(devx::rmpc::queue).at(devx::create_rmp::context); }
    [[nodiscard]] devx_exchange receives_command() const {
        devx_exchange what(devx::opcode::create_rmp);
        what.set(devx::rmpc::state.at(devx::create_rmp::context), 1);
        what.set(in_receives(devx::wq::wq_type), 1).set(in_receives(devx::wq::pd), pd);
        what.set(in_receives(devx::wq::log_wq_stride), 5).set(in_receives(devx::wq::log_wq_sz), 4);
        what.set(in_receives(devx::wq::dbr_umem_id), umem).set(in_receives(devx::wq::dbr_addr), receives_record);
        what.set(in_receives(devx::wq::wq_umem_id), umem);
        return what.set(in_receives(devx::wq::wq_umem_offset), receives_place);
    }
    static devx::field in_target(devx::field of) { return of.at(devx::create_dct::context); }
    [[nodiscard]] devx_exchange target_command(std::uint32_t cq, std::uint32_t receives) const {
        devx_exchange what(devx::opcode::create_dct);
        what.set(in_target(devx::dctc::pd), pd).set(in_target(devx::dctc::cqn), cq);
        what.set(in_target(devx::dctc::srqn_xrqn), receives).set(in_target(devx::dctc::dc_access_key), access_key);
        what.set(in_target(devx::dctc::rre), 1).set(in_target(devx::dctc::min_rnr_nak), 12);
        return what.set(in_target(devx::dctc::mtu), 3).set(in_target(devx::dctc::port), 1);
    }
    static devx::field in_key(devx::field of) { return of.at(devx::create_mkey::context); }
    static devx::field in_entry(devx::field of, std::uint32_t index) {
        return of.at(devx::create_mkey::entries + index * devx::klm::bytes * 8);
    }
    /// 16 KiB from the second page of the umem on.
    [[nodiscard]] devx_exchange key_command() const {
        devx_exchange what(devx::opcode::create_mkey);
        what.set(in_key(devx::mkc::access_mode_1_0), 1).set(in_key(devx::mkc::pd), pd);
        for (const devx::field right : {devx::mkc::lw, devx::mkc::rw, devx::mkc::rr}) what.set(in_key(right), 1);
        what.set(in_key(devx::mkc::start_addr), key_begin).set(in_key(devx::mkc::len), 16384);
        return what.set(devx::create_mkey::umem_id, umem).set(devx::create_mkey::umem_offset, 4096);
    }
    /// A key of four pieces of a key, at addresses that are 0x508 higher, for reading only.
    [[nodiscard]] devx_exchange alias_command(std::uint32_t key) const {
        devx_exchange what(devx::opcode::create_mkey, devx::create_mkey::in_bytes + 4 * devx::klm::bytes);
        what.set(in_key(devx::mkc::access_mode_1_0), 3).set(in_key(devx::mkc::rr), 1).set(in_key(devx::mkc::pd), pd);
        what.set(in_key(devx::mkc::start_addr), key_begin + 0x508).set(in_key(devx::mkc::len), 16384);
        what.set(in_key(devx::mkc::translations_octword_size), 4).set(in_key(devx::mkc::log_entity_size), 12);
        for (std::uint32_t at = 0; at < 4; ++at)
            what.set(in_entry(devx::klm::mkey, at), key).set(in_entry(devx::klm::address, at), key_begin + at * 4096);
        return what;
    }
    static devx_exchange step(devx::opcode code, std::uint32_t number) {
        devx_exchange what(code);
        what.set(devx::header::object, number);
        return what;
    }
    static devx::field in_step(devx::field of) { return of.at(devx::modify_qp::context); }
    static devx::field in_path(devx::field of) { return in_step(of.at(devx::qpc::primary_address_path)); }

    static devx_exchange to_init(std::uint32_t number) {
        auto what = step(devx::opcode::rst2init_qp, number);
        return what.set(in_path(devx::ads::vhca_port_num), 1).set(in_step(devx::qpc::rwe), 1);
    }
    static devx_exchange to_receive(std::uint32_t number, std::uint32_t remote) {
        auto what = step(devx::opcode::init2rtr_qp, number);
        what.set(in_step(devx::qpc::mtu), 3).set(in_step(devx::qpc::remote_qpn), remote);
        what.set(in_step(devx::qpc::log_rra_max), 2).set(in_step(devx::qpc::next_rcv_psn), 77);
        return what.set(in_path(devx::ads::rlid), 1);
    }
    static devx_exchange to_send(std::uint32_t number) {
        auto what = step(devx::opcode::rtr2rts_qp, number);
        what.set(in_step(devx::qpc::next_send_psn), 99).set(in_step(devx::qpc::retry_count), 7);
        return what.set(in_path(devx::ads::ack_timeout), 10);
    }

    /// A refusal by the firmware, with this status and reason.
    static void expect_refused(int result, const devx_exchange& what, devx::status status, devx::reason why) {
        EXPECT_EQ(result, EREMOTEIO);
        EXPECT_EQ(what.status(), status) << devx::to_string(what.status());
        EXPECT_EQ(what.reason(), why) << devx::to_string(what.reason());
    }
};

}  // namespace accel::softnic::testing
