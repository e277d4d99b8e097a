// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "verbs/connected_queue.hpp"
#include "verbs/device.hpp"
#include "verbs/domain.hpp"
#include "verbs/endpoint.hpp"
#include "verbs/handles.hpp"
#include "verbs/mlx5_driver.hpp"

#include <accel_transport/detail/mlx5/completion_queue.hpp>
#include <accel_transport/detail/mlx5/receive_queue.hpp>
#include <accel_transport/detail/mlx5/send_queue.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

/// The queues of an RDMA device. Work requests are `mlx5::work_request`, completions `mlx5::completion`, and failures
/// `mlx5::syndrome`, whichever way they take: an mlx5 device is driven directly, any other by libibverbs. The third
/// way, the ring to the proxy (device/detail/proxy/queue.hpp), carries the same work requests and completions.
namespace accel::verbs {

/// Room in a send queue, in work requests. Most are posted unsignalled. A completion also completes all requests before
/// it (InfiniBand specification, section 10.8.5). One is signalled often enough that the queue never fills with
/// unsignalled requests, and no more often: each completion costs its receiver a look, and wakes it if it sleeps.
class send_queue_credits {
  public:
    /// `reserve` requests, but at most three quarters of the queue, find room without a completion that was
    /// not asked for. No batch is longer than that.
    send_queue_credits(std::uint32_t depth, std::uint32_t reserve) noexcept
        : depth_(depth), signal_interval_(std::max({depth - std::min(reserve, depth), depth / 4, 1U})) {}

    [[nodiscard]] std::uint32_t room() const noexcept { return depth_ - in_queue(); }
    [[nodiscard]] bool has_room(std::uint32_t count) const noexcept { return depth_ - in_queue() >= count; }
    /// How many requests from one that is signalled to the next.
    [[nodiscard]] std::uint32_t signal_interval() const noexcept { return signal_interval_; }
    /// Posted since the last that was signalled.
    [[nodiscard]] std::uint32_t unsignalled() const noexcept { return posted_ - signalled_; }
    /// True if the last of the next `count` requests has to be signalled.
    [[nodiscard]] bool signal_due(std::uint32_t count) const noexcept {
        return unsignalled() + count >= signal_interval_;
    }
    /// The number of the last of the next `count` requests; what its completion hands to `complete`.
    [[nodiscard]] std::uint32_t number_of_last(std::uint32_t count) const noexcept { return posted_ + count; }
    void post(std::uint32_t count, bool signalled) noexcept {
        posted_ += count;
        if (signalled) signalled_ = posted_;
    }
    /// All requests up to `number` have completed.
    void complete(std::uint32_t number) noexcept { completed_ = number; }

    [[nodiscard]] std::uint32_t posted() const noexcept { return posted_; }
    [[nodiscard]] std::uint32_t completed() const noexcept { return completed_; }
    [[nodiscard]] std::uint32_t in_queue() const noexcept { return posted_ - completed_; }
    [[nodiscard]] bool idle() const noexcept { return posted_ == completed_; }
    /// Everything posted is covered by a signalled request.
    [[nodiscard]] bool all_signalled() const noexcept { return signalled_ == posted_; }

  private:
    std::uint32_t depth_;
    std::uint32_t signal_interval_;
    // Free-running counters, compared by difference.
    std::uint32_t posted_ = 0;
    std::uint32_t signalled_ = 0;
    std::uint32_t completed_ = 0;
};

/// A chain of receive requests without memory: what takes the immediate data of writes.
/// Posting it costs one call for as many as are missing.
class empty_receives {
  public:
    static constexpr std::uint32_t longest = 64;

    empty_receives() noexcept {
        for (std::uint32_t i = 0; i + 1 < longest; ++i) chain_[i].next = &chain_[i + 1];
    }
    empty_receives(const empty_receives&) = delete;
    empty_receives& operator=(const empty_receives&) = delete;

