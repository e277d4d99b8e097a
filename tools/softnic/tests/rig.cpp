// SPDX-License-Identifier: Apache-2.0
#include "rig.hpp"

#include "dma/guarded.hpp"
#include "transport/requester.hpp"

#include <stdexcept>

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

namespace accel::softnic::testing {
namespace {

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
    const std::size_t before = to.size();
    to.resize(before + sizeof value);
    std::memcpy(to.data() + before, &value, sizeof value);
}

void append_segments(const work& what, std::vector<std::byte>& wqe) {
    if (!what.inlined.empty()) {
        append(wqe, htobe32(static_cast<std::uint32_t>(what.inlined.size()) | MLX5_INLINE_SEG));
        wqe.insert(wqe.end(), what.inlined.begin(), what.inlined.end());
        wqe.resize((wqe.size() + 15) & ~std::size_t{15});
    }
    for (const segment& part : what.pieces)
        append(wqe, mlx5_wqe_data_seg{htobe32(part.length), htobe32(part.lkey), htobe64(part.address)});
}

bool is_masked(std::uint8_t opcode) {
    return opcode == MLX5_OPCODE_ATOMIC_MASKED_CS || opcode == MLX5_OPCODE_ATOMIC_MASKED_FA;
}

bool is_remote(std::uint8_t opcode) {
    return opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
           opcode == MLX5_OPCODE_RDMA_READ || opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA ||
           is_masked(opcode);
}

void append_masked(const work& what, std::vector<std::byte>& wqe) {
    const bool swap = what.opcode == MLX5_OPCODE_ATOMIC_MASKED_CS;
    const std::uint64_t second = swap ? what.compare : what.boundary;
    if (what.operand_bytes == 4) {
        const auto word = [](std::uint64_t value) { return htobe32(static_cast<std::uint32_t>(value)); };
        append(wqe, std::array{word(what.swap_or_add), word(second), swap ? word(what.swap_mask) : 0,
                               swap ? word(what.compare_mask) : 0});
        return;
    }
    append(wqe, std::array<std::uint64_t, 2>{htobe64(what.swap_or_add), htobe64(second)});
    if (swap) append(wqe, std::array<std::uint64_t, 2>{htobe64(what.swap_mask), htobe64(what.compare_mask)});
}

void must(int result) {
    if (result != 0) throw std::runtime_error("modify refused: " + std::to_string(result));
}

}  // namespace

test_cq::test_cq(nic& on, std::uint32_t entries, std::shared_ptr<event_pipe> channel,
                 std::shared_ptr<event_pipe> asynchronous)
    : entries_(entries), buffer_(entries * 64, std::byte{0xf0}) {
    completion_queue_options options;
    options.buffer = reinterpret_cast<std::uint64_t>(buffer_.data());
    options.doorbell_record = reinterpret_cast<std::uint64_t>(record_);
    options.entries = entries;
    options.user_handle = reinterpret_cast<std::uint64_t>(this);
    options.channel = std::move(channel);
    options.asynchronous = std::move(asynchronous);
    queue = on.create_cq(std::move(options));
}

bool test_cq::poll(seen_completion& out) {
    mlx5_cqe64 cqe;
    std::memcpy(&cqe, buffer_.data() + (consumed_ % entries_) * 64, sizeof cqe);
    const std::uint8_t kind = cqe.op_own >> 4;
    const bool owner = (cqe.op_own & 1) != 0;
    if (kind == MLX5_CQE_INVALID || owner != ((consumed_ & entries_) != 0)) return false;
    out = {};
    out.kind = kind;
    out.index = be16toh(cqe.wqe_counter);
    out.user_index = be32toh(cqe.srqn_uidx);
    out.opcode = static_cast<std::uint8_t>(be32toh(cqe.sop_drop_qpn) >> 24);
    out.qpn = be32toh(cqe.sop_drop_qpn) & 0xffffff;
    if (kind == MLX5_CQE_REQ_ERR || kind == MLX5_CQE_RESP_ERR) {
        mlx5_err_cqe error;
        std::memcpy(&error, &cqe, sizeof error);
        out.user_index = be32toh(error.srqn);
        out.syndrome = error.syndrome;
        out.vendor = error.vendor_err_synd;
    } else {
        out.bytes = be32toh(cqe.byte_cnt);
        out.immediate = be32toh(cqe.imm_inval_pkey);
    }
    ++consumed_;
    record_[0] = htobe32(consumed_ & 0xffffff);
    return true;
}

