// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <infiniband/verbs.h>

/// Two connected queue pairs of one process, through stock libibverbs: for tests and benchmarks that run
/// under softnic.
namespace accel::softnic::testing {

template <class T, int (*Destroy)(T*)>
struct destroyer {
    void operator()(T* object) const { Destroy(object); }
};
template <class T, int (*Destroy)(T*)>
using owned = std::unique_ptr<T, destroyer<T, Destroy>>;

using context_owner = owned<ibv_context, ibv_close_device>;
using pd_owner = owned<ibv_pd, ibv_dealloc_pd>;
using mr_owner = owned<ibv_mr, ibv_dereg_mr>;
using cq_owner = owned<ibv_cq, ibv_destroy_cq>;
using qp_owner = owned<ibv_qp, ibv_destroy_qp>;
using srq_owner = owned<ibv_srq, ibv_destroy_srq>;
using channel_owner = owned<ibv_comp_channel, ibv_destroy_comp_channel>;

template <class T>
T* required(T* object, const char* what) {
    if (object == nullptr) throw std::runtime_error(std::string("cannot have ") + what);
    return object;
}

inline context_owner open_device(int index = 0) {
    int count = 0;
    ibv_device** list = required(ibv_get_device_list(&count), "device list");
    if (index >= count) throw std::runtime_error("no such device");
    context_owner context(required(ibv_open_device(list[index]), "device"));
    ibv_free_device_list(list);
    return context;
}

struct connection {
    ibv_mtu mtu = IBV_MTU_4096;
    std::uint8_t timeout = 14;
    std::uint8_t retry_count = 7;
    std::uint8_t rnr_retry = 7;
    std::uint8_t min_rnr_timer = 1;
    std::uint8_t reads = 16;
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    std::uint32_t psn = 0xfffff0;  ///< wraps early
};

inline void to_init(ibv_qp* qp, const connection& how) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = static_cast<unsigned>(how.access);
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
        throw std::runtime_error("INIT refused");
}

inline void to_ready(ibv_qp* qp, std::uint32_t remote, std::uint16_t lid, const connection& how) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = how.mtu;
    attr.dest_qp_num = remote;
    attr.rq_psn = how.psn;
    attr.max_dest_rd_atomic = how.reads;
    attr.min_rnr_timer = how.min_rnr_timer;
    attr.ah_attr.dlid = lid;
    attr.ah_attr.port_num = 1;
    constexpr int to_receive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (ibv_modify_qp(qp, &attr, to_receive) != 0) throw std::runtime_error("RTR refused");
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = how.timeout;
    attr.retry_cnt = how.retry_count;
    attr.rnr_retry = how.rnr_retry;
    attr.sq_psn = how.psn;
    attr.max_rd_atomic = how.reads;
    constexpr int to_send =
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    if (ibv_modify_qp(qp, &attr, to_send) != 0) throw std::runtime_error("RTS refused");
}

inline qp_owner make_qp(ibv_pd* pd, ibv_cq* send_cq, ibv_cq* receive_cq, std::uint32_t depth = 64,
                        ibv_srq* srq = nullptr) {
    ibv_qp_init_attr init{};
    init.send_cq = send_cq;
    init.recv_cq = receive_cq;
    init.srq = srq;
    init.cap = {depth, srq == nullptr ? depth : 0, 4, 4, 64};
    init.qp_type = IBV_QPT_RC;
    return qp_owner(required(ibv_create_qp(pd, &init), "queue pair"));
}

inline void connect(ibv_qp* one, ibv_qp* other, std::uint16_t lid = 1, const connection& how = {}) {
    to_init(one, how);
    to_init(other, how);
    to_ready(one, other->qp_num, lid, how);
    to_ready(other, one->qp_num, lid, how);
}

}  // namespace accel::softnic::testing
