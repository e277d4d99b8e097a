// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "devx/layout.hpp"
#include "devx/mailbox.hpp"
#include "devx/status.hpp"
#include "softnic/softnic.h"
#include "verbs_pair.hpp"

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <endian.h>
#include <infiniband/mlx5dv.h>

/// Queue pairs and completion queues made by mlx5dv_devx_* alone, with queues and records in umems, driven by
/// hand: what a program that bypasses libmlx5's data path does.
namespace accel::softnic::testing {

namespace prm = accel::softnic::devx;

/// Calls `done` until it is true, and drives the device where it has no thread of its own. False after 30 s.
template <class Done>
bool wait_until(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!done()) {
        if (softnic_progress != nullptr) softnic_progress();
        if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
}

inline context_owner open_devx() {
    int count = 0;
    ibv_device** list = required(ibv_get_device_list(&count), "device list");
    mlx5dv_context_attr how{};
    how.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    context_owner context(required(mlx5dv_open_device(list[0], &how), "device with DevX"));
    ibv_free_device_list(list);
    return context;
}

struct free_uar {
    void operator()(mlx5dv_devx_uar* page) const { mlx5dv_devx_free_uar(page); }
};
using uar_owner = std::unique_ptr<mlx5dv_devx_uar, free_uar>;

inline std::uint32_t number_of(ibv_pd* pd) {
    mlx5dv_pd answer{};
    mlx5dv_obj what{};
    what.pd.in = pd;
    what.pd.out = &answer;
    if (mlx5dv_init_obj(&what, MLX5DV_OBJ_PD) != 0) throw std::runtime_error("no number of the domain");
    return answer.pdn;
}

/// Memory of whole pages, registered as a umem.
class umem_block {
  public:
    umem_block(ibv_context* on, std::size_t size_bytes, std::uint8_t fill = 0) : size_(size_bytes) {
        bytes_ = static_cast<std::byte*>(::aligned_alloc(4096, size_bytes));
        std::memset(bytes_, fill, size_bytes);
        umem_ = required(mlx5dv_devx_umem_reg(on, bytes_, size_bytes, IBV_ACCESS_LOCAL_WRITE), "umem");
    }
    ~umem_block() {
        mlx5dv_devx_umem_dereg(umem_);
        ::free(bytes_);
    }
    umem_block(const umem_block&) = delete;
    umem_block& operator=(const umem_block&) = delete;

    [[nodiscard]] std::byte* at(std::size_t offset = 0) const { return bytes_ + offset; }
    [[nodiscard]] std::uint32_t id() const { return umem_->umem_id; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] mlx5dv_devx_umem* get() const { return umem_; }

  private:
    std::size_t size_;
    std::byte* bytes_;
    mlx5dv_devx_umem* umem_;
};

/// A command and its answer.
class devx_message {
  public:
    explicit devx_message(prm::opcode code, std::size_t in_bytes = 0x110, std::size_t out_bytes = 0x110)
        : in_(in_bytes), out_(out_bytes) {
        set(prm::header::opcode, static_cast<std::uint64_t>(code));
    }
    devx_message& set(prm::field where, std::uint64_t value) {
        prm::mailbox_out(in_).set(where, value);
        return *this;
    }
    devx_message& set_bytes(prm::field where, std::span<const std::byte> bytes) {
        prm::mailbox_out(in_).set_bytes(where, bytes);
        return *this;
    }
    [[nodiscard]] std::uint32_t get(prm::field where) const { return prm::mailbox_in(out_).get32(where); }
    [[nodiscard]] std::uint32_t object() const { return get(prm::header::object); }
    [[nodiscard]] prm::status status() const { return static_cast<prm::status>(get(prm::header::status)); }

    [[nodiscard]] mlx5dv_devx_obj* create(ibv_context* on) {
        return mlx5dv_devx_obj_create(on, in_.data(), in_.size(), out_.data(), out_.size());
    }
    [[nodiscard]] int modify(mlx5dv_devx_obj* of) {
        return mlx5dv_devx_obj_modify(of, in_.data(), in_.size(), out_.data(), out_.size());
    }
    [[nodiscard]] int query(mlx5dv_devx_obj* of) {
        return mlx5dv_devx_obj_query(of, in_.data(), in_.size(), out_.data(), out_.size());
    }
    [[nodiscard]] int general(ibv_context* on) {
        return mlx5dv_devx_general_cmd(on, in_.data(), in_.size(), out_.data(), out_.size());
    }

