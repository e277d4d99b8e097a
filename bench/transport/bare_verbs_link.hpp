// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <arpa/inet.h>
#include <infiniband/verbs.h>

namespace accel::bench {

/// What one end of a bare verbs connection tells the other, over a socket or by hand, as it is.
struct verbs_address {
    std::uint32_t queue_pair = 0;
    std::uint32_t psn = 0;
    std::uint32_t lid = 0;
    std::uint32_t key = 0;      ///< remote key of the slots
    std::uint64_t address = 0;  ///< of the first slot
    ibv_gid gid{};
};

struct verbs_link_options {
    std::uint32_t slots = 1;
    std::size_t payload_bytes = 0;
    bool serves = false;  ///< its receives come from a shared queue, as those of a server of `rdma`
    bool blocks = false;  ///< has a completion channel to sleep on
};

/// What a program does that uses libibverbs itself, with the operations of `rdma` and nothing else: a message
/// is a header of 64 bytes and its payload behind it, in a slot; it goes to the same slot of the peer by one
/// WRITE with immediate data, the slot's number. Receives without memory are posted in batches, and
/// completions of sends asked for, as often as `rdma` does. One end of an RC connection, on the first active
/// port.
class verbs_link {
  public:
    [[nodiscard]] static result<std::unique_ptr<verbs_link>> open(const verbs_link_options& options);

    ~verbs_link();
    verbs_link(const verbs_link&) = delete;
    verbs_link& operator=(const verbs_link&) = delete;

    [[nodiscard]] verbs_address address() const noexcept;
    [[nodiscard]] result<void> connect(const verbs_address& peer);

    /// False: the connection broke.
    [[nodiscard]] bool send(std::uint32_t slot) noexcept;
    /// 1: a message has come, into `slot`; 0: none yet; below 0: the connection broke.
    [[nodiscard]] int poll(std::uint32_t& slot) noexcept;
    /// Sleeps until there may be something to poll. False: `other_fd` has become readable, which says that
    /// the peer is gone, or the time is over.
    [[nodiscard]] bool sleep(int other_fd, int milliseconds) noexcept;

  private:
    static constexpr std::uint32_t wanted_inline_bytes = 128;
    static constexpr std::uint32_t min_depth = 16;
    static constexpr std::uint32_t shared_receives = 256;
    static constexpr std::uint32_t shared_receives_at_once = 32;
    static constexpr std::uint64_t sent_id = 1;

    template <auto Destroy>
    struct destroyer {
        void operator()(auto* object) const noexcept { (void)Destroy(object); }
    };
    template <class Object, auto Destroy>
    using owner = std::unique_ptr<Object, destroyer<Destroy>>;

    explicit verbs_link(const verbs_link_options& options);
    [[nodiscard]] result<void> open_port();
    [[nodiscard]] bool take_port(ibv_context& context, std::uint8_t number);
    [[nodiscard]] result<void> create();
    [[nodiscard]] result<void> create_queues();
    [[nodiscard]] bool to_ready(const verbs_address& peer);
    [[nodiscard]] bool post_receives() noexcept;

    verbs_link_options options_;
    std::size_t message_bytes_;
    std::size_t stride_;
    std::uint32_t depth_;     ///< of the send queue
    std::uint32_t receives_;  ///< of the receive queue
    std::uint32_t receives_at_once_;
    std::vector<std::byte> memory_;  ///< slots to send from, then slots to receive into
    std::byte* out_ = nullptr;
    std::byte* in_ = nullptr;
    owner<ibv_context, &ibv_close_device> context_;
    owner<ibv_pd, &ibv_dealloc_pd> domain_;
    owner<ibv_mr, &ibv_dereg_mr> memory_keys_;
    owner<ibv_comp_channel, &ibv_destroy_comp_channel> channel_;
    owner<ibv_cq, &ibv_destroy_cq> completions_;
    owner<ibv_srq, &ibv_destroy_srq> shared_;
    owner<ibv_qp, &ibv_destroy_qp> queue_pair_;
    ibv_port_attr port_{};
    ibv_gid gid_{};
    std::uint8_t port_number_ = 0;
    std::uint8_t gid_index_ = 0;
    std::uint32_t inline_bytes_ = 0;
    std::uint32_t unsignalled_ = 0;
    std::uint32_t signal_every_ = 1;
    std::uint32_t missing_receives_ = 0;
    unsigned events_ = 0;  ///< taken from the channel, not acknowledged
    verbs_address peer_;
    std::array<ibv_recv_wr, shared_receives_at_once> chain_{};
};

// In the header, as `rdma` has its own in one file: what is compared is not the cost of a call.

inline bool verbs_link::send(std::uint32_t slot) noexcept {
    const std::size_t offset = slot * stride_;
    ibv_sge segment{reinterpret_cast<std::uintptr_t>(out_ + offset), static_cast<std::uint32_t>(message_bytes_),
                    memory_keys_->lkey};
    ibv_send_wr request;
    request.wr_id = sent_id;
    request.next = nullptr;
    request.sg_list = &segment;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(slot);
    request.send_flags = message_bytes_ <= inline_bytes_ ? IBV_SEND_INLINE : 0;
    if (++unsignalled_ == signal_every_) {
        request.send_flags |= IBV_SEND_SIGNALED;
        unsignalled_ = 0;
    }
    request.wr.rdma.remote_addr = peer_.address + offset;
    request.wr.rdma.rkey = peer_.key;
    ibv_send_wr* refused = nullptr;
    return ibv_post_send(queue_pair_.get(), &request, &refused) == 0;
}

inline int verbs_link::poll(std::uint32_t& slot) noexcept {
    ibv_wc completion;
    do {
        const int got = ibv_poll_cq(completions_.get(), 1, &completion);
        if (got <= 0) return got;
        if (completion.status != IBV_WC_SUCCESS) return -1;
    } while (completion.wr_id == sent_id);
    slot = ntohl(completion.imm_data);
    if (slot >= options_.slots) return -1;
    return ++missing_receives_ < receives_at_once_ || post_receives() ? 1 : -1;
}

}  // namespace accel::bench
