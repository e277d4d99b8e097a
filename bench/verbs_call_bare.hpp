#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <arpa/inet.h>
#include <infiniband/verbs.h>

/// What a program does that uses libibverbs itself: the subject that `rdma` is compared with. The same
/// operations as `rdma` uses, and nothing else: one write with immediate data a message, receives without
/// memory posted in batches, a completion of a send asked for now and then.
namespace accel::bench {

/// How one end finds the other. Plain bytes, to be handed over by whatever means.
struct bare_address {
    ibv_gid gid{};
    std::uint32_t queue_pair = 0;
    std::uint32_t key = 0;
    std::uint64_t buffer = 0;
    std::uint16_t lid = 0;
    std::uint8_t mtu = 0;
};

/// One end of a reliable connection: a buffer to send from, and one that the peer writes.
class bare_end {
  public:
    // As deep, and as often, as `rdma` has it for the default of 8 slots.
    static constexpr std::uint32_t send_depth = 16;
    static constexpr std::uint32_t signal_every = 8;
    static constexpr std::uint32_t shared_receives_at_once = 32;
    static constexpr std::uint32_t own_receives_at_once = 4;
    static constexpr std::uint32_t inline_bytes = 128;

    /// For messages of up to `bytes`. A server's receives come from a shared queue. Null, with the reason on
    /// stderr, where there is no device, or it does not do it.
    [[nodiscard]] static std::unique_ptr<bare_end> open(bool shared_receives, std::size_t bytes);
    ~bare_end();
    bare_end(const bare_end&) = delete;
    bare_end& operator=(const bare_end&) = delete;

    [[nodiscard]] bare_address address() const noexcept;
    [[nodiscard]] bool connect(const bare_address& peer) noexcept;
    [[nodiscard]] std::byte* outgoing() noexcept { return outgoing_.data(); }
    [[nodiscard]] const std::byte* incoming() const noexcept { return incoming_.data(); }

    /// Writes the first `length` bytes of `outgoing` into the peer's buffer, and tells it.
    [[nodiscard]] bool send(std::size_t length) noexcept {
        ibv_sge from{reinterpret_cast<std::uintptr_t>(outgoing_.data()), static_cast<std::uint32_t>(length),
                     outgoing_key_};
        ibv_send_wr request;
        request.wr_id = sent_id;
        request.next = nullptr;
        request.sg_list = &from;
        request.num_sge = 1;
        request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        request.send_flags = length <= inline_bytes ? IBV_SEND_INLINE : 0;
        if (++unsignalled_ == signal_every) {
            request.send_flags |= IBV_SEND_SIGNALED;
            unsignalled_ = 0;
        }
        request.imm_data = htonl(0);
        request.wr.rdma.remote_addr = peer_.buffer;
        request.wr.rdma.rkey = peer_.key;
        ibv_send_wr* failed = nullptr;
        return ibv_post_send(queue_pair_, &request, &failed) == 0;
    }
    /// 1: a message has come; 0: none yet; below 0: a failure.
    [[nodiscard]] int poll() noexcept {
        ibv_wc completion;
        const int got = ibv_poll_cq(completions_, 1, &completion);
        if (got <= 0) return got;
        if (completion.status != IBV_WC_SUCCESS) return -1;
        if (completion.wr_id == sent_id) return 0;
        if (++missing_receives_ >= receives_at_once_ && !post_receives()) return -1;
        return 1;
    }

  private:
    static constexpr std::uint64_t sent_id = 1;
    static constexpr std::uint32_t receives = 256;

    bare_end() = default;
    [[nodiscard]] bool open_port();
    [[nodiscard]] bool find_gid(const ibv_port_attr& port);
    [[nodiscard]] bool make_queues(bool shared_receives);
    [[nodiscard]] bool make_memory(std::size_t bytes);
    [[nodiscard]] bool post_receives() noexcept;

    ibv_context* device_ = nullptr;
    ibv_pd* domain_ = nullptr;
    ibv_cq* completions_ = nullptr;
    ibv_srq* shared_ = nullptr;
    ibv_qp* queue_pair_ = nullptr;
    ibv_mr* outgoing_memory_ = nullptr;
    ibv_mr* incoming_memory_ = nullptr;
    std::vector<std::byte> outgoing_;
    std::vector<std::byte> incoming_;
    std::uint32_t outgoing_key_ = 0;
    bare_address own_;
    bare_address peer_;
    bool ethernet_ = false;
    std::uint8_t port_ = 0;
    std::uint8_t gid_index_ = 0;
    std::uint32_t unsignalled_ = 0;
    std::uint32_t receives_at_once_ = 0;
    std::uint32_t missing_receives_ = 0;
    std::array<ibv_recv_wr, shared_receives_at_once> chain_{};
};

}  // namespace accel::bench