void test_cq::arm(bool solicited_only, bool again) {
    if (!again) ++arm_sequence_;
    const std::uint32_t command = solicited_only ? MLX5_CQ_DB_REQ_NOT_SOL : MLX5_CQ_DB_REQ_NOT;
    record_[1] = htobe32((arm_sequence_ & 3) << 28 | command | (consumed_ & 0xffffff));
    queue->on_arm_doorbell();
}

test_qp::test_qp(nic& on, test_cq& send, test_cq& receive, std::uint32_t pd, qp_type type,
                 std::shared_ptr<event_pipe> asynchronous)
    : nic_(on) {
    queue_pair_options options;
    options.type = type;
    options.pd = pd;
    options.user_index = 0x777;
    options.user_handle = reinterpret_cast<std::uint64_t>(this);
    options.send_buffer = reinterpret_cast<std::uint64_t>(send_.data());
    options.send_wqebbs = send_wqebbs;
    options.doorbell_record = reinterpret_cast<std::uint64_t>(record_);
    options.receives = {reinterpret_cast<std::uint64_t>(receive_.data()), reinterpret_cast<std::uint64_t>(record_),
                        receives, receive_shift};
    options.send_cq = send.queue;
    options.receive_cq = receive.queue;
    options.asynchronous = std::move(asynchronous);
    qp = on.create_qp(0, std::move(options));
}

test_qp::~test_qp() {
    nic_.destroy_qp(*qp);
}

std::uint16_t test_qp::post_raw(std::span<const std::byte> bytes) {
    const std::uint16_t index = produced_;
    const std::size_t blocks = std::max<std::size_t>((bytes.size() + 63) / 64, 1);
    for (std::size_t at = 0; at < blocks; ++at) {
        const auto part = bytes.subspan(std::min(at * 64, bytes.size()));
        std::memset(block(static_cast<std::uint16_t>(index + at)), 0xee, 64);
        std::memcpy(block(static_cast<std::uint16_t>(index + at)), part.data(), std::min<std::size_t>(part.size(), 64));
    }
    produced_ = static_cast<std::uint16_t>(index + blocks);
    set_send_record(produced_);
    return index;
}

std::uint16_t test_qp::post(const work& what) {
    std::vector<std::byte> wqe(16);
    if (is_remote(what.opcode)) append(wqe, mlx5_wqe_raddr_seg{htobe64(what.remote), htobe32(what.rkey), 0});
    if (what.opcode == MLX5_OPCODE_ATOMIC_CS || what.opcode == MLX5_OPCODE_ATOMIC_FA)
        append(wqe, mlx5_wqe_atomic_seg{htobe64(what.swap_or_add), htobe64(what.compare)});
    if (is_masked(what.opcode)) append_masked(what, wqe);
    append_segments(what, wqe);
    mlx5_wqe_ctrl_seg control{};
    const std::uint32_t modifier = is_masked(what.opcode) ? (what.operand_bytes == 4 ? 0x08u : 0x09u) : 0u;
    control.opmod_idx_opcode = htobe32(modifier << 24 | std::uint32_t{produced_} << 8 | what.opcode);
    control.qpn_ds = htobe32(qp->number << 8 | static_cast<std::uint32_t>(wqe.size() / 16));
    control.fm_ce_se = static_cast<std::uint8_t>((what.signalled ? MLX5_WQE_CTRL_CQ_UPDATE : 0) |
                                                 (what.solicited ? MLX5_WQE_CTRL_SOLICITED : 0) |
                                                 (what.fenced ? MLX5_WQE_CTRL_FENCE : 0));
    control.imm = htobe32(what.immediate);
    std::memcpy(wqe.data(), &control, sizeof control);
    return post_raw(wqe);
}

void test_qp::set_send_record(std::uint16_t produced) {
    record_[MLX5_SND_DBR] = htobe32(produced);
}

void test_qp::restart() {
    produced_ = receives_produced_ = 0;
    record_[0] = record_[1] = 0;
}

void test_qp::ring() {
    requester::on_doorbell(nic_.state, *qp);
}

