#include "verbs/proxy.hpp"

#include <algorithm>
#include <cstring>

/// What the proxy's thread does in a turn.
namespace accel::verbs {
namespace {

// The id of a work request: a bit that no receive has, the sender's serial number, whether its kernel wants
// to hear of it, the operation, and its number in the ledger.
constexpr std::uint64_t of_send = std::uint64_t{1} << 63;
constexpr std::uint64_t asked_for = std::uint64_t{1} << 39;
constexpr unsigned serial_bits = 23;

std::uint64_t make_id(std::uint32_t serial, bool asked, std::uint8_t operation,
                      std::uint32_t number) noexcept {
    const std::uint64_t kept = serial & ((1U << serial_bits) - 1);
    return of_send | (kept << 40) | (asked ? asked_for : 0) | (std::uint64_t{operation} << 32) | number;
}
bool is_of(std::uint64_t id, std::uint32_t serial) noexcept {
    return ((id >> 40 ^ serial) & ((1U << serial_bits) - 1)) == 0;
}
std::uint8_t operation_of(std::uint64_t id) noexcept {
    return static_cast<std::uint8_t>((id >> 32) & 0x7fU);
}

/// What an mlx5 adapter would have said. What none says is a failure of the queue pair.
mlx5::syndrome syndrome_of(ibv_wc_status native) noexcept {
    switch (native) {
        case IBV_WC_SUCCESS:
            return mlx5::syndrome::none;
        case IBV_WC_LOC_LEN_ERR:
            return mlx5::syndrome::local_length;
        case IBV_WC_LOC_PROT_ERR:
            return mlx5::syndrome::local_protection;
        case IBV_WC_WR_FLUSH_ERR:
            return mlx5::syndrome::flushed;
        case IBV_WC_MW_BIND_ERR:
            return mlx5::syndrome::window_bind;
        case IBV_WC_BAD_RESP_ERR:
            return mlx5::syndrome::bad_response;
        case IBV_WC_LOC_ACCESS_ERR:
            return mlx5::syndrome::local_access;
        case IBV_WC_REM_INV_REQ_ERR:
            return mlx5::syndrome::remote_invalid_request;
        case IBV_WC_REM_ACCESS_ERR:
            return mlx5::syndrome::remote_access;
        case IBV_WC_REM_OP_ERR:
            return mlx5::syndrome::remote_operation;
        case IBV_WC_RETRY_EXC_ERR:
            return mlx5::syndrome::retries_exceeded;
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return mlx5::syndrome::receiver_not_ready;
        case IBV_WC_REM_ABORT_ERR:
            return mlx5::syndrome::remote_aborted;
        default:
            return mlx5::syndrome::local_queue_pair;
    }
}

mlx5::entry_kind kind_of(const ibv_wc& arrived) noexcept {
    if (arrived.status != IBV_WC_SUCCESS) return mlx5::entry_kind::receive_error;
    if (arrived.opcode == IBV_WC_RECV_RDMA_WITH_IMM) return mlx5::entry_kind::write_immediate;
    return (arrived.wc_flags & IBV_WC_WITH_IMM) != 0 ? mlx5::entry_kind::receive_immediate
                                                     : mlx5::entry_kind::receive;
}

/// False: the proxy does not post it.
bool translate(std::uint8_t operation, ibv_wr_opcode& out) noexcept {
    switch (static_cast<mlx5::opcode>(operation)) {
        case mlx5::opcode::write:
            out = IBV_WR_RDMA_WRITE;
            return true;
        case mlx5::opcode::write_immediate:
            out = IBV_WR_RDMA_WRITE_WITH_IMM;
            return true;
        case mlx5::opcode::send:
            out = IBV_WR_SEND;
            return true;
        case mlx5::opcode::send_immediate:
            out = IBV_WR_SEND_WITH_IMM;
            return true;
        case mlx5::opcode::read:
            out = IBV_WR_RDMA_READ;
            return true;
        default:
            return false;
    }
}

unsigned verbs_flags(std::uint8_t flags, bool signalled) noexcept {
    unsigned out = 0;
    if (signalled) out |= IBV_SEND_SIGNALED;
    if ((flags & mlx5::flag_solicited) != 0) out |= IBV_SEND_SOLICITED;
    if ((flags & mlx5::flag_fence) != 0) out |= IBV_SEND_FENCE;
    return out;
}

constexpr unsigned known_flags = mlx5::flag_solicited | mlx5::flag_signalled | mlx5::flag_fence;

}  // namespace

bool proxy_engine::turn() noexcept {
    const std::uint32_t before = turn_.load(std::memory_order_relaxed);
    turn_.store(before + 1, std::memory_order_seq_cst);
    bool any = commands_pending_.load(std::memory_order_seq_cst);
    if (any) take_commands();
    any = take_completions() || any;
    any = post_all() || any;
    if (use_.missing >= use_.at_once) refill(use_.missing);
    turn_.store(before + 2, std::memory_order_release);
    return any;
}

// Completions.

proxy_engine::sender* proxy_engine::find(std::uint32_t number) noexcept {
    const auto found = by_number_.find(number);
    return found == by_number_.end() ? nullptr : found->second;
}

std::uint32_t proxy_engine::room() const noexcept {
    return proxy::room(ring_count_, ring_.consumed, told_);
}

void proxy_engine::tell(const mlx5::completion& what) noexcept {
    proxy::tell(ring_.entries.data(), ring_count_, told_, what);
    ++told_;
}

/// Each makes one entry of the ring at most.
bool proxy_engine::take_completions() noexcept {
    if (untold_ > 0) tell_failures();
    const std::size_t most = std::min<std::size_t>(room(), fetched_.size());
    if (most == 0 || lost_) return false;
    const int got = ibv_poll_cq(completions(), static_cast<int>(most), fetched_.data());
    if (got < 0) {
        lost_ = true;
        fail_all();
        return true;
    }
    for (int i = 0; i < got; ++i) take(fetched_[static_cast<std::size_t>(i)]);
    return got > 0;
}

/// Of what has failed libibverbs tells the id and the queue pair, no more. A queue pair may have been added,
/// and its peer have written, since the turn began.
void proxy_engine::take(const ibv_wc& completion) noexcept {
    sender* whose = find(completion.qp_num);
    if (whose == nullptr && commands_pending_.load(std::memory_order_seq_cst)) {
        take_commands();
        whose = find(completion.qp_num);
    }
    if (completion.wr_id == 0) {
        ++use_.missing;
        if (whose != nullptr) take_arrived(*whose, completion);
    } else if (whose != nullptr && is_of(completion.wr_id, whose->serial)) {
        take_sent(*whose, completion);
    }
}

void proxy_engine::take_sent(sender& from, const ibv_wc& completion) noexcept {
    const auto number = static_cast<std::uint32_t>(completion.wr_id);
    from.ledger.complete(number);
    mlx5::store_flag(from.ring.released, from.ring.first + number);
    const bool failed = completion.status != IBV_WC_SUCCESS;
    const bool asked = (completion.wr_id & asked_for) != 0;
    const bool first_failure = failed && !from.failed;
    if (!asked && !first_failure) return;
    from.failed = from.failed || failed;
    mlx5::completion out;
    out.queue_pair = from.name;
    out.kind = failed ? mlx5::entry_kind::request_error : mlx5::entry_kind::request;
    out.operation = static_cast<mlx5::opcode>(operation_of(completion.wr_id));
    out.counter = static_cast<std::uint16_t>(from.ring.first + number - 1);
    out.failure = syndrome_of(completion.status);
    if (failed) out.vendor_syndrome = static_cast<std::uint8_t>(completion.vendor_err);
    tell(out);
}

void proxy_engine::take_arrived(sender& to, const ibv_wc& completion) noexcept {
    mlx5::completion out;
    out.queue_pair = to.name;
    out.kind = kind_of(completion);
    if (out.kind == mlx5::entry_kind::receive_error) {
        if (to.failed) return;
        to.failed = true;
        out.failure = syndrome_of(completion.status);
        out.vendor_syndrome = static_cast<std::uint8_t>(completion.vendor_err);
    } else {
        if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0) out.immediate = mlx5::be32{completion.imm_data};
        out.length = completion.byte_len;
    }
    tell(out);
}

