#include "verbs/completion_queue.hpp"

#include "verbs/failure.hpp"
#include "verbs/mlx5_driver.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>

namespace accel::verbs {
namespace {

/// Acknowledging takes a lock in libibverbs, so it is done for many events at once.
constexpr unsigned events_acknowledged_at_once = 256;

ibv_wc_status meaning(mlx5::syndrome failure) noexcept {
    switch (failure) {
        case mlx5::syndrome::none:
            return IBV_WC_SUCCESS;
        case mlx5::syndrome::local_length:
            return IBV_WC_LOC_LEN_ERR;
        case mlx5::syndrome::local_queue_pair:
            return IBV_WC_LOC_QP_OP_ERR;
        case mlx5::syndrome::local_protection:
            return IBV_WC_LOC_PROT_ERR;
        case mlx5::syndrome::flushed:
            return IBV_WC_WR_FLUSH_ERR;
        case mlx5::syndrome::window_bind:
            return IBV_WC_MW_BIND_ERR;
        case mlx5::syndrome::bad_response:
            return IBV_WC_BAD_RESP_ERR;
        case mlx5::syndrome::local_access:
            return IBV_WC_LOC_ACCESS_ERR;
        case mlx5::syndrome::remote_invalid_request:
            return IBV_WC_REM_INV_REQ_ERR;
        case mlx5::syndrome::remote_access:
            return IBV_WC_REM_ACCESS_ERR;
        case mlx5::syndrome::remote_operation:
            return IBV_WC_REM_OP_ERR;
        case mlx5::syndrome::retries_exceeded:
            return IBV_WC_RETRY_EXC_ERR;
        case mlx5::syndrome::receiver_not_ready:
            return IBV_WC_RNR_RETRY_EXC_ERR;
        case mlx5::syndrome::remote_aborted:
            return IBV_WC_REM_ABORT_ERR;
    }
    return IBV_WC_GENERAL_ERR;
}

work_completion as_told(const ibv_wc& from, bool sent) noexcept {
    work_completion out;
    out.id = from.wr_id;
    out.queue_pair = from.qp_num;
    out.status = from.status;
    const bool arrived = !sent && from.status == IBV_WC_SUCCESS && from.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    out.kind = sent ? completed::sent : arrived ? completed::arrived : completed::received;
    if (arrived) out.immediate = ntohl(from.imm_data);
    return out;
}

}  // namespace

result<std::unique_ptr<completion_queue>> completion_queue::create(std::shared_ptr<device> on,
                                                                   std::uint32_t depth,
                                                                   async_listener* listener) {
    channel_handle channel(ibv_create_comp_channel(&on->context()));
    if (!channel) return verb_failed("no completion channel", errno);
    ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    const int entries =
        static_cast<int>(std::min<std::uint32_t>(depth, static_cast<std::uint32_t>(on->limits().max_cqe)));
    cq_handle cq(ibv_create_cq(&on->context(), entries, listener, channel.get(), 0));
    if (!cq) return verb_failed("no completion queue", errno);
    mlx5::completion_queue_ref direct;
    if (on->driver() != nullptr) {
        auto located = on->driver()->locate(*cq);
        if (!located) return located.error();
        direct = *located;
    }
    return std::unique_ptr<completion_queue>(
        new completion_queue(std::move(on), std::move(channel), std::move(cq), direct));
}

completion_queue::completion_queue(std::shared_ptr<device> on, channel_handle channel, cq_handle cq,
                                   const mlx5::completion_queue_ref& direct) noexcept
    : device_(std::move(on)), channel_(std::move(channel)), cq_(std::move(cq)), direct_(direct) {
    direct_.state = &state_;
}

completion_queue::~completion_queue() {
    take_events();
    if (unacknowledged_ > 0) ibv_ack_cq_events(cq_.get(), unacknowledged_);
}

/// Whatever is neither a send nor a write that went well. False: nothing that such a queue ever holds.
[[gnu::noinline]] bool completion_queue::translate_other(const mlx5::completion& from,
                                                         work_completion& to) noexcept {
    to.kind = from.kind == mlx5::entry_kind::request_error ? completed::sent : completed::received;
    to.immediate = 0;
    to.status = meaning(from.failure);
    switch (from.kind) {
        case mlx5::entry_kind::request_error:
        case mlx5::entry_kind::receive_error:
            if (to.status == IBV_WC_SUCCESS) to.status = IBV_WC_GENERAL_ERR;
            return true;
        case mlx5::entry_kind::receive:
        case mlx5::entry_kind::receive_immediate:
        case mlx5::entry_kind::receive_invalidate:
            return true;
        default:
            return false;
    }
}

/// Sends have an id, receives none: of what has failed libibverbs tells no more than that.
[[gnu::noinline]] int completion_queue::poll_by_verbs(std::span<work_completion> out) noexcept {
    std::array<ibv_wc, 16> some;
    const std::size_t most = std::min(out.size(), some.size());
    const int got = ibv_poll_cq(cq_.get(), static_cast<int>(most), some.data());
    for (std::size_t i = 0; std::cmp_less(i, got); ++i) out[i] = as_told(some[i], some[i].wr_id != 0);
    return got;
}

bool completion_queue::take_event() noexcept {
    ibv_cq* which = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel_.get(), &which, &context) != 0) return false;
    if (is_direct()) mlx5::count_event(direct_);
    if (++unacknowledged_ < events_acknowledged_at_once) return true;
    ibv_ack_cq_events(cq_.get(), unacknowledged_);
    unacknowledged_ = 0;
    return true;
}

}  // namespace accel::verbs
