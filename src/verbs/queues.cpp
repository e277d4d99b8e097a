// SPDX-License-Identifier: Apache-2.0
#include "verbs/queues.hpp"

#include "verbs/failure.hpp"

#include <atomic>
#include <cerrno>
#include <utility>

#include <fcntl.h>

/// The part of the data path that libibverbs has, and making completion queues and shared receive queues.
/// queue_pair.cpp brings queue pairs up.
namespace accel::verbs {
namespace {

/// Acknowledging takes a lock in libibverbs, so it is done for many events at once.
constexpr unsigned events_acknowledged_at_once = 256;
constexpr std::size_t max_posted_at_once = queue_pair::max_at_once;

std::atomic<std::uint32_t> next_serial{1};

/// The id of a send, which libibverbs hands back with its completion, in 64 bits. A receive has 0.
struct send_id {
    std::uint32_t serial = 0;  ///< of the queue pair
    mlx5::opcode operation = mlx5::opcode::nop;
    std::uint16_t counter = 0;
};
constexpr std::uint64_t send_bit = std::uint64_t{1} << 63;

constexpr std::uint64_t to_wr_id(const send_id& id) noexcept {
    return send_bit | (std::uint64_t{id.serial} << 24) |
           (std::uint64_t{static_cast<std::uint8_t>(id.operation)} << 16) | id.counter;
}
constexpr send_id parse_send_id(std::uint64_t wr_id) noexcept {
    return {static_cast<std::uint32_t>(wr_id >> 24), static_cast<mlx5::opcode>((wr_id >> 16) & 0xffU),
            static_cast<std::uint16_t>(wr_id)};
}

mlx5::completion from_verbs_send(const ibv_wc& from) noexcept {
    const send_id id = parse_send_id(from.wr_id);
    mlx5::completion out;
    out.queue_pair = from.qp_num;
    out.kind = mlx5::entry_kind::request;
    out.operation = id.operation;
    out.counter = id.counter;
    out.length = id.serial;
    return out;
}

mlx5::completion from_verbs_receive(const ibv_wc& from) noexcept {
    mlx5::completion out;
    out.queue_pair = from.qp_num;
    const bool write = from.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    const bool immediate = write || (from.wc_flags & IBV_WC_WITH_IMM) != 0;
    out.kind = write       ? mlx5::entry_kind::write_immediate
               : immediate ? mlx5::entry_kind::receive_immediate
                           : mlx5::entry_kind::receive;
    if (immediate) out.immediate = mlx5::be32{from.imm_data};
    out.length = from.byte_len;
    return out;
}

[[gnu::noinline]] mlx5::completion failed_from_verbs(const ibv_wc& from) noexcept {
    const bool sent = from.wr_id != 0;
    mlx5::completion out = sent ? from_verbs_send(from) : mlx5::completion{};
    out.queue_pair = from.qp_num;
    out.kind = sent ? mlx5::entry_kind::request_error : mlx5::entry_kind::receive_error;
    out.failure = syndrome_of(from.status);
    out.vendor_syndrome = static_cast<std::uint8_t>(from.vendor_err);
    return out;
}

ibv_wr_opcode to_verbs(mlx5::opcode operation) noexcept {
    switch (operation) {
        case mlx5::opcode::write_immediate:
            return IBV_WR_RDMA_WRITE_WITH_IMM;
        case mlx5::opcode::read:
            return IBV_WR_RDMA_READ;
        case mlx5::opcode::send:
            return IBV_WR_SEND;
        case mlx5::opcode::send_immediate:
            return IBV_WR_SEND_WITH_IMM;
        default:
            return IBV_WR_RDMA_WRITE;
    }
}

unsigned flags_of(const mlx5::work_request& request) noexcept {
    unsigned out = request.carries_bytes ? IBV_SEND_INLINE : 0;
    if ((request.flags & mlx5::flag_signalled) != 0) out |= IBV_SEND_SIGNALED;
    if ((request.flags & mlx5::flag_solicited) != 0) out |= IBV_SEND_SOLICITED;
    if ((request.flags & mlx5::flag_fence) != 0) out |= IBV_SEND_FENCE;
    return out;
}

/// Work requests for libibverbs, one behind the other, and their ranges.
struct verbs_chain {
    std::array<ibv_send_wr, max_posted_at_once> requests;
    std::array<ibv_sge, max_posted_at_once * queue_pair::max_ranges> ranges;

