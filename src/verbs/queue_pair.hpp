#pragma once

#include "verbs/completion_queue.hpp"
#include "verbs/device.hpp"
#include "verbs/endpoint.hpp"
#include "verbs/handles.hpp"
#include "verbs/mlx5_driver.hpp"
#include "verbs/receive_queue.hpp"
#include "verbs/work_completion.hpp"

#include <accel_transport/device/detail/mlx5/receive_queue.hpp>
#include <accel_transport/device/detail/mlx5/send_queue.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace accel::verbs {

struct queue_sizes {
    std::uint32_t send = 1;          ///< work requests
    std::uint32_t receive = 0;       ///< work requests; 0 with a shared receive queue
    std::uint32_t inline_bytes = 0;  ///< a request may carry
};

/// A reliable connection (RC), posted to by libibverbs, or on a device that is driven directly where it lies.
/// Its peer may write where it has a key, and do nothing else.
/// Destroying it ends all access to memory, by either end, before the destructor returns.
class queue_pair {
  public:
    static constexpr std::uint32_t send_segments = 2;

    /// `receives` may be null. `listener` hears of asynchronous failures.
    [[nodiscard]] static result<queue_pair> create(const std::shared_ptr<device>& on, ibv_pd* domain,
                                                   ibv_cq* completions, ibv_srq* receives,
                                                   const queue_sizes& sizes, async_listener* listener);

    /// Fills in what is the queue pair's own: address, number, first PSN (random).
    void describe(endpoint& out) const noexcept;
    /// Brings it up to its peer: INIT → RTR → RTS. Once, or once after each `reset`.
    [[nodiscard]] result<void> connect(const endpoint& peer, const verbs_options& options);

    /// Ends all access to memory, by either end, before it returns; then `connect` may be called again.
    [[nodiscard]] result<void> reset();

    [[nodiscard]] std::uint32_t number() const noexcept { return handle_->qp_num; }
    /// Where the queues lie, for others to post to; null where libibverbs posts.
    [[nodiscard]] const mlx5_queue_pair* located() const noexcept {
        return direct_ == nullptr ? nullptr : &direct_->at;
    }
    [[nodiscard]] ibv_qp* get() const noexcept { return handle_.get(); }
    [[nodiscard]] const queue_sizes& sizes() const noexcept { return sizes_; }
    /// All or, with the errno returned, those before `*failed`. No allocation, lock or system call but what
    /// the device's driver makes.
    [[nodiscard]] int post(ibv_send_wr* chain, ibv_send_wr** failed) noexcept {
        return direct_ != nullptr ? post_directly(chain, failed)
                                  : ibv_post_send(handle_.get(), chain, failed);
    }
    /// Posts `count` receives, of which no more are out than were asked for; returns how many were accepted.
    [[nodiscard]] std::uint32_t post_receives(std::uint32_t count, empty_receives& chain) noexcept;
    /// The id of the work request that has been sent, and with it all before it. False: there is none such.
    [[nodiscard]] bool take_sent(const work_completion& completion, std::uint64_t& id) noexcept {
        id = completion.id;
        return direct_ == nullptr || take_sent_directly(completion, id);
    }

  private:
    /// What is needed beside the queues themselves to drive them.
    struct direct_queues {
        mlx5_queue_pair at;
        mlx5::send_queue_state state;
        std::vector<std::uint64_t> ids;  ///< of work requests, by their first block
    };
    queue_pair(std::shared_ptr<device> on, qp_handle handle, const queue_sizes& sizes,
               std::uint32_t first_psn) noexcept
        : device_(std::move(on)), handle_(std::move(handle)), sizes_(sizes), first_psn_(first_psn) {}
    [[nodiscard]] result<void> drive_directly();
    [[nodiscard]] int post_directly(ibv_send_wr* chain, ibv_send_wr** failed) noexcept;
    [[nodiscard]] int post_chain(ibv_send_wr* chain, ibv_send_wr** failed) noexcept;
    [[nodiscard]] bool take_sent_directly(const work_completion& completion, std::uint64_t& id) noexcept;
    [[nodiscard]] result<void> check_peer(const endpoint& peer) const;
    [[nodiscard]] result<void> to_init();
    [[nodiscard]] result<void> to_ready_to_receive(const endpoint& peer);
    [[nodiscard]] result<void> to_ready_to_send(const verbs_options& options);

    std::shared_ptr<device> device_;
    qp_handle handle_;
    queue_sizes sizes_;
    std::uint32_t first_psn_;
    std::unique_ptr<direct_queues> direct_;  ///< null: libibverbs posts
};

/// The exponent e of the acknowledgement timeout 4.096 µs · 2^e (InfiniBand specification, section 9.7.6.1.3)
/// that is nearest to, and not below, `timeout`; 1 to 31.
[[nodiscard]] std::uint8_t timeout_exponent(std::chrono::nanoseconds timeout) noexcept;

}  // namespace accel::verbs