    /// Posts `count`, through `post(ibv_recv_wr*, ibv_recv_wr**)`; returns how many were accepted.
    template <class Post>
    std::uint32_t post(std::uint32_t count, Post&& post) noexcept {
        std::uint32_t posted = 0;
        while (posted < count) {
            const std::uint32_t now = count - posted < longest ? count - posted : longest;
            ibv_recv_wr& last = chain_[now - 1];
            ibv_recv_wr* const next = last.next;
            last.next = nullptr;
            ibv_recv_wr* failed = nullptr;
            const int error = post(chain_.data(), &failed);
            last.next = next;
            if (error != 0) return posted + (failed == nullptr ? 0 : index_of(failed));
            posted += now;
        }
        return posted;
    }

  private:
    [[nodiscard]] std::uint32_t index_of(const ibv_recv_wr* which) const noexcept {
        return static_cast<std::uint32_t>(which - chain_.data());
    }
    std::array<ibv_recv_wr, longest> chain_{};
};

/// How many receives were used up; they are posted anew when there are enough.
struct receive_use {
    std::uint32_t missing = 0;
    std::uint32_t at_once = 1;

    /// True: it is time to post.
    [[nodiscard]] bool one_more() noexcept { return ++missing >= at_once; }
};

/// The completion is of a receive, well or not.
[[nodiscard]] inline bool is_receive(const mlx5::completion& completion) noexcept {
    return completion.kind != mlx5::entry_kind::request && completion.kind != mlx5::entry_kind::request_error;
}
[[nodiscard]] inline bool has_failed(const mlx5::completion& completion) noexcept {
    return completion.kind == mlx5::entry_kind::request_error || completion.kind == mlx5::entry_kind::receive_error;
}

/// A completion that libibverbs has read.
[[nodiscard]] mlx5::completion from_verbs(const ibv_wc& from) noexcept;

/// A shared receive queue of empty receives: one for all sessions of a worker, so that a session costs none.
class receive_queue {
  public:
    [[nodiscard]] static result<std::unique_ptr<receive_queue>> create(const std::shared_ptr<device>& on,
                                                                       std::uint32_t depth);
    [[nodiscard]] ibv_srq* get() const noexcept { return srq_.get(); }
    [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
    /// Where it lies and how far it has been posted, for others to go on; without a ring where libibverbs posts.
    [[nodiscard]] const mlx5::shared_receive_queue_ref& located() const noexcept { return direct_; }
    [[nodiscard]] bool is_direct() const noexcept { return direct_.ring != nullptr; }
    /// Posts `count`, of which no more than `depth` are out; returns how many were accepted. Where libibverbs
    /// posts, a refused receive means that the queue is full.
    [[nodiscard]] std::uint32_t post(std::uint32_t count, empty_receives& chain) noexcept {
        if (!is_direct()) return post_by_verbs(count, chain);
        mlx5::post_empty(direct_, count);
        return count;
    }
    /// A completion has used one up. Before it is posted anew.
    void take_back(const mlx5::completion& completion) noexcept {
        if (is_direct()) mlx5::take_back(direct_, completion.counter);
    }

  private:
    receive_queue(std::shared_ptr<domain> owner, srq_handle srq, std::uint32_t depth,
                  const mlx5::shared_receive_queue_ref& direct) noexcept
        : domain_(std::move(owner)), srq_(std::move(srq)), depth_(depth), direct_(direct) {}
    [[nodiscard]] std::uint32_t post_by_verbs(std::uint32_t count, empty_receives& chain) noexcept;

    std::shared_ptr<domain> domain_;
    srq_handle srq_;
    std::uint32_t depth_;
    mlx5::shared_receive_queue_ref direct_;  ///< without a ring: libibverbs posts
};

/// A completion queue with its completion channel. Belongs to one thread.
class completion_queue {
  public:
    /// `listener` hears of an overrun.
    [[nodiscard]] static result<std::unique_ptr<completion_queue>> create(std::shared_ptr<device> on,
                                                                          std::uint32_t depth,
                                                                          async_listener* listener);
    ~completion_queue();
    completion_queue(const completion_queue&) = delete;
    completion_queue& operator=(const completion_queue&) = delete;

