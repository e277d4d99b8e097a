#pragma once

#include "verbs/device.hpp"
#include "verbs/domain.hpp"
#include "verbs/handles.hpp"
#include "verbs/work_completion.hpp"

#include <accel_transport/device/detail/mlx5/receive_queue.hpp>
#include <accel_transport/status.hpp>

#include <array>
#include <cstdint>
#include <memory>

namespace accel::verbs {

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

/// A shared receive queue of empty receives: one for all sessions of a worker, so that a session costs none.
/// Posted by libibverbs, or on a device that is driven directly where it lies.
class receive_queue {
  public:
    [[nodiscard]] static result<std::unique_ptr<receive_queue>> create(const std::shared_ptr<device>& on,
                                                                       std::uint32_t depth);
    [[nodiscard]] ibv_srq* get() const noexcept { return srq_.get(); }
    [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
    /// Where it lies and how far it has been posted, for others to go on; without a ring where libibverbs
    /// posts.
    [[nodiscard]] const mlx5::shared_receive_queue_ref& located() const noexcept { return direct_; }
    /// Posted where it lies, and not by libibverbs.
    [[nodiscard]] bool is_direct() const noexcept { return direct_.ring != nullptr; }
    /// Posts `count`, of which no more than `depth` are out; returns how many were accepted.
    [[nodiscard]] std::uint32_t post(std::uint32_t count, empty_receives& chain) noexcept {
        if (!is_direct()) return post_by_verbs(count, chain);
        mlx5::post_empty(direct_, count);
        return count;
    }
    /// A completion has used one up. Before it is posted anew.
    void take_back(const work_completion& completion) noexcept {
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

}  // namespace accel::verbs
