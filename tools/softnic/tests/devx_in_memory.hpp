// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "devx_rig.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>

#include <gtest/gtest.h>

/// DevX queues in memory that the host reaches only by copies.
namespace accel::softnic::testing {

struct close_object {
    void operator()(mlx5dv_devx_obj* object) const { mlx5dv_devx_obj_destroy(object); }
};
struct free_umem {
    void operator()(mlx5dv_devx_umem* umem) const { EXPECT_EQ(mlx5dv_devx_umem_dereg(umem), 0); }
};

/// A queue pair that is connected to itself, and a completion queue whose overruns are ignored, in a umem over
/// `queues`. `Memory` has address(), put(offset, from, size) and get(offset, to, size), and outlives this.
template <class Memory>
class devx_in_memory {
  public:
    static constexpr std::size_t bytes = 1 << 16;

    devx_in_memory(Memory& queues, Memory& data) : queues_(queues), data_(data) {
        make_cq();
        make_qp();
        connect();
    }

    /// Writes from the beginning of `data` to its second half, and compares.
    void write_many(std::uint16_t count) {
        for (std::uint16_t index = 0; index < count; ++index) {
            std::iota(pattern_.begin(), pattern_.end(), static_cast<std::uint8_t>(index));
            data_.put(0, pattern_.data(), pattern_.size());
            post_write(index);
            ASSERT_TRUE(wait_until([&] { return completed(index); })) << index;
            data_.get(bytes / 2, arrived_.data(), arrived_.size());
            ASSERT_EQ(arrived_, pattern_) << index;
        }
    }

  private:
    static constexpr std::size_t cq_place = 0;
    static constexpr std::size_t qp_place = 8192;
    static constexpr std::size_t cq_record = 16 * 1024;
    static constexpr std::size_t qp_record = 20 * 1024;
    static constexpr std::uint32_t log_entries = 4;
    static constexpr std::uint32_t receive_bytes = 16u << log_entries;

    struct write_request {
        mlx5_wqe_ctrl_seg control;
        mlx5_wqe_raddr_seg remote;
        mlx5_wqe_data_seg piece;
    };