    [[nodiscard]] std::uint32_t depth() const noexcept { return static_cast<std::uint32_t>(cq_->cqe); }

    /// How many completions it wrote; below 0 the queue has failed.
    [[nodiscard]] int poll(std::span<mlx5::completion> out) noexcept {
        return is_direct() ? poll_directly(out) : poll_by_verbs(out);
    }
    /// The same for one, which the caller may keep in registers.
    [[nodiscard]] int poll(mlx5::completion& out) noexcept;
    /// The queue pair has been destroyed: what it left is nobody's, also when its number comes again.
    void discard_completions(std::uint32_t queue_pair) noexcept {
        if (is_direct()) mlx5::discard_completions(direct_, queue_pair);
    }
    /// The next completion makes `event_fd` readable. Poll once more before sleeping: those that came before
    /// do not. False: the device refused.
    [[nodiscard]] bool request_event() noexcept {
        if (!is_direct()) return ibv_req_notify_cq(cq_.get(), 0) == 0;
        mlx5::arm(direct_);
        return true;
    }
    [[nodiscard]] int event_fd() const noexcept { return channel_->fd; }
    /// Takes one event; false: there is none.
    bool take_event() noexcept;
    /// Makes `event_fd` unreadable again.
    void take_events() noexcept {
        while (take_event()) continue;
    }

    [[nodiscard]] ibv_cq* get() const noexcept { return cq_.get(); }
    /// Where it lies, for others to take completions from; without entries where libibverbs reads it.
    [[nodiscard]] const mlx5::completion_queue_ref& located() const noexcept { return direct_; }

  private:
    completion_queue(std::shared_ptr<device> on, channel_handle channel, cq_handle cq,
                     const mlx5::completion_queue_ref& direct) noexcept;
    [[nodiscard]] bool is_direct() const noexcept { return direct_.entries != nullptr; }
    [[nodiscard]] int poll_directly(std::span<mlx5::completion> out) noexcept;
    [[nodiscard]] int poll_by_verbs(std::span<mlx5::completion> out) noexcept;
    [[nodiscard]] int poll_by_verbs(mlx5::completion& out) noexcept;
    [[nodiscard]] static bool is_usual(const mlx5::completion& completion) noexcept {
        return completion.kind == mlx5::entry_kind::request || completion.kind == mlx5::entry_kind::write_immediate;
    }
    [[nodiscard]] static bool is_known(mlx5::entry_kind kind) noexcept;

