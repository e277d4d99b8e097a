// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "devx_rig.hpp"

/// Targets and their receive queues made by mlx5dv_devx_* alone.
namespace accel::softnic::testing {

enum class receive_order : std::uint8_t { linked, cyclic };

/// A shared receive queue in a umem: elements of a link segment and one of data.
class devx_receive_queue {
  public:
    static constexpr std::uint32_t log_entries = 4;
    static constexpr std::uint32_t entries = 1u << log_entries;

    devx_receive_queue(ibv_context* on, std::uint32_t domain, receive_order order)
        : order_(order), memory_(on, record_offset + 4096) {
        link();
        devx_message command(prm::opcode::create_rmp);
        const auto put = [&](prm::field of, std::uint64_t value) {
            command.set(of.at(prm::rmpc::queue).at(prm::create_rmp::context), value);
        };
        command.set(prm::rmpc::state.at(prm::create_rmp::context), 1);
        put(prm::wq::wq_type, order == receive_order::cyclic ? 1 : 0);
        put(prm::wq::pd, domain);
        put(prm::wq::log_wq_stride, log_stride);
        put(prm::wq::log_wq_sz, log_entries);
        put(prm::wq::dbr_umem_id, memory_.id());
        put(prm::wq::dbr_addr, record_offset);
        put(prm::wq::wq_umem_id, memory_.id());
        object_ = required(command.create(on), "receive queue");
        number_ = command.object();
    }
    ~devx_receive_queue() { mlx5dv_devx_obj_destroy(object_); }
    devx_receive_queue(const devx_receive_queue&) = delete;
    devx_receive_queue& operator=(const devx_receive_queue&) = delete;

    [[nodiscard]] std::uint32_t number() const { return number_; }
    [[nodiscard]] mlx5dv_devx_obj* get() const { return object_; }
    void post(std::uint64_t address, std::uint32_t length, std::uint32_t lkey) {
        const mlx5_wqe_data_seg piece{htobe32(length), htobe32(lkey), htobe64(address)};
        std::memcpy(element(posted_) + sizeof(mlx5_wqe_srq_next_seg), &piece, sizeof piece);
        __atomic_store_n(reinterpret_cast<std::uint32_t*>(memory_.at(record_offset)), htobe32(++posted_),
                         __ATOMIC_RELEASE);
    }
    /// What completions call the receive that was posted as number `count`, from 0 on.
    [[nodiscard]] std::uint16_t index_of(std::uint32_t count) const {
        return static_cast<std::uint16_t>(order_ == receive_order::cyclic ? count : count % entries);
    }

  private:
    static constexpr std::uint32_t log_stride = 5;
    static constexpr std::size_t record_offset = 4096;

    [[nodiscard]] std::byte* element(std::uint32_t index) const {
        return memory_.at(std::size_t{index % entries} << log_stride);
    }
    /// A cyclic queue does not look at the links: they lead nowhere.
    void link() const {
        for (std::uint32_t at = 0; at < entries; ++at) {
            mlx5_wqe_srq_next_seg next{};
            if (order_ == receive_order::linked)
                next.next_wqe_index = htobe16(static_cast<std::uint16_t>((at + 1) % entries));
            std::memcpy(element(at), &next, sizeof next);
        }
    }

    receive_order order_;
    umem_block memory_;
    mlx5dv_devx_obj* object_ = nullptr;
    std::uint32_t number_ = 0;
    std::uint32_t posted_ = 0;
};

/// A target on port 1, which may be written to, read from and added to.
class devx_target {
  public:
    devx_target(ibv_context* on, std::uint32_t domain, const devx_cq& cq, const devx_receive_queue& receives,
                std::uint64_t access_key)
        : access_key_(access_key) {
        devx_message command(prm::opcode::create_dct);
        const auto put = [&](prm::field of, std::uint64_t value) {
            command.set(of.at(prm::create_dct::context), value);
        };
        for (const prm::field right : {prm::dctc::rre, prm::dctc::rwe, prm::dctc::rae}) put(right, 1);
        put(prm::dctc::pd, domain);
        put(prm::dctc::cqn, cq.number());
        put(prm::dctc::srqn_xrqn, receives.number());
        put(prm::dctc::dc_access_key, access_key);
        put(prm::dctc::mtu, IBV_MTU_1024);
        put(prm::dctc::port, 1);
        put(prm::dctc::min_rnr_nak, 1);
        put(prm::dctc::user_index, 0x654);
        object_ = required(command.create(on), "target");
        number_ = command.object();
    }
    ~devx_target() { mlx5dv_devx_obj_destroy(object_); }
    devx_target(const devx_target&) = delete;
    devx_target& operator=(const devx_target&) = delete;

    [[nodiscard]] mlx5dv_devx_obj* get() const { return object_; }
    [[nodiscard]] devx_destination address() const { return {number_, access_key_, 1}; }
    [[nodiscard]] devx_message command(prm::opcode code) const {
        devx_message made(code);
        made.set(prm::header::object, number_);
        return made;
    }
    [[nodiscard]] std::uint32_t violations() const {
        devx_message ask = command(prm::opcode::query_dct);
        if (ask.query(object_) != 0) throw std::runtime_error("QUERY_DCT refused");
        return ask.get(prm::dctc::dc_access_key_violation_count.at(prm::query_dct::context));
    }

  private:
    std::uint64_t access_key_;
    mlx5dv_devx_obj* object_ = nullptr;
    std::uint32_t number_ = 0;
};

/// An initiator that sends from `cq`, and two targets with keys of their own behind `receives`.
struct devx_dynamic : devx_ground {
    static constexpr std::uint64_t first_key = 0x1122334455667788;
    static constexpr std::uint64_t second_key = 0xfedcba9876543210;

    devx_cq cq{context.get(), uar->page_id};
    devx_cq target_cq{context.get(), uar->page_id};
    devx_receive_queue receives;
    std::unique_ptr<devx_target> first;
    devx_target second{context.get(), domain, target_cq, receives, second_key};
    devx_qp initiator{context.get(), domain, *uar, cq, cq, devx_service::initiator};

    explicit devx_dynamic(receive_order order = receive_order::cyclic)
        : receives(context.get(), domain, order),
          first(std::make_unique<devx_target>(context.get(), domain, target_cq, receives, first_key)) {
        initiator.start();
    }
    [[nodiscard]] devx_work write_to(const devx_destination& whom, std::size_t offset, std::uint32_t length) const {
        devx_work what = write(offset, length);
        what.target = whom;
        return what;
    }
    /// Posts, rings, and waits for the completion.
    mlx5_cqe64 run(const devx_work& what) {
        initiator.post(what);
        initiator.ring();
        return next_completion(cq);
    }
};

inline bool succeeded(const mlx5_cqe64& cqe) {
    return cqe.op_own >> 4 == MLX5_CQE_REQ;
}
inline std::uint8_t syndrome_of(const mlx5_cqe64& cqe) {
    mlx5_err_cqe error{};
    std::memcpy(&error, &cqe, sizeof error);
    return error.syndrome;
}

}  // namespace accel::softnic::testing
