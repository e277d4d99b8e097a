// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/event_signal.hpp"
#include "kernels/proxy/proxy_thread.hpp"
#include "verbs/device.hpp"
#include "verbs/queues.hpp"

#include <accel_transport/device/detail/proxy/queue.hpp>
#include <accel_transport/status.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include <sys/types.h>

namespace accel::gpu {

struct proxy_options {
    /// False: a peer that announces something breaks the protocol, and is told of once, as failed.
    bool arrivals = true;
    std::uint32_t receives = 1024;  ///< of the shared receive queue
    std::uint32_t sends = 8192;     ///< work requests of all queue pairs together
    std::uint32_t batch = 32;       ///< descriptors of one ring before the next ring is served; 1 … 64
    /// Descriptors of all rings in one round, before other services of the thread are served.
    std::uint32_t round = std::numeric_limits<std::uint32_t>::max();
    proxy_pace pace{};  ///< of a thread of its own
};

/// Memory of the completion ring: the caller's, pinned if a GPU takes from it, and longer-lived than the
/// engine. A power of two of entries.
struct proxy_completion_ring {
    std::span<proxy::completion_entry> entries;
    std::uint32_t* consumed = nullptr;
    std::uint32_t first = 0;  ///< number of the first completion
};
/// Memory of one queue pair's send ring: likewise, until the queue pair has been removed.
struct proxy_send_ring {
    std::span<proxy::send_descriptor> descriptors;
    std::uint32_t* released = nullptr;
    std::uint32_t first = 0;  ///< number of the first descriptor
    /// Its name in descriptors and completions, 24 bits; nothing: the queue pair's number.
    std::optional<std::uint32_t> name{};
    /// How answers travel (`proxy::post_answer`); null: there are none. Written before the first is posted.
    const proxy::answer_way* answers = nullptr;
};

/// Posts for GPUs that cannot: takes descriptors out of send rings, posts them by libibverbs on any device,
/// and tells of completions and arrivals through one ring, from which its queue pairs' room comes back too.
///
/// By one thread at a time: its own, or one that serves other engines too (`proxy_threads`). What arrives wakes it, but
/// no GPU can: what a kernel sends after a long silence waits up to `longest_nap`, and a silent engine costs as many
/// wake-ups a second as fit in that. Nothing is taken from the device for which the ring has no room.
class proxy_engine final : public verbs::async_listener, public served_rings {
  public:
    /// `on` is not driven directly: only then does libmlx5 drop what a queue pair that ends has left in the
    /// completion queue, before its number comes again.
    [[nodiscard]] static result<std::unique_ptr<proxy_engine>> create(std::shared_ptr<verbs::device> on,
                                                                      const proxy_completion_ring& ring,
                                                                      const proxy_options& options);
    /// Stops. Its queue pairs have ended before, and no other thread serves it.
    ~proxy_engine() override;
    proxy_engine(const proxy_engine&) = delete;
    proxy_engine& operator=(const proxy_engine&) = delete;

    /// With which queue pairs for `add` are made.
    [[nodiscard]] ibv_cq* completions() const noexcept { return completions_->get(); }
    [[nodiscard]] ibv_srq* receives() const noexcept { return receives_->get(); }

    /// From now on what is put into `ring`, which is cleared, goes out by `pair`, which nobody else has
    /// posted to and which stays where it is until `remove`. Any thread.
    [[nodiscard]] result<void> add(verbs::queue_pair& pair, const proxy_send_ring& ring);
    /// When it returns, nothing of the ring is posted or looked at any more, and completions that come for the queue
    /// pair are dropped; what the completion ring holds already is its taker's (`proxy::discard_completions`). Waits
    /// for one round. The queue pair ends before another is added. Any thread. False: the round did not end within
    /// `bound`, and none of this holds yet; call again.
    bool remove(const verbs::queue_pair& pair, core::nanoseconds bound = proxy_thread::max_round) noexcept;

    /// Calls `progress` on a thread of its own until `stop`, which waits for one round. False: a driver keeps the
    /// thread, and the engine has to stay where it is.
    [[nodiscard]] result<void> start();
    bool stop() noexcept;
    /// After `start`. When it returns, what had completed before is in the completion ring, if that has room, and what
    /// was in send rings has been posted. Any thread. False: a driver keeps the thread for longer than `bound`.
    bool catch_up(core::nanoseconds bound) noexcept;
    /// A thread that is stuck in a driver, and comes back after all, touches no ring any more. The engine stays for
    /// good.
    void abandon() noexcept { abandoned_.store(true, std::memory_order_release); }
    /// Takes what has completed, posts a batch of each ring. False: there was nothing to do. By one thread at
    /// a time, and by no other once started.
    bool progress() noexcept override;
    [[nodiscard]] bool fall_asleep() noexcept override;
    [[nodiscard]] int news_fd() const noexcept override { return wake_.fd(); }
    void wake_up(bool news, bool events) noexcept override;
    /// The completion queue or the device has failed: it does nothing more. For the thread that calls
    /// `progress`.
    [[nodiscard]] bool has_failed() const noexcept { return lost_; }