    std::shared_ptr<device> device_;
    channel_handle channel_;
    cq_handle cq_;
    mlx5::completion_queue_state state_;
    mlx5::completion_queue_ref direct_;  ///< without entries: libibverbs reads the queue
    unsigned unacknowledged_ = 0;
};

inline int completion_queue::poll_directly(std::span<mlx5::completion> out) noexcept {
    int count = 0;
    for (mlx5::completion& each : out) {
        if (!mlx5::take(direct_, each)) break;
        if (!is_usual(each) && !is_known(each.kind)) [[unlikely]]
            return -1;
        ++count;
    }
    if (count > 0) mlx5::publish_taken(direct_);
    return count;
}

[[gnu::always_inline]] inline int completion_queue::poll(mlx5::completion& out) noexcept {
    if (!is_direct()) return poll_by_verbs(out);
    if (!mlx5::take(direct_, out)) return 0;
    if (!is_usual(out) && !is_known(out.kind)) [[unlikely]]
        return -1;
    mlx5::publish_taken(direct_);
    return 1;
}

/// As `from_verbs` of queues.cpp, which knows all completions.
[[gnu::always_inline]] inline int completion_queue::poll_by_verbs(mlx5::completion& out) noexcept {
    ibv_wc taken;  // NOLINT(cppcoreguidelines-pro-type-member-init): libibverbs writes it
    const int got = ibv_poll_cq(cq_.get(), 1, &taken);
    if (got <= 0) return got;
    const bool message = taken.status == IBV_WC_SUCCESS && taken.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    if (!message || taken.wr_id != 0) [[unlikely]] {
        out = from_verbs(taken);
        return got;
    }
    out.queue_pair = taken.qp_num;
    out.kind = mlx5::entry_kind::write_immediate;
    out.immediate = mlx5::be32{taken.imm_data};
    return got;
}

struct queue_sizes {
    std::uint32_t send = 1;          ///< work requests
    std::uint32_t receive = 0;       ///< work requests; 0 with a shared receive queue
    std::uint32_t inline_bytes = 0;  ///< a request may carry
    std::uint32_t ranges = 2;        ///< of a request; at most `queue_pair::max_ranges`
};

/// A reliable connection that libibverbs has made. Its peer may write where it has a key, and do nothing else. One
/// thread at a time posts and takes completions.
class queue_pair final : public connected_queue {
  public:
    /// For one work request. On mlx5 its place takes no more room than one that carries 128 bytes.
    static constexpr std::uint32_t max_ranges = 10;

    /// `receives` may be null. `listener` hears of asynchronous failures.
    [[nodiscard]] static result<queue_pair> create(const std::shared_ptr<device>& on, ibv_pd* domain,
                                                   ibv_cq* completions, ibv_srq* receives, const queue_sizes& sizes,
                                                   async_listener* listener);

    void describe(endpoint& out) const noexcept override;
    [[nodiscard]] result<void> connect(const endpoint& peer, const verbs_options& options) override;
    [[nodiscard]] result<void> reset() override;
    [[nodiscard]] std::uint32_t number() const noexcept override { return handle_->qp_num; }
    /// Where the queues lie, for others to post to; null where libibverbs posts.
    [[nodiscard]] const mlx5_queue_pair* located() const noexcept { return is_direct() ? &posting_->at : nullptr; }
    [[nodiscard]] ibv_qp* get() const noexcept { return handle_.get(); }
    [[nodiscard]] const queue_sizes& sizes() const noexcept { return sizes_; }

    /// Before the first request: room for `depth`, which is no more than there is.
    void limit_sends(std::uint32_t depth, std::uint32_t reserve) noexcept {
        posting_->credits = send_queue_credits(depth, reserve);
    }
    [[nodiscard]] const send_queue_credits& credits() const noexcept { return posting_->credits; }
    /// Posts a write with immediate data of one range, as most messages are. There is room for it
    /// (`credits`). Any failure means that the queue pair is of no more use. No allocation, lock or system
    /// call but what the device's driver makes.
    [[nodiscard]] status post_message(const mlx5::work_request& request) noexcept;
    /// The same for any requests of at most `max_ranges` each, with one doorbell. Returns how many were accepted.
    [[nodiscard]] std::uint32_t post(std::span<const mlx5::work_request> requests) noexcept {
        const std::uint32_t accepted = append(requests);
        if (accepted > 0) ring();
        return accepted;
    }
    /// The same in two steps, so that one doorbell tells of any number of batches. libibverbs rings for each by itself.
    /// At most `max_at_once`.
    [[nodiscard]] std::uint32_t append(std::span<const mlx5::work_request> requests) noexcept {
        return is_direct() ? append_directly(requests) : post_by_verbs(requests);
    }
    void ring() noexcept {
        if (is_direct()) ring_directly();
    }
    static constexpr std::size_t max_at_once = 64;
    /// The send has completed, and with it all before it. False: none of this queue pair's has that completion.
    [[nodiscard]] bool take_sent(const mlx5::completion& completion) noexcept;
    /// False: an earlier queue pair of the same number has left the completion of a send behind.
    [[nodiscard]] bool has_sent(const mlx5::completion& completion) const noexcept {
        return is_direct() || completion.length == serial_;
    }
    /// Posts `count` receives, of which no more are out than were asked for; returns how many were accepted.
    [[nodiscard]] std::uint32_t post_receives(std::uint32_t count, empty_receives& chain) noexcept;