    void make_cq() {
        const std::vector<std::uint8_t> blank(64u << log_entries, 0xf0);
        const std::vector<std::uint8_t> zeroes(bytes - qp_place);
        queues_.put(cq_place, blank.data(), blank.size());
        queues_.put(qp_place, zeroes.data(), zeroes.size());
        std::uint32_t event_queue = 0;
        EXPECT_EQ(mlx5dv_devx_query_eqn(context_.get(), 0, &event_queue), 0);
        devx_message command(prm::opcode::create_cq);
        const auto put = [&](prm::field of, std::uint64_t value) {
            command.set(of.at(prm::create_cq::context), value);
        };
        put(prm::cqc::log_cq_size, log_entries);
        put(prm::cqc::oi, 1);
        put(prm::cqc::uar_page, uar_->page_id);
        put(prm::cqc::c_eqn, event_queue);
        put(prm::cqc::dbr_umem_id, umem_->umem_id);
        put(prm::cqc::dbr_addr, cq_record);
        command.set(prm::create_cq::umem_id, umem_->umem_id).set(prm::create_cq::umem_offset, cq_place);
        cq_.reset(required(command.create(context_.get()), "completion queue"));
        cqn_ = command.object();
    }
    void make_qp() {
        devx_message command(prm::opcode::create_qp);
        const auto put = [&](prm::field of, std::uint64_t value) {
            command.set(of.at(prm::create_qp::context), value);
        };
        put(prm::qpc::pd, number_of(pd_.get()));
        put(prm::qpc::uar_page, uar_->page_id);
        put(prm::qpc::cqn_snd, cqn_);
        put(prm::qpc::cqn_rcv, cqn_);
        put(prm::qpc::log_sq_size, log_entries);
        put(prm::qpc::log_rq_size, log_entries);
        put(prm::qpc::dbr_umem_id, umem_->umem_id);
        put(prm::qpc::dbr_addr, qp_record);
        command.set(prm::create_qp::wq_umem_id, umem_->umem_id).set(prm::create_qp::wq_umem_offset, qp_place);
        qp_.reset(required(command.create(context_.get()), "queue pair"));
        qpn_ = command.object();
    }
    static prm::field in(prm::field of) { return of.at(prm::modify_qp::context); }
    static prm::field path(prm::field of) { return in(of.at(prm::qpc::primary_address_path)); }
    [[nodiscard]] devx_message step(prm::opcode code) const {
        devx_message command(code);
        command.set(prm::header::object, qpn_);
        return command;
    }
    void connect() const {
        auto init = step(prm::opcode::rst2init_qp);
        init.set(in(prm::qpc::rwe), 1).set(path(prm::ads::vhca_port_num), 1);
        EXPECT_EQ(init.modify(qp_.get()), 0);
        auto receive = step(prm::opcode::init2rtr_qp);
        receive.set(in(prm::qpc::mtu), IBV_MTU_1024).set(in(prm::qpc::remote_qpn), qpn_).set(path(prm::ads::rlid), 1);
        EXPECT_EQ(receive.modify(qp_.get()), 0);
        auto send = step(prm::opcode::rtr2rts_qp);
        send.set(in(prm::qpc::retry_count), 7).set(path(prm::ads::ack_timeout), 14);
        EXPECT_EQ(send.modify(qp_.get()), 0);
    }
    [[nodiscard]] write_request make_write(std::uint16_t index) const {
        write_request made{};
        made.control.opmod_idx_opcode = htobe32(std::uint32_t{index} << 8 | MLX5_OPCODE_RDMA_WRITE);
        made.control.qpn_ds = htobe32(qpn_ << 8 | sizeof made / 16);
        made.control.fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
        made.remote = {htobe64(data_.address() + bytes / 2), htobe32(mr_->rkey), 0};
        made.piece = {htobe32(static_cast<std::uint32_t>(pattern_.size())), htobe32(mr_->lkey),
                      htobe64(data_.address())};
        return made;
    }
    void post_write(std::uint16_t index) {
        const write_request request = make_write(index);
        const std::uint32_t produced = htobe32(index + 1u);
        queues_.put(qp_place + receive_bytes + std::size_t{index} % (1u << log_entries) * 64, &request, sizeof request);
        queues_.put(qp_record + MLX5_SND_DBR * sizeof produced, &produced, sizeof produced);
        std::uint64_t doorbell = 0;
        std::memcpy(&doorbell, &request.control, sizeof doorbell);
        __atomic_store_n(static_cast<std::uint64_t*>(uar_->reg_addr), doorbell, __ATOMIC_RELEASE);
    }
    [[nodiscard]] bool completed(std::uint16_t index) const {
        mlx5_cqe64 done{};
        queues_.get(cq_place + std::size_t{index} % (1u << log_entries) * 64, &done, sizeof done);
        return done.op_own == (index >> log_entries & 1) && be16toh(done.wqe_counter) == index;
    }

    Memory& queues_;
    Memory& data_;
    std::array<std::uint8_t, 4000> pattern_{};
    std::array<std::uint8_t, 4000> arrived_{};
    context_owner context_ = open_devx();
    pd_owner pd_{ibv_alloc_pd(context_.get())};
    uar_owner uar_{required(mlx5dv_devx_alloc_uar(context_.get(), MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF), "doorbell page")};
    std::unique_ptr<mlx5dv_devx_umem, free_umem> umem_{required(
        mlx5dv_devx_umem_reg(context_.get(), reinterpret_cast<void*>(queues_.address()), bytes, IBV_ACCESS_LOCAL_WRITE),
        "umem of a GPU")};
    mr_owner mr_{required(ibv_reg_mr(pd_.get(), reinterpret_cast<void*>(data_.address()), bytes,
                                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
                          "region of a GPU")};
    std::unique_ptr<mlx5dv_devx_obj, close_object> cq_;
    std::unique_ptr<mlx5dv_devx_obj, close_object> qp_;
    std::uint32_t cqn_ = 0;
    std::uint32_t qpn_ = 0;
};

}  // namespace accel::softnic::testing