  private:
    std::vector<std::byte> in_;
    std::vector<std::byte> out_;
};

struct devx_cq_options {
    std::uint32_t log_size = 6;
    bool collapsed = false;
    bool ignore_overrun = false;
};

class devx_cq {
  public:
    devx_cq(ibv_context* on, std::uint32_t uar_page, const devx_cq_options& how = {})
        : entries_(1u << how.log_size), memory_(on, record_offset(how) + 4096, 0xf0) {
        std::uint32_t event_queue = 0;
        if (mlx5dv_devx_query_eqn(on, 0, &event_queue) != 0) throw std::runtime_error("no event queue");
        std::memset(memory_.at(record_offset(how)), 0, 64);
        record_ = reinterpret_cast<std::uint32_t*>(memory_.at(record_offset(how)));
        devx_message command(prm::opcode::create_cq);
        const auto put = [&](prm::field of, std::uint64_t value) {
            command.set(of.at(prm::create_cq::context), value);
        };
        put(prm::cqc::log_cq_size, how.log_size);
        put(prm::cqc::cc, how.collapsed ? 1 : 0);
        put(prm::cqc::oi, how.ignore_overrun ? 1 : 0);
        put(prm::cqc::uar_page, uar_page);
        put(prm::cqc::c_eqn, event_queue);
        put(prm::cqc::dbr_umem_id, memory_.id());
        put(prm::cqc::dbr_addr, record_offset(how));
        command.set(prm::create_cq::umem_id, memory_.id());
        object_ = required(command.create(on), "completion queue");
        number_ = command.object();
    }
    ~devx_cq() { mlx5dv_devx_obj_destroy(object_); }
    devx_cq(const devx_cq&) = delete;
    devx_cq& operator=(const devx_cq&) = delete;

    [[nodiscard]] std::uint32_t number() const { return number_; }
    [[nodiscard]] mlx5dv_devx_obj* get() const { return object_; }
    [[nodiscard]] const umem_block& memory() const { return memory_; }
    /// Entry `index`, as the device last wrote it.
    [[nodiscard]] mlx5_cqe64 look(std::uint32_t index) const {
        mlx5_cqe64 cqe{};
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        std::memcpy(&cqe, memory_.at(std::size_t{index % entries_} * sizeof cqe), sizeof cqe);
        return cqe;
    }
    [[nodiscard]] bool poll(mlx5_cqe64& out) {
        out = look(consumed_);
        const bool owner = (out.op_own & 1) != 0;
        if (out.op_own >> 4 == MLX5_CQE_INVALID || owner != ((consumed_ & entries_) != 0)) return false;
        __atomic_store_n(record_, htobe32(++consumed_ & 0xffffff), __ATOMIC_RELEASE);
        return true;
    }
    /// Asks for one event about the next completion.
    void arm(const mlx5dv_devx_uar& uar) {
        constexpr std::size_t register_offset = 0x20;
        const std::uint32_t command = (++armed_ & 3) << 28 | (consumed_ & 0xffffff);
        __atomic_store_n(record_ + 1, htobe32(command), __ATOMIC_RELEASE);
        auto* doorbell = static_cast<std::byte*>(uar.base_addr) + register_offset;
        const std::uint64_t value = htobe64(std::uint64_t{command} << 32 | number_);
        __atomic_store_n(reinterpret_cast<std::uint64_t*>(doorbell), value, __ATOMIC_RELEASE);
    }

  private:
    static std::size_t record_offset(const devx_cq_options& how) {
        return ((std::size_t{64} << how.log_size) + 4095) & ~std::size_t{4095};
    }

    std::uint32_t entries_;
    umem_block memory_;
    std::uint32_t* record_ = nullptr;
    mlx5dv_devx_obj* object_ = nullptr;
    std::uint32_t number_ = 0;
    std::uint32_t consumed_ = 0;
    std::uint32_t armed_ = 0;
};

/// One work request: opcode, remote address, local piece.
struct devx_work {
    std::uint8_t opcode = MLX5_OPCODE_NOP;
    std::uint64_t remote = 0;
    std::uint32_t rkey = 0;
    std::uint64_t local = 0;
    std::uint32_t lkey = 0;
    std::uint32_t length = 0;
    std::uint32_t immediate = 0;
    bool signalled = true;
};

class devx_qp {
  public:
    static constexpr std::uint32_t log_send_wqebbs = 6;
    static constexpr std::uint32_t log_receives = 4;
    static constexpr std::uint32_t receive_bytes = 16u << log_receives;