  private:
    /// The state of posting beside libibverbs' object. Its place does not change.
    struct posting {
        mlx5_queue_pair at;  ///< without a ring: libibverbs posts
        mlx5::send_queue_state state;
        std::vector<std::uint32_t> numbers;  ///< of requests, by their first WQEBB
        std::uint32_t last = 0;              ///< WQEBB of the last one appended
        send_queue_credits credits{1, 1};
        /// A write with immediate data of one range. What is the same in each is written once.
        ibv_sge usual_range{};
        ibv_send_wr usual{};
        std::uint64_t usual_id = 0;  ///< without its counter
    };
    queue_pair(std::shared_ptr<device> on, qp_handle handle, const queue_sizes& sizes, std::uint32_t first_psn);
    [[nodiscard]] bool is_direct() const noexcept { return posting_->at.sends.ring != nullptr; }
    [[nodiscard]] result<void> drive_directly();
    [[nodiscard]] std::uint32_t append_directly(std::span<const mlx5::work_request> requests) noexcept;
    void ring_directly() noexcept;
    [[nodiscard]] std::uint32_t post_by_verbs(std::span<const mlx5::work_request> requests) noexcept;
    [[nodiscard]] status post_message_by_verbs(const mlx5::work_request& request) noexcept;
    [[nodiscard]] result<void> to_init();
    [[nodiscard]] result<void> to_ready_to_receive(const endpoint& peer);
    [[nodiscard]] result<void> to_ready_to_send(const verbs_options& options);

    std::shared_ptr<device> device_;
    qp_handle handle_;
    queue_sizes sizes_;
    std::uint32_t first_psn_;
    std::uint32_t serial_;  ///< of this process; in `completion::length` of a send by libibverbs
    std::unique_ptr<posting> posting_;
};

[[gnu::always_inline]] inline status queue_pair::post_message(const mlx5::work_request& request) noexcept {
    if (!is_direct()) return post_message_by_verbs(request);
    const mlx5::send_queue_ref& queue = posting_->at.sends;
    const std::uint32_t wqebb = queue.state->reserved & (queue.wqebbs - 1);
    if (const status posted = mlx5::post(queue, request); posted != status::ok) [[unlikely]]
        return posted;
    posting_->credits.post(1, (request.flags & mlx5::flag_signalled) != 0);
    posting_->numbers[wqebb] = posting_->credits.posted();
    return status::ok;
}

[[gnu::always_inline]] inline status queue_pair::post_message_by_verbs(const mlx5::work_request& request) noexcept {
    posting& with = *posting_;
    const bool signalled = (request.flags & mlx5::flag_signalled) != 0;
    with.usual_range = {request.first->address, request.first->length, request.first->key};
    with.usual.wr_id = with.usual_id | static_cast<std::uint16_t>(with.credits.number_of_last(1));
    with.usual.send_flags = request.carries_bytes ? IBV_SEND_INLINE : 0;
    if (signalled) with.usual.send_flags |= IBV_SEND_SIGNALED;
    with.usual.imm_data = static_cast<std::uint32_t>(request.immediate);
    with.usual.wr.rdma.remote_addr = request.remote_address;
    with.usual.wr.rdma.rkey = request.remote_key;
    ibv_send_wr* failed = nullptr;
    if (ibv_post_send(handle_.get(), &with.usual, &failed) != 0) [[unlikely]]
        return status::again;
    with.credits.post(1, signalled);
    return status::ok;
}

}  // namespace accel::verbs
