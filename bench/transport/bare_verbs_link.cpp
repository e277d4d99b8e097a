// SPDX-License-Identifier: Apache-2.0
#include "bare_verbs_link.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <poll.h>

namespace accel::bench {
namespace {

constexpr std::size_t header_bytes = 64;
constexpr std::size_t page_bytes = 4096;
constexpr unsigned events_acknowledged_at_once = 256;
constexpr int access_bits = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

error failed(const char* what, int native) {
    return {status::system_error, native, std::string{what} + ": " + std::strerror(native)};
}

bool holds_ipv4(const ibv_gid& gid) noexcept {
    constexpr std::array<std::uint8_t, 12> prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(gid.raw, prefix.data(), prefix.size()) == 0;
}

std::byte* next_page(std::byte* at) noexcept {
    return at + (page_bytes - reinterpret_cast<std::uintptr_t>(at) % page_bytes) % page_bytes;
}

}  // namespace

verbs_link::verbs_link(const verbs_link_options& options)
    : options_(options),
      message_bytes_(header_bytes + options.payload_bytes),
      stride_((message_bytes_ + page_bytes - 1) / page_bytes * page_bytes),
      depth_(std::max(options.slots + options.slots / 2, min_depth)),
      receives_(shared_receives),
      receives_at_once_(shared_receives_at_once),
      memory_(2 * options.slots * stride_ + page_bytes),
      out_(next_page(memory_.data())),
      in_(out_ + options.slots * stride_),
      signal_every_(depth_ - options.slots) {
    if (options.serves) return;
    receives_at_once_ = std::clamp(options.slots / 2, 1U, shared_receives_at_once);
    receives_ = options.slots + receives_at_once_;
}

verbs_link::~verbs_link() {
    if (events_ > 0) ibv_ack_cq_events(completions_.get(), events_);
}

result<std::unique_ptr<verbs_link>> verbs_link::open(const verbs_link_options& options) {
    std::unique_ptr<verbs_link> made(new verbs_link(options));
    if (auto done = made->open_port(); !done) return done.error();
    if (auto done = made->create(); !done) return done.error();
    return made;
}

result<void> verbs_link::open_port() {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    for (int i = 0; list != nullptr && i < count && port_number_ == 0; ++i) {
        context_.reset(ibv_open_device(list[i]));
        ibv_device_attr limits{};
        if (!context_ || ibv_query_device(context_.get(), &limits) != 0) continue;
        for (std::uint8_t number = 1; number <= limits.phys_port_cnt; ++number)
            if (take_port(*context_, number)) break;
    }
    if (list != nullptr) ibv_free_device_list(list);
    if (port_number_ == 0) return error{status::unsupported, 0, "no RDMA device has an active port"};
    return {};
}

/// An active port; on Ethernet with a GID of RoCE v2 that holds an IPv4 address.
bool verbs_link::take_port(ibv_context& context, std::uint8_t number) {
    if (ibv_query_port(&context, number, &port_) != 0 || port_.state != IBV_PORT_ACTIVE) return false;
    const bool ethernet = port_.link_layer == IBV_LINK_LAYER_ETHERNET;
    for (int i = 0; ethernet && i < port_.gid_tbl_len; ++i) {
        ibv_gid_entry entry{};
        if (ibv_query_gid_ex(&context, number, static_cast<std::uint32_t>(i), &entry, 0) != 0) continue;
        if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || !holds_ipv4(entry.gid)) continue;
        gid_ = entry.gid;
        gid_index_ = static_cast<std::uint8_t>(i);
        port_number_ = number;
        return true;
    }
    if (!ethernet) port_number_ = number;
    return !ethernet;
}

result<void> verbs_link::create() {
    domain_.reset(ibv_alloc_pd(context_.get()));
    if (!domain_) return failed("ibv_alloc_pd", errno);
    memory_keys_.reset(ibv_reg_mr(domain_.get(), out_, 2 * options_.slots * stride_, access_bits));
    if (!memory_keys_) return failed("ibv_reg_mr", errno);
    if (options_.blocks) channel_.reset(ibv_create_comp_channel(context_.get()));
    if (options_.blocks && !channel_) return failed("ibv_create_comp_channel", errno);
    completions_.reset(ibv_create_cq(context_.get(), static_cast<int>(depth_ + receives_), nullptr, channel_.get(), 0));
    if (!completions_) return failed("ibv_create_cq", errno);
    return create_queues();
}