    // Instead of `start`, for a thread that calls `progress` and sleeps.
    /// Readable when something has completed, provided that `arm` said true and the `progress` after it did nothing.
    [[nodiscard]] int event_fd() const noexcept override { return completions_->event_fd(); }
    [[nodiscard]] bool arm() noexcept {
        top_up();
        return completions_->request_event();
    }
    void disarm() noexcept { completions_->take_events(); }

    void on_async_event(ibv_event_type type) noexcept override;

    /// The room: receives, and work requests of all queue pairs that can be added.
    [[nodiscard]] std::uint32_t receive_depth() const noexcept { return receives_->depth(); }
    [[nodiscard]] std::uint32_t send_depth() const noexcept { return sends_; }
    /// The thread of `start`, once it runs; 0 before.
    [[nodiscard]] pid_t thread_id() const noexcept { return thread_ ? thread_->id() : 0; }

  private:
    static constexpr std::uint32_t max_batch = 64;
    /// So many are posted anew at once, or a quarter of all.
    static constexpr std::uint32_t receives_at_once = 32;

    /// One queue pair and its ring.
    struct sender {
        sender(verbs::queue_pair& of, const proxy_send_ring& ring);
        verbs::queue_pair* pair;  ///< its numbers start with 0, whatever the first descriptor's
        std::uint32_t number;
        std::uint32_t name;
        proxy_send_ring ring;
        std::uint32_t count;
        std::uint32_t next;           ///< the descriptor looked at next
        std::vector<bool> asked_for;  ///< by descriptor: its kernel wants to hear of it
        bool failed = false;          ///< nothing is posted any more
        std::optional<mlx5::completion> unreported;
    };

    proxy_engine(std::shared_ptr<verbs::device> on, const proxy_completion_ring& ring,
                 const proxy_options& options) noexcept;
    [[nodiscard]] result<void> make_queues();
    [[nodiscard]] result<void> check(const verbs::queue_pair& pair, const proxy_send_ring& ring) const;
    void wake() noexcept;
    [[nodiscard]] bool wait_for_round(core::nanoseconds bound) const noexcept;
    void take_commands() noexcept;
    [[nodiscard]] bool abandoned() const noexcept { return abandoned_.load(std::memory_order_acquire); }

    // The data path.
    [[nodiscard]] sender* find(std::uint32_t number) noexcept;
    [[nodiscard]] std::uint32_t room() const noexcept;
    [[nodiscard]] bool take_completions() noexcept;
    void take(const mlx5::completion& completion) noexcept;
    void take_sent(sender& from, const mlx5::completion& completion) noexcept;
    void take_received(sender& to, const mlx5::completion& completion) noexcept;
    void tell(const mlx5::completion& what) noexcept;
    [[nodiscard]] bool post_all() noexcept;
    [[nodiscard]] std::uint32_t post_some(sender& from, std::uint32_t most) noexcept;
    [[nodiscard]] proxy::refusal check(const sender& from, const proxy::request& what) const noexcept;
    void prepare(std::uint32_t place, const proxy::request& what) noexcept;
    void post_batch(sender& from, std::uint32_t count) noexcept;
    void fail(sender& which, proxy::refusal why, std::uint32_t number, std::uint8_t operation) noexcept;
    void fail_all() noexcept;
    void report_failures() noexcept;
    void refill(std::uint32_t receives) noexcept;
    void top_up() noexcept;

    std::shared_ptr<verbs::device> device_;
    proxy_completion_ring ring_;
    proxy_options options_;
    std::uint32_t ring_count_;
    core::wake_signal wake_;
    std::uint32_t sends_ = 0;
    std::unique_ptr<verbs::receive_queue> receives_;
    std::unique_ptr<verbs::completion_queue> completions_;
    verbs::empty_receives receive_chain_;
    verbs::receive_use use_{0, receives_at_once};

    // For the thread that calls `progress`.
    std::vector<std::unique_ptr<sender>> senders_;
    std::unordered_map<std::uint32_t, sender*> by_number_;
    std::size_t first_ = 0;         ///< the sender that is served first
    std::uint32_t reported_ = 0;    ///< completions, free-running
    std::uint32_t unreported_ = 0;  ///< failures for which there was no room yet
    bool lost_ = false;             ///< the completion queue or the device has failed
    bool armed_ = false;            ///< what completes next makes an event
    bool any_removed_ = false;      ///< … ever
    std::array<mlx5::completion, 32> fetched_{};
    std::array<mlx5::work_request, max_batch> requests_{};
    std::array<mlx5::local_range, max_batch> ranges_{};

    std::atomic<std::uint32_t> rounds_{0};  ///< odd: in one
    std::atomic<bool> commands_pending_{false};
    std::atomic<bool> abandoned_{false};
    std::mutex mutex_;  ///< of what follows; met only when a queue pair comes or goes
    std::vector<std::unique_ptr<sender>> added_;
    std::vector<std::uint32_t> removed_;
    std::unordered_map<std::uint32_t, std::uint32_t> shares_;  ///< of `sends`, by queue pair
    std::uint32_t sends_left_ = 0;
    bool device_failed_ = false;
    std::unique_ptr<proxy_thread> thread_;  ///< of `start`
};

}  // namespace accel::gpu