void test_qp::post_receive(std::span<const segment> pieces) {
    auto* to = receive_.data() + ((receives_produced_ % receives) << receive_shift);
    for (const segment& part : pieces) {
        const mlx5_wqe_data_seg data{htobe32(part.length), htobe32(part.lkey), htobe64(part.address)};
        std::memcpy(to, &data, sizeof data);
        to += sizeof data;
    }
    if (pieces.size() * 16 < (1u << receive_shift)) {
        const mlx5_wqe_data_seg end{0, htobe32(MLX5_INVALID_LKEY), 0};
        std::memcpy(to, &end, sizeof end);
    }
    record_[MLX5_RCV_DBR] = htobe32(++receives_produced_);
}

std::uint32_t rig::add_region(void* at, std::size_t size, std::uint32_t pd, std::uint32_t access) {
    guarded::install_fault_handler();
    const auto address = reinterpret_cast<std::uint64_t>(at);
    return adapter.state.devices[0].regions.add({0, pd, address, size, address, access, false, host_dma()}).key;
}

bool rig::settle(std::uint64_t longest_ns) {
    rig* const self = this;
    return testing::settle({&self, 1}, longest_ns);
}

void rig::add_fault(std::string_view rules) {
    std::string problem;
    const auto parsed = parse_fault_rules(rules, problem);
    if (!parsed) throw std::invalid_argument(problem);
    for (const auto& rule : *parsed) adapter.state.faults.add(rule);
}

bool settle(std::span<rig* const> all, std::uint64_t longest_ns) {
    // In the error state queue pairs are looked at for ever, and when they are drained they keep what comes.
    const auto waits_for_program = [](const queue_pair* qp) {
        const bool drained = qp->state == qp_state::send_drained && qp->requester.oldest == qp->requester.newest;
        return (drained || qp->state == qp_state::error) && qp->responder.posted.empty();
    };
    const auto rests = [&](const rig* each) {
        const auto& all_scheduled = each->adapter.state.scheduled;
        return each->adapter.state.held.empty() && each->adapter.state.early.empty() &&
               std::all_of(all_scheduled.begin(), all_scheduled.end(), waits_for_program);
    };
    for (const std::uint64_t end = all[0]->now + longest_ns; all[0]->now < end;) {
        bool moved = false;
        for (rig* each : all) moved |= each->adapter.progress(all[0]->now);
        if (!moved && std::all_of(all.begin(), all.end(), rests)) return true;
        if (!moved) all[0]->now += 10'000;
        for (rig* each : all) each->now = all[0]->now;
    }
    return false;
}

void connect(nic& on, queue_pair& one, std::uint32_t remote_qpn, const link_options& how) {
    qp_modification change;
    change.next = qp_state::initialised;
    change.mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    change.values.access = how.access;
    must(on.modify_qp(one, change));
    change.next = qp_state::ready_to_receive;
    change.mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    change.values.destination.dlid = 1;
    change.values.path_mtu = how.mtu;
    change.values.remote_qpn = remote_qpn;
    change.values.receive_psn = how.psn;
    change.values.max_dest_rd_atomic = how.reads;
    change.values.min_rnr_timer = how.rnr_timer;
    must(on.modify_qp(one, change));
    change.next = qp_state::ready_to_send;
    change.mask =
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    change.values.timeout = how.timeout;
    change.values.retry_count = how.retry_count;
    change.values.rnr_retry = how.rnr_retry;
    change.values.send_psn = how.psn;
    change.values.max_rd_atomic = how.reads;
    must(on.modify_qp(one, change));
}

void connect_pair(nic& on, test_qp& one, test_qp& other, const link_options& how) {
    connect(on, *one.qp, other.qp->number, how);
    connect(on, *other.qp, one.qp->number, how);
}

void make_datagram_ready(nic& on, queue_pair& qp, std::uint32_t qkey) {
    qp_modification change;
    change.next = qp_state::initialised;
    change.mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    change.values.qkey = qkey;
    must(on.modify_qp(qp, change));
    change.next = qp_state::ready_to_receive;
    change.mask = IBV_QP_STATE;
    must(on.modify_qp(qp, change));
    change.next = qp_state::ready_to_send;
    change.mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    must(on.modify_qp(qp, change));
}

}  // namespace accel::softnic::testing