    void put(std::size_t place, const mlx5::work_request& from, std::uint64_t id) noexcept {
        ibv_sge* const first = &ranges[place * queue_pair::max_ranges];
        ibv_send_wr& to = requests[place];
        to = {};
        to.wr_id = id;
        to.sg_list = first;
        to.opcode = to_verbs(from.operation);
        to.send_flags = flags_of(from);
        to.imm_data = static_cast<std::uint32_t>(from.immediate);
        to.wr.rdma.remote_addr = from.remote_address;
        to.wr.rdma.rkey = from.remote_key;
        for (std::uint32_t i = 0; i < from.ranges; ++i) {
            const mlx5::local_range& range = from.first[i];
            if (range.length != 0) first[to.num_sge++] = {range.address, range.length, range.key};
        }
        if (place > 0) requests[place - 1].next = &to;
    }
};

}  // namespace

/// In a failed completion libibverbs sets the id, the status, the queue pair and the vendor's error only.
/// Sends have an id, receives have none.
mlx5::completion from_verbs(const ibv_wc& from) noexcept {
    if (from.status != IBV_WC_SUCCESS) [[unlikely]]
        return failed_from_verbs(from);
    return from.wr_id != 0 ? from_verbs_send(from) : from_verbs_receive(from);
}

// Receive queues.

result<std::unique_ptr<receive_queue>> receive_queue::create(const std::shared_ptr<device>& on, std::uint32_t depth) {
    auto owner = domain::create(on);
    if (!owner) return owner.error();
    ibv_srq_init_attr wanted{};
    wanted.attr.max_wr = std::min<std::uint32_t>(depth, static_cast<std::uint32_t>(on->limits().max_srq_wr));
    wanted.attr.max_sge = 1;
    srq_handle srq(ibv_create_srq((*owner)->get(), &wanted));
    if (!srq) return verb_failed("cannot make a shared receive queue", errno);
    std::uint32_t got = std::min(depth, wanted.attr.max_wr);
    mlx5::shared_receive_queue_ref direct;
    if (on->driver() != nullptr) {
        auto located = on->driver()->locate(*srq);
        if (!located) return located.error();
        direct = *located;
        got = std::min(got, mlx5::write_empty_receives(direct));
    }
    return std::unique_ptr<receive_queue>(new receive_queue(std::move(*owner), std::move(srq), got, direct));
}

std::uint32_t receive_queue::post_by_verbs(std::uint32_t count, empty_receives& chain) noexcept {
    return chain.post(count, [this](ibv_recv_wr* first, ibv_recv_wr** failed) {
        return ibv_post_srq_recv(srq_.get(), first, failed);
    });
}

// Completion queues.

result<std::unique_ptr<completion_queue>> completion_queue::create(std::shared_ptr<device> on, std::uint32_t depth,
                                                                   async_listener* listener) {
    channel_handle channel(ibv_create_comp_channel(&on->context()));
    if (!channel) return verb_failed("cannot make a completion channel", errno);
    ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    const int entries =
        static_cast<int>(std::min<std::uint32_t>(depth, static_cast<std::uint32_t>(on->limits().max_cqe)));
    cq_handle cq(ibv_create_cq(&on->context(), entries, listener, channel.get(), 0));
    if (!cq) return verb_failed("cannot make a completion queue", errno);
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

/// False: nothing that such a queue ever holds.
[[gnu::noinline]] bool completion_queue::is_known(mlx5::entry_kind kind) noexcept {
    switch (kind) {
        case mlx5::entry_kind::request_error:
        case mlx5::entry_kind::receive_error:
        case mlx5::entry_kind::receive:
        case mlx5::entry_kind::receive_immediate:
        case mlx5::entry_kind::receive_invalidate:
            return true;
        default:
            return false;
    }
}

[[gnu::noinline]] int completion_queue::poll_by_verbs(std::span<mlx5::completion> out) noexcept {
    std::array<ibv_wc, 32> some;
    const std::size_t most = std::min(out.size(), some.size());
    const int got = ibv_poll_cq(cq_.get(), static_cast<int>(most), some.data());
    for (std::size_t i = 0; std::cmp_less(i, got); ++i) out[i] = from_verbs(some[i]);
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

// Queue pairs, but for the usual request.

queue_pair::queue_pair(std::shared_ptr<device> on, qp_handle handle, const queue_sizes& sizes, std::uint32_t first_psn)
    : device_(std::move(on)),
      handle_(std::move(handle)),
      sizes_(sizes),
      first_psn_(first_psn),
      serial_(next_serial.fetch_add(1, std::memory_order_relaxed)),
      posting_(std::make_unique<posting>()) {
    posting_->credits = send_queue_credits(sizes.send, sizes.send / 2);
    posting_->usual.sg_list = &posting_->usual_range;
    posting_->usual.num_sge = 1;
    posting_->usual.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    posting_->usual_id = to_wr_id({serial_, mlx5::opcode::write_immediate, 0});
}

/// Requests are written one behind the other; one doorbell tells of all.
[[gnu::noinline]] std::uint32_t queue_pair::append_directly(std::span<const mlx5::work_request> requests) noexcept {
    const mlx5::send_queue_ref& queue = posting_->at.sends;
    std::uint32_t accepted = 0;
    for (const mlx5::work_request& each : requests) {
        const mlx5::request_size size = mlx5::size_of(each);
        const bool fits = each.ranges <= sizes_.ranges && size.ds <= mlx5::max_ds;
        std::uint32_t last = 0;
        if (!fits || mlx5::reserve(queue, mlx5::wqebbs_of(size.ds), last) != status::ok) [[unlikely]]
            break;
        mlx5::fill(queue, last, each, size);
        posting_->credits.post(1, (each.flags & mlx5::flag_signalled) != 0);
        posting_->numbers[last & (queue.wqebbs - 1)] = posting_->credits.posted();
        posting_->last = last;
        ++accepted;
    }
    return accepted;
}

void queue_pair::ring_directly() noexcept {
    const mlx5::send_queue_ref& queue = posting_->at.sends;
    mlx5::publish(queue, queue.state->reserved);
    mlx5::ring(queue, posting_->last);
}

[[gnu::noinline]] std::uint32_t queue_pair::post_by_verbs(std::span<const mlx5::work_request> requests) noexcept {
    verbs_chain chain;
    const std::size_t count = std::min(requests.size(), max_posted_at_once);
    for (std::size_t i = 0; i < count; ++i) {
        const auto number = posting_->credits.number_of_last(static_cast<std::uint32_t>(i + 1));
        chain.put(i, requests[i], to_wr_id({serial_, requests[i].operation, static_cast<std::uint16_t>(number)}));
    }
    ibv_send_wr* failed = nullptr;
    std::size_t accepted = count;
    if (ibv_post_send(handle_.get(), chain.requests.data(), &failed) != 0)
        accepted = failed == nullptr ? 0 : static_cast<std::size_t>(failed - chain.requests.data());
    for (const mlx5::work_request& each : requests.first(accepted))
        posting_->credits.post(1, (each.flags & mlx5::flag_signalled) != 0);
    return static_cast<std::uint32_t>(accepted);
}

bool queue_pair::take_sent(const mlx5::completion& completion) noexcept {
    send_queue_credits& credits = posting_->credits;
    if (is_direct()) {
        const mlx5::send_queue_ref& queue = posting_->at.sends;
        const std::uint32_t number = posting_->numbers[completion.counter & (queue.wqebbs - 1)];
        if (!mlx5::release(queue, completion.counter)) return false;
        credits.complete(number);
        return true;
    }
    const auto distance =
        static_cast<std::uint16_t>(completion.counter - static_cast<std::uint16_t>(credits.completed()));
    if (!has_sent(completion) || distance == 0 || distance > credits.in_queue()) return false;
    credits.complete(credits.completed() + distance);
    return true;
}

std::uint32_t queue_pair::post_receives(std::uint32_t count, empty_receives& chain) noexcept {
    if (is_direct()) {
        mlx5::post_empty(posting_->at.receives, count);
        return count;
    }
    return chain.post(count, [this](ibv_recv_wr* first, ibv_recv_wr** failed) {
        return ibv_post_recv(handle_.get(), first, failed);
    });
}

}  // namespace accel::verbs
