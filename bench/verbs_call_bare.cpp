#include "verbs_call_bare.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace accel::bench {
namespace {

constexpr std::uint8_t hop_limit = 64;
constexpr std::uint8_t timeout_exponent = 14;  // 67 ms
constexpr std::uint8_t retries = 7;
constexpr std::uint8_t rnr_timer_640_us = 12;

bool complain(const char* what) {
    std::fprintf(stderr, "bare verbs: %s: %s\n", what, std::strerror(errno));
    return false;
}

bool is_ipv4(const ibv_gid& gid) noexcept {
    constexpr std::array<std::uint8_t, 12> prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(gid.raw, prefix.data(), prefix.size()) == 0;
}

}  // namespace

std::unique_ptr<bare_end> bare_end::open(bool shared_receives, std::size_t bytes) {
    std::unique_ptr<bare_end> made(new bare_end);
    if (!made->open_port() || !made->make_queues(shared_receives) || !made->make_memory(bytes))
        return nullptr;
    return made;
}

bare_end::~bare_end() {
    if (queue_pair_ != nullptr) ibv_destroy_qp(queue_pair_);
    if (shared_ != nullptr) ibv_destroy_srq(shared_);
    if (completions_ != nullptr) ibv_destroy_cq(completions_);
    if (outgoing_memory_ != nullptr) ibv_dereg_mr(outgoing_memory_);
    if (incoming_memory_ != nullptr) ibv_dereg_mr(incoming_memory_);
    if (domain_ != nullptr) ibv_dealloc_pd(domain_);
    if (device_ != nullptr) ibv_close_device(device_);
}

/// The first active port of the first device.
bool bare_end::open_port() {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    if (list == nullptr || count == 0) return complain("no device");
    device_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (device_ == nullptr) return complain("the device cannot be opened");
    ibv_device_attr limits{};
    if (ibv_query_device(device_, &limits) != 0) return complain("the device does not tell its limits");
    for (std::uint8_t number = 1; number <= limits.phys_port_cnt; ++number) {
        ibv_port_attr port{};
        if (ibv_query_port(device_, number, &port) != 0 || port.state != IBV_PORT_ACTIVE) continue;
        port_ = number;
        own_.lid = port.lid;
        own_.mtu = static_cast<std::uint8_t>(port.active_mtu);
        ethernet_ = port.link_layer == IBV_LINK_LAYER_ETHERNET;
        return find_gid(port);
    }
    return complain("no port is active");
}

/// On Ethernet the one of RoCE v2 with an IPv4 address, else the first.
bool bare_end::find_gid(const ibv_port_attr& port) {
    for (int i = 0; i < port.gid_tbl_len; ++i) {
        ibv_gid_entry entry{};
        if (ibv_query_gid_ex(device_, port_, static_cast<std::uint32_t>(i), &entry, 0) != 0) continue;
        if (ethernet_ && (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || !is_ipv4(entry.gid))) continue;
        own_.gid = entry.gid;
        gid_index_ = static_cast<std::uint8_t>(i);
        return true;
    }
    return !ethernet_ || complain("the port has no GID of RoCE v2 with an IPv4 address");
}

bool bare_end::make_queues(bool shared_receives) {
    domain_ = ibv_alloc_pd(device_);
    completions_ = ibv_create_cq(device_, 2 * (send_depth + receives), nullptr, nullptr, 0);
    if (domain_ == nullptr || completions_ == nullptr) return complain("no completion queue");
    if (shared_receives) {
        ibv_srq_init_attr wanted{};
        wanted.attr.max_wr = receives;
        wanted.attr.max_sge = 1;
        shared_ = ibv_create_srq(domain_, &wanted);
        if (shared_ == nullptr) return complain("no shared receive queue");
    }
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = completions_;
    wanted.srq = shared_;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap.max_send_wr = send_depth;
    wanted.cap.max_recv_wr = shared_receives ? 0 : receives;
    wanted.cap.max_send_sge = 2;
    wanted.cap.max_recv_sge = shared_receives ? 0 : 1;
    wanted.cap.max_inline_data = inline_bytes;
    queue_pair_ = ibv_create_qp(domain_, &wanted);
    if (queue_pair_ == nullptr) return complain("no queue pair");
    own_.queue_pair = queue_pair_->qp_num;
    return true;
}

bool bare_end::make_memory(std::size_t bytes) {
    outgoing_.resize(bytes);
    incoming_.resize(bytes);
    outgoing_memory_ = ibv_reg_mr(domain_, outgoing_.data(), bytes, 0);
    incoming_memory_ =
        ibv_reg_mr(domain_, incoming_.data(), bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (outgoing_memory_ == nullptr || incoming_memory_ == nullptr)
        return complain("memory cannot be registered");
    outgoing_key_ = outgoing_memory_->lkey;
    own_.key = incoming_memory_->rkey;
    own_.buffer = reinterpret_cast<std::uintptr_t>(incoming_.data());
    return true;
}

bare_address bare_end::address() const noexcept {
    return own_;
}

bool bare_end::connect(const bare_address& peer) noexcept {
    peer_ = peer;
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = port_;
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (ibv_modify_qp(queue_pair_, &to,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
        return complain("the queue pair does not become INIT");
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = static_cast<ibv_mtu>(std::min(own_.mtu, peer.mtu));
    to.dest_qp_num = peer.queue_pair;
    to.max_dest_rd_atomic = 1;
    to.min_rnr_timer = rnr_timer_640_us;
    to.ah_attr.port_num = port_;
    to.ah_attr.dlid = peer.lid;
    to.ah_attr.is_global = ethernet_ ? 1 : 0;
    to.ah_attr.grh.dgid = peer.gid;
    to.ah_attr.grh.sgid_index = gid_index_;
    to.ah_attr.grh.hop_limit = hop_limit;
    if (ibv_modify_qp(queue_pair_, &to,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
        return complain("the queue pair does not become ready to receive");
    to.qp_state = IBV_QPS_RTS;
    to.timeout = timeout_exponent;
    to.retry_cnt = retries;
    to.rnr_retry = retries;
    to.max_rd_atomic = 1;
    if (ibv_modify_qp(queue_pair_, &to,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC) != 0)
        return complain("the queue pair does not become ready to send");
    receives_at_once_ = shared_ != nullptr ? shared_receives_at_once : own_receives_at_once;
    for (std::uint32_t i = 0; i + 1 < receives_at_once_; ++i) chain_[i].next = &chain_[i + 1];
    for (std::uint32_t posted = 0; posted < receives; posted += receives_at_once_) {
        if (!post_receives()) return complain("receives cannot be posted");
    }
    return true;
}

bool bare_end::post_receives() noexcept {
    missing_receives_ = 0;
    ibv_recv_wr* failed = nullptr;
    if (shared_ != nullptr) return ibv_post_srq_recv(shared_, chain_.data(), &failed) == 0;
    return ibv_post_recv(queue_pair_, chain_.data(), &failed) == 0;
}

}  // namespace accel::bench