    devx_qp(ibv_context* on, std::uint32_t domain, const mlx5dv_devx_uar& uar, const devx_cq& send,
            const devx_cq& receive)
        : memory_(on, record_offset + 4096), uar_(uar) {
        devx_message command(prm::opcode::create_qp);
        const auto put = [&](prm::field of, std::uint64_t value) {
            command.set(of.at(prm::create_qp::context), value);
        };
        put(prm::qpc::pd, domain);
        put(prm::qpc::uar_page, uar.page_id);
        put(prm::qpc::user_index, 0x321);
        put(prm::qpc::cqn_snd, send.number());
        put(prm::qpc::cqn_rcv, receive.number());
        put(prm::qpc::log_sq_size, log_send_wqebbs);
        put(prm::qpc::log_rq_size, log_receives);
        put(prm::qpc::dbr_umem_id, memory_.id());
        put(prm::qpc::dbr_addr, record_offset);
        command.set(prm::create_qp::wq_umem_id, memory_.id());
        object_ = required(command.create(on), "queue pair");
        number_ = command.object();
    }
    ~devx_qp() { mlx5dv_devx_obj_destroy(object_); }
    devx_qp(const devx_qp&) = delete;
    devx_qp& operator=(const devx_qp&) = delete;

    [[nodiscard]] std::uint32_t number() const { return number_; }
    [[nodiscard]] mlx5dv_devx_obj* get() const { return object_; }
    [[nodiscard]] const umem_block& memory() const { return memory_; }

    [[nodiscard]] devx_message step(prm::opcode code) const {
        devx_message command(code);
        command.set(prm::header::object, number_);
        return command;
    }
    [[nodiscard]] std::uint32_t state() const {
        devx_message command = step(prm::opcode::query_qp);
        if (command.query(object_) != 0) throw std::runtime_error("QUERY_QP refused");
        return command.get(prm::qpc::state.at(prm::query_qp::context));
    }

    /// Takes the queue pair to RTS towards `remote`, which an InfiniBand port with `lid` has.
    void connect(std::uint32_t remote, std::uint16_t lid) const {
        run(init_step());
        run(receive_step(remote, lid));
        run(send_step());
    }

    std::uint16_t post(const devx_work& what) {
        std::array<std::byte, 64> block{};
        const std::size_t size = fill(what, block);
        mlx5_wqe_ctrl_seg control{};
        control.opmod_idx_opcode = htobe32(std::uint32_t{produced_} << 8 | what.opcode);
        control.qpn_ds = htobe32(number_ << 8 | static_cast<std::uint32_t>(size / 16));
        control.fm_ce_se = what.signalled ? MLX5_WQE_CTRL_CQ_UPDATE : 0;
        control.imm = htobe32(what.immediate);
        std::memcpy(block.data(), &control, sizeof control);
        std::memcpy(slot(produced_), block.data(), block.size());
        std::memcpy(&last_control_, &control, sizeof last_control_);
        return produced_++;
    }
    /// Record first, then the register.
    void ring() {
        __atomic_store_n(record() + MLX5_SND_DBR, htobe32(produced_), __ATOMIC_RELEASE);
        __atomic_store_n(static_cast<std::uint64_t*>(uar_.reg_addr), last_control_, __ATOMIC_RELEASE);
    }
    void post_receive(std::uint64_t address, std::uint32_t length, std::uint32_t lkey) {
        const mlx5_wqe_data_seg piece{htobe32(length), htobe32(lkey), htobe64(address)};
        const std::uint32_t place = receives_ % (1u << log_receives);
        std::memcpy(memory_.at(std::size_t{place} * sizeof piece), &piece, sizeof piece);
        __atomic_store_n(record() + MLX5_RCV_DBR, htobe32(++receives_), __ATOMIC_RELEASE);
    }

  private:
    static constexpr std::size_t record_offset = 8192;

