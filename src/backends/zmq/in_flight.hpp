// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/event_signal.hpp"
#include "core/slot_memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#define ACCEL_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ACCEL_THREAD_SANITIZER
#endif
#endif
#if defined(ACCEL_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace accel::zmq {

// ThreadSanitizer cannot see the locks with which ZeroMQ hands a message from our thread to its own. These
// calls tell it.
inline void hand_over([[maybe_unused]] void* what) noexcept {
#if defined(ACCEL_THREAD_SANITIZER)
    __tsan_release(what);
#endif
}
inline void take_over([[maybe_unused]] void* what) noexcept {
#if defined(ACCEL_THREAD_SANITIZER)
    __tsan_acquire(what);
#endif
}

class in_flight;

/// The memory of one slot that ZeroMQ holds: frames of its last message, and its lent payload.
struct lent_payload {
    enum class state : std::uint8_t {
        idle,
        held,    ///< ZeroMQ may touch it
        wanted,  ///< as held, and the poller wants to know when that ends
        queued,  ///< released, and the poller has not yet seen it
    };
    std::atomic<state> now{state::idle};
    std::atomic<std::uint32_t> frames{0};  ///< not yet released by ZeroMQ; 0: the slot may send again
    std::uint32_t slot = 0;
    in_flight* owner = nullptr;
    void* link = nullptr;
    lent_payload* next = nullptr;
};

/// How ZeroMQ's threads tell a poller what they have released: a list, and a descriptor to wake it.
/// Lock-free. What is on it stays alive until `in_flight::settle`.
class release_list {
  public:
    /// Any thread.
    void push(lent_payload& returned) noexcept;
    // The poller's thread:
    [[nodiscard]] bool empty() const noexcept {
        return waiting_ == nullptr && head_.load(std::memory_order_seq_cst) == nullptr;
    }
    /// One that was returned, to be settled; null if none.
    [[nodiscard]] lent_payload* next() noexcept;
    /// Settles payloads of links that have gone.
    void settle_forgotten() noexcept;
    /// From now on `push` makes the descriptor readable.
    void arm() noexcept { armed_.store(true, std::memory_order_seq_cst); }
    [[nodiscard]] bool armed() const noexcept { return armed_.load(std::memory_order_relaxed); }
    void disarm() noexcept;
    void wake() noexcept;
    [[nodiscard]] int fd() const noexcept { return signal_.fd(); }
    /// Why it has no descriptor, as errno.
    [[nodiscard]] int failure() const noexcept { return signal_.failure(); }
    /// One more will come.
    void expect() noexcept { ++expected_; }
    /// How many are still to come or to be taken.
    [[nodiscard]] std::size_t expected() const noexcept { return expected_; }
    /// Nobody will look at the list any more.
    void close() noexcept;

  private:
    void settle_all() noexcept;

    lent_payload* waiting_ = nullptr;  ///< taken off the list, not yet handed out
    std::size_t expected_ = 0;
    std::atomic<bool> closed_{false};
    std::atomic<lent_payload*> head_{nullptr};
    std::atomic<bool> armed_{false};
    std::atomic<bool> signalled_{false};
    core::wake_signal signal_;
};

/// Counts, for each slot of a link, the frames that ZeroMQ has not released, and keeps the slots alive until
/// then, even if the link has gone. Held by the link and by each such frame; destroys itself with the last.
class in_flight {
  public:
    /// For `free` of zmq_msg_init_data: of a frame in a slot, or of a lent payload. The hint is its
    /// `lent_payload`.
    static void free_slot(void* data, void* hint);
    static void free_lent(void* data, void* hint);

    struct link_share {
        void operator()(in_flight* frames) const noexcept { frames->leave(); }
    };
    using owner = std::unique_ptr<in_flight, link_share>;
    [[nodiscard]] static owner make(std::uint32_t slots, std::shared_ptr<core::slot_memory> memory,
                                    std::shared_ptr<release_list> list, void* link);

    // The poller's thread:
    /// One more frame of this slot is about to be ZeroMQ's.
    void enter(lent_payload& slot) noexcept {
        holders_.fetch_add(1, std::memory_order_relaxed);
        slot.frames.fetch_add(1, std::memory_order_relaxed);
    }
    [[nodiscard]] bool idle() const noexcept { return holders_.load(std::memory_order_acquire) == 1; }
    [[nodiscard]] lent_payload& lent(std::uint32_t slot) noexcept { return lent_[slot]; }
    [[nodiscard]] release_list& list() noexcept { return *list_; }
    /// True: ZeroMQ has released it already. False: `list` will say when.
    [[nodiscard]] bool want(std::uint32_t slot) noexcept;
    /// After taking a payload off the list.
    static void settle(lent_payload& returned) noexcept;
    /// The link is gone: nobody waits for releases any more.
    void forget() noexcept;
    [[nodiscard]] bool forgotten() const noexcept { return forgotten_; }

  private:
    in_flight(std::uint32_t slots, std::shared_ptr<core::slot_memory> memory, std::shared_ptr<release_list> list,
              void* link);
    ~in_flight() = default;
    void leave() noexcept;
    /// For a frame; the last thing that is done with it.
    static void leave(lent_payload& slot) noexcept;

    std::atomic<std::uint64_t> holders_{1};
    std::shared_ptr<core::slot_memory> memory_;
    std::shared_ptr<release_list> list_;
    std::vector<lent_payload> lent_;
    bool forgotten_ = false;  ///< of the poller's thread
};

}  // namespace accel::zmq
