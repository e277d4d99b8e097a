// SPDX-License-Identifier: Apache-2.0
#include "verbs/failure.hpp"
#include "verbs/path.hpp"
#include "verbs/queues.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

namespace accel::verbs {
namespace {

result<void> modify(ibv_qp& qp, ibv_qp_attr& attributes, int mask, std::string_view what) {
    if (const int failed = ibv_modify_qp(&qp, &attributes, mask); failed != 0)
        return verb_failed(fmt::format("the queue pair does not become {}", what), failed);
    return {};
}

}  // namespace

result<queue_pair> queue_pair::create(const std::shared_ptr<device>& on, ibv_pd* domain, ibv_cq* completions,
                                      ibv_srq* receives, const queue_sizes& sizes, async_listener* listener) {
    auto psn = random_psn();
    if (!psn) return psn.error();
    ibv_qp_init_attr wanted{};
    wanted.qp_context = listener;
    wanted.send_cq = wanted.recv_cq = completions;
    wanted.srq = receives;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap.max_send_wr = sizes.send;
    wanted.cap.max_recv_wr = sizes.receive;
    const auto supported_ranges = static_cast<std::uint32_t>(std::max(on->limits().max_sge, 2));
    wanted.cap.max_send_sge = std::min({sizes.ranges, max_ranges, supported_ranges});
    wanted.cap.max_recv_sge = receives == nullptr ? 1 : 0;
    wanted.cap.max_inline_data = sizes.inline_bytes;
    qp_handle handle(ibv_create_qp(domain, &wanted));
    if (!handle && sizes.inline_bytes > 0) {
        wanted.cap.max_inline_data = 0;
        handle.reset(ibv_create_qp(domain, &wanted));
    }
    if (!handle) return verb_failed("cannot make a queue pair", errno);
    queue_sizes got = sizes;
    got.ranges = std::min({sizes.ranges, max_ranges, supported_ranges});
    got.inline_bytes = std::min(sizes.inline_bytes, wanted.cap.max_inline_data);
    queue_pair made(on, std::move(handle), got, *psn);
    if (on->driver() != nullptr) {
        if (auto driven = made.drive_directly(); !driven) return driven.error();
    }
    return made;
}

result<void> queue_pair::drive_directly() {
    auto located = device_->driver()->locate(*handle_);
    if (!located) return located.error();
    posting_->at = *located;
    posting_->at.sends.state = &posting_->state;
    posting_->numbers.resize(posting_->at.sends.wqebbs);
    if (posting_->at.receives.ring != nullptr) mlx5::write_empty_receives(posting_->at.receives);
    return {};
}

void queue_pair::describe(endpoint& out) const noexcept {
    describe_port(*device_, out);
    out.queue_pair = handle_->qp_num;
    out.first_psn = first_psn_;
}

result<void> queue_pair::connect(const endpoint& peer, const verbs_options& options) {
    if (auto good = check_layer(*device_, peer); !good) return good;
    if (auto done = to_init(); !done) return done;
    if (auto done = to_ready_to_receive(peer); !done) return done;
    return to_ready_to_send(options);
}

/// By way of the error state, in which receives of messages that were under way are given back.
result<void> queue_pair::reset() {
    auto psn = random_psn();
    if (!psn) return psn.error();
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    if (handle_->state != IBV_QPS_RESET) {
        if (auto done = modify(*handle_, attributes, IBV_QP_STATE, "quiet"); !done) return done;
    }
    attributes.qp_state = IBV_QPS_RESET;
    if (auto done = modify(*handle_, attributes, IBV_QP_STATE, "new"); !done) return done;
    first_psn_ = *psn;
    return {};
}

result<void> queue_pair::to_init() {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = device_->port().number;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    return modify(*handle_, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

result<void> queue_pair::to_ready_to_receive(const endpoint& peer) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = std::min(device_->port().mtu, static_cast<ibv_mtu>(peer.mtu));
    attributes.dest_qp_num = peer.queue_pair;
    attributes.rq_psn = peer.first_psn;
    attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = rnr_timer_640_us;
    attributes.ah_attr = path_to(*device_, peer);
    return modify(*handle_, attributes,
                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                  "ready to receive");
}

result<void> queue_pair::to_ready_to_send(const verbs_options& options) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = timeout_exponent(options.ack_timeout);
    attributes.retry_cnt = static_cast<std::uint8_t>(options.ack_retries);
    attributes.rnr_retry = rnr_retries_without_end;
    attributes.sq_psn = first_psn_;
    attributes.max_rd_atomic = 1;
    return modify(
        *handle_, attributes,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
        "ready to send");
}

}  // namespace accel::verbs