    [[nodiscard]] std::uint32_t* record() const { return reinterpret_cast<std::uint32_t*>(memory_.at(record_offset)); }
    [[nodiscard]] std::byte* slot(std::uint16_t index) const {
        return memory_.at(receive_bytes + std::size_t{index % (1u << log_send_wqebbs)} * 64);
    }
    std::size_t fill(const devx_work& what, std::array<std::byte, 64>& block) const {
        std::size_t size = sizeof(mlx5_wqe_ctrl_seg);
        const auto append = [&](const auto& segment) {
            std::memcpy(block.data() + size, &segment, sizeof segment);
            size += sizeof segment;
        };
        if (what.opcode == MLX5_OPCODE_NOP) return size;
        const bool sends = what.opcode == MLX5_OPCODE_SEND || what.opcode == MLX5_OPCODE_SEND_IMM;
        if (!sends) append(mlx5_wqe_raddr_seg{htobe64(what.remote), htobe32(what.rkey), 0});
        append(mlx5_wqe_data_seg{htobe32(what.length), htobe32(what.lkey), htobe64(what.local)});
        return size;
    }
    void run(devx_message command) const {
        if (command.modify(object_) != 0) throw std::runtime_error("step of the queue pair refused");
    }
    [[nodiscard]] devx_message init_step() const {
        devx_message command = step(prm::opcode::rst2init_qp);
        for (const prm::field right : {prm::qpc::rre, prm::qpc::rwe, prm::qpc::rae})
            command.set(right.at(prm::modify_qp::context), 1);
        return command.set(path(prm::ads::vhca_port_num), 1);
    }
    [[nodiscard]] devx_message receive_step(std::uint32_t remote, std::uint16_t lid) const {
        devx_message command = step(prm::opcode::init2rtr_qp);
        command.set(prm::qpc::mtu.at(prm::modify_qp::context), IBV_MTU_1024);
        command.set(prm::qpc::remote_qpn.at(prm::modify_qp::context), remote);
        command.set(prm::qpc::log_rra_max.at(prm::modify_qp::context), 3);
        command.set(prm::qpc::min_rnr_nak.at(prm::modify_qp::context), 1);
        return command.set(path(prm::ads::rlid), lid);
    }
    [[nodiscard]] devx_message send_step() const {
        devx_message command = step(prm::opcode::rtr2rts_qp);
        command.set(prm::qpc::log_sra_max.at(prm::modify_qp::context), 3);
        command.set(prm::qpc::retry_count.at(prm::modify_qp::context), 7);
        command.set(prm::qpc::rnr_retry.at(prm::modify_qp::context), 7);
        return command.set(path(prm::ads::ack_timeout), 8);
    }
    static prm::field path(prm::field of) { return of.at(prm::qpc::primary_address_path).at(prm::modify_qp::context); }

    umem_block memory_;
    mlx5dv_devx_uar uar_;
    mlx5dv_devx_obj* object_ = nullptr;
    std::uint32_t number_ = 0;
    std::uint16_t produced_ = 0;
    std::uint32_t receives_ = 0;
    std::uint64_t last_control_ = 0;
};

/// What queues need: a device opened for DevX, a domain, memory with a key, a doorbell page.
struct devx_ground {
    static constexpr int all_access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

    context_owner context = open_devx();
    pd_owner pd{ibv_alloc_pd(context.get())};
    std::vector<std::uint8_t> from = std::vector<std::uint8_t>(1 << 16);
    std::vector<std::uint8_t> to = std::vector<std::uint8_t>(1 << 16);
    mr_owner from_mr{ibv_reg_mr(pd.get(), from.data(), from.size(), all_access)};
    mr_owner to_mr{ibv_reg_mr(pd.get(), to.data(), to.size(), all_access)};
    uar_owner uar{required(mlx5dv_devx_alloc_uar(context.get(), MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF), "doorbell page")};
    std::uint32_t domain = number_of(pd.get());

    devx_ground() { std::iota(from.begin(), from.end(), std::uint8_t{1}); }
    [[nodiscard]] devx_work write(std::size_t offset, std::uint32_t length) const {
        devx_work what;
        what.opcode = MLX5_OPCODE_RDMA_WRITE;
        what.local = reinterpret_cast<std::uint64_t>(from.data()) + offset;
        what.remote = reinterpret_cast<std::uint64_t>(to.data()) + offset;
        what.lkey = from_mr->lkey;
        what.rkey = to_mr->rkey;
        what.length = length;
        return what;
    }
    /// A completion at the sender does not say that the target's processor sees the data already.
    [[nodiscard]] bool has_copy(const void* at, std::size_t begin, std::size_t end) const {
        return wait_until([&] { return std::memcmp(at, from.data() + begin, end - begin) == 0; });
    }
    [[nodiscard]] bool has_data(std::size_t begin, std::size_t end) const {
        return has_copy(to.data() + begin, begin, end);
    }
};

inline mlx5_cqe64 next_completion(devx_cq& queue) {
    mlx5_cqe64 cqe{};
    if (!wait_until([&] { return queue.poll(cqe); })) throw std::runtime_error("no completion");
    return cqe;
}

}  // namespace accel::softnic::testing