// Failures that no completion of the device tells of.

void proxy_engine::fail(sender& which, proxy::refusal why, std::uint32_t number,
                        std::uint8_t operation) noexcept {
    if (which.failed) return;
    which.failed = true;
    mlx5::completion out;
    out.queue_pair = which.name;
    out.kind = mlx5::entry_kind::request_error;
    out.operation = static_cast<mlx5::opcode>(operation);
    out.counter = static_cast<std::uint16_t>(number);
    out.failure = mlx5::syndrome::local_queue_pair;
    out.vendor_syndrome = static_cast<std::uint8_t>(why);
    which.untold = out;
    ++untold_;
}

void proxy_engine::fail_all() noexcept {
    for (const auto& each : senders_) fail(*each, proxy::refusal::lost, each->next, 0);
}

void proxy_engine::tell_failures() noexcept {
    for (const auto& each : senders_) {
        if (!each->untold || room() == 0) continue;
        tell(*each->untold);
        each->untold.reset();
        --untold_;
    }
}

// Posting.

bool proxy_engine::post_all() noexcept {
    bool any = false;
    const std::size_t count = senders_.size();
    first_ = first_ + 1 < count ? first_ + 1 : 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = first_ + i < count ? first_ + i : first_ + i - count;
        any = post_some(*senders_[at]) || any;
    }
    return any;
}