result<void> verbs_link::create_queues() {
    ibv_srq_init_attr receives{};
    receives.attr = {receives_, 1, 0};
    if (options_.serves) shared_.reset(ibv_create_srq(domain_.get(), &receives));
    if (options_.serves && !shared_) return failed("ibv_create_srq", errno);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = completions_.get();
    wanted.srq = shared_.get();
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {depth_, options_.serves ? 0 : receives_, 2, options_.serves ? 0U : 1U, wanted_inline_bytes};
    queue_pair_.reset(ibv_create_qp(domain_.get(), &wanted));
    if (!queue_pair_) return failed("ibv_create_qp", errno);
    inline_bytes_ = std::min(wanted_inline_bytes, wanted.cap.max_inline_data);
    return {};
}

verbs_address verbs_link::address() const noexcept {
    return {queue_pair_->qp_num, 1, port_.lid, memory_keys_->rkey, reinterpret_cast<std::uintptr_t>(in_), gid_};
}

result<void> verbs_link::connect(const verbs_address& peer) {
    peer_ = peer;
    if (!to_ready(peer)) return failed("ibv_modify_qp", errno);
    for (std::uint32_t i = 0; i + 1 < receives_at_once_; ++i) chain_[i].next = &chain_[i + 1];
    for (std::uint32_t posted = 0; posted + receives_at_once_ <= receives_; posted += receives_at_once_)
        if (!post_receives()) return failed("ibv_post_recv", errno);
    if (channel_ && ibv_req_notify_cq(completions_.get(), 0) != 0) return failed("ibv_req_notify_cq", errno);
    return {};
}

bool verbs_link::to_ready(const verbs_address& peer) {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_INIT;
    wanted.port_num = port_number_;
    wanted.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (ibv_modify_qp(queue_pair_.get(), &wanted,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
        return false;
    wanted.qp_state = IBV_QPS_RTR;
    wanted.path_mtu = port_.active_mtu;
    wanted.dest_qp_num = peer.queue_pair;
    wanted.rq_psn = peer.psn;
    wanted.max_dest_rd_atomic = 1;
    wanted.min_rnr_timer = 12;
    wanted.ah_attr.port_num = port_number_;
    wanted.ah_attr.dlid = static_cast<std::uint16_t>(peer.lid);
    if (port_.link_layer == IBV_LINK_LAYER_ETHERNET) {
        wanted.ah_attr.is_global = 1;
        wanted.ah_attr.grh.dgid = peer.gid;
        wanted.ah_attr.grh.sgid_index = gid_index_;
        wanted.ah_attr.grh.hop_limit = 64;
    }
    if (ibv_modify_qp(queue_pair_.get(), &wanted,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
        return false;
    wanted.qp_state = IBV_QPS_RTS;
    wanted.timeout = 14;
    wanted.retry_cnt = 7;
    wanted.rnr_retry = 7;
    wanted.sq_psn = address().psn;
    wanted.max_rd_atomic = 1;
    return ibv_modify_qp(queue_pair_.get(), &wanted,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

bool verbs_link::post_receives() noexcept {
    missing_receives_ = 0;
    ibv_recv_wr* refused = nullptr;
    if (shared_) return ibv_post_srq_recv(shared_.get(), chain_.data(), &refused) == 0;
    return ibv_post_recv(queue_pair_.get(), chain_.data(), &refused) == 0;
}

bool verbs_link::sleep(int other_fd, int milliseconds) noexcept {
    std::array<pollfd, 2> watched{{{channel_->fd, POLLIN, 0}, {other_fd, POLLIN, 0}}};
    if (::poll(watched.data(), watched.size(), milliseconds) <= 0 || watched[1].revents != 0) return false;
    ibv_cq* told = nullptr;
    void* unused = nullptr;
    if (ibv_get_cq_event(channel_.get(), &told, &unused) != 0) return false;
    if (++events_ == events_acknowledged_at_once) ibv_ack_cq_events(told, std::exchange(events_, 0));
    return ibv_req_notify_cq(told, 0) == 0;
}

}  // namespace accel::bench
