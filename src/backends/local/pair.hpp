// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/event_signal.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace accel::local {

/// Wakes the thread that owns a poller. Shared by the poller and all who write to its links.
struct wakeup {
    /// After something was written: wakes the owner if it sleeps.
    void notify() noexcept {
        if (asleep.load(std::memory_order_seq_cst)) wake();
    }
    void wake() noexcept;

    alignas(64) std::atomic<bool> asleep{false};
    core::wake_signal signal;
};

using core::event_kind;

struct entry {
    event_kind kind = event_kind::arrived;
    bool lent = false;  ///< payload or room lies in memory that its owner waits for
    std::uint32_t slot = 0;
    std::span<std::byte> payload;
    std::span<std::byte> response_room;
};

/// A bounded queue from one thread to one other. Slots bound what can be in it, so it never overflows.
class ring {
  public:
    explicit ring(std::uint32_t slots);
    void push(event_kind kind, bool lent, std::uint32_t slot, std::span<std::byte> payload,
              std::span<std::byte> response_room) noexcept {
        const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
        entry& made = entries_[tail & mask_];
        made.kind = kind;
        made.lent = lent;
        made.slot = slot;
        made.payload = payload;
        made.response_room = response_room;
        tail_.store(tail + 1, std::memory_order_seq_cst);
    }
    /// The oldest entry, or null. It stays until `drop`.
    [[nodiscard]] const entry* front() const noexcept {
        const std::uint32_t head = head_.load(std::memory_order_relaxed);
        return head == tail_.load(std::memory_order_acquire) ? nullptr : &entries_[head & mask_];
    }
    void drop() noexcept { head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
    /// For the reader: read entries `first` to `last` with `at`, then `drop_until(last)`.
    struct range {
        std::uint32_t first;
        std::uint32_t last;
    };
    [[nodiscard]] range all() const noexcept {
        return {head_.load(std::memory_order_relaxed), tail_.load(std::memory_order_acquire)};
    }
    [[nodiscard]] const entry& at(std::uint32_t index) const noexcept { return entries_[index & mask_]; }
    void drop_until(std::uint32_t index) noexcept { head_.store(index, std::memory_order_release); }
    [[nodiscard]] bool empty() const noexcept {
        return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_seq_cst);
    }

  private:
    std::vector<entry> entries_;
    std::uint32_t mask_;
    alignas(64) std::atomic<std::uint32_t> head_{0};  ///< the reader's
    alignas(64) std::atomic<std::uint32_t> tail_{0};  ///< the writer's
};

/// How far the recall of memory has come that a client lent and its server keeps.
enum class recalling : std::uint8_t {
    no,
    wanted,   ///< by the client
    reading,  ///< the server copies, and releases what it can
    gone,     ///< the client has stopped waiting
    heard,    ///< the server is done; a GPU's stream may still hold the rest
};

/// One end of a connection as the other end sees it.
struct side {
    side(std::uint32_t slots, std::shared_ptr<core::slot_memory> to_peer)
        : inbox(slots), outgoing(std::move(to_peer)), lent_slots(slots), left_leases(slots) {}

    /// If nobody has done so before.
    void end_left_lease(std::uint32_t slot) noexcept {
        auto* const leases = left_leases[slot].exchange(nullptr, std::memory_order_seq_cst);
        if (leases != nullptr) leases->fetch_sub(1, std::memory_order_release);
    }

    ring inbox;
    std::shared_ptr<wakeup> owner;  ///< set before the peer may write
    std::atomic<bool> closed{false};
    std::atomic<bool> gone{false};  ///< its link is destroyed: nobody there uses what the peer has lent
    /// Memory of this end's application that the peer may still use: lent requests and response targets,
    /// or lent answers.
    std::atomic<std::uint32_t> lent{0};
    std::atomic<recalling> recalled{recalling::no};  ///< a client's
    std::shared_ptr<core::slot_memory> outgoing;     ///< slots that this end writes and its peer reads
    /// By slot: something was lent. Written by this end before delivery, cleared by its peer.
    std::vector<std::atomic<bool>> lent_slots;
    /// By slot: the lease of an answer that the client has not released when this end, its server, closes.
    std::vector<std::atomic<std::atomic<std::uint32_t>*>> left_leases;
};

/// The state that the two links of a connection share.
struct pair {
    pair(std::uint32_t slots, std::shared_ptr<core::slot_memory> to_server,
         std::shared_ptr<core::slot_memory> to_client)
        : client(slots, std::move(to_server)), server(slots, std::move(to_client)) {}

    side client;
    side server;
};

/// Registers a client's pair. Its number travels in the link description, so that the server finds it.
[[nodiscard]] std::uint64_t offer_pair(const std::shared_ptr<pair>& made);
/// Takes the pair out, once. Null: the number is unknown.
[[nodiscard]] std::shared_ptr<pair> take_pair(std::uint64_t key);

}  // namespace accel::local