/// What a kernel has written is as good as a peer's bytes: read once, then checked.
bool proxy_engine::post_some(sender& from) noexcept {
    std::uint32_t count = 0;
    proxy::request next;
    while (!from.failed && count < options_.batch && from.ledger.has_room(1)) {
        if (!proxy::read(from.ring.descriptors.data(), from.count, from.next, next)) break;
        const proxy::refusal why = prepare(from, count, next);
        if (why != proxy::refusal::none) {
            fail(from, why, from.next, next.operation);
            break;
        }
        ++from.next;
        ++count;
    }
    return count > 0 && post_chain(from, count);
}

proxy::refusal proxy_engine::prepare(sender& from, std::uint32_t place, const proxy::request& what) noexcept {
    ibv_send_wr& out = chain_[place];
    out = {};
    if (what.queue_pair != from.name) return proxy::refusal::queue_pair;
    if (!translate(what.operation, out.opcode)) return proxy::refusal::operation;
    if (!what.known_bits_only || (what.flags & ~known_flags) != 0) return proxy::refusal::flags;
    if (what.from.length > device_->port().max_message_bytes) return proxy::refusal::length;
    const bool asked = (what.flags & mlx5::flag_signalled) != 0;
    const bool signalled = asked || from.ledger.signal_due(1);
    out.wr_id = make_id(from.serial, asked, what.operation, from.ledger.number_of_last(1));
    out.send_flags = verbs_flags(what.flags, signalled);
    out.imm_data = static_cast<std::uint32_t>(what.immediate);
    out.wr.rdma.remote_addr = what.remote_address;
    out.wr.rdma.rkey = what.remote_key;
    segments_[place] = {what.from.address, what.from.length, what.from.key};
    out.sg_list = &segments_[place];
    out.num_sge = what.from.length != 0 ? 1 : 0;
    if (place > 0) chain_[place - 1].next = &out;
    from.ledger.post(1, signalled);
    return proxy::refusal::none;
}

bool proxy_engine::post_chain(sender& from, std::uint32_t count) noexcept {
    ibv_send_wr* failed = nullptr;
    if (ibv_post_send(from.pair, chain_.data(), &failed) == 0) return true;
    const auto accepted =
        failed == nullptr ? std::uint32_t{0} : static_cast<std::uint32_t>(failed - chain_.data());
    const std::uint32_t number = from.next - (count - std::min(accepted, count));
    fail(from, proxy::refusal::device, number, operation_of(chain_[std::min(accepted, count - 1)].wr_id));
    return true;
}

// Receives.

/// One that is refused finds the queue full: none is missing.
void proxy_engine::refill(std::uint32_t receives) noexcept {
    const auto post = [this](ibv_recv_wr* first, ibv_recv_wr** failed) {
        return ibv_post_srq_recv(this->receives(), first, failed);
    };
    (void)receive_chain_.post(receives, post);
    use_.missing = 0;
}

/// What a queue pair had received that was destroyed before its completions were taken never comes back by
/// them: some devices' drivers drop them.
void proxy_engine::top_up() noexcept {
    if (any_removed_) refill(receives_->depth());
}

}  // namespace accel::verbs
