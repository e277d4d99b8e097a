#pragma once

#include "core/clock.hpp"

#include <accel_transport/completion.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace accel::core {

/// Life of a client's slot: free → begun → in_flight → [settling] → done → taken → free,
/// or → quarantined while the server still owes an answer.
enum class slot_state : std::uint8_t {
    free,
    begun,        ///< the application writes its request
    in_flight,    ///< submitted
    settling,     ///< ended early, but the transport still touches memory that the application lent
    done,         ///< completed, waiting for poll
    taken,        ///< completion handed out, waiting for release
    quarantined,  ///< released, but a late answer may still arrive
};

struct alignas(64) client_slot {
    slot_state state = slot_state::free;
    bool owed = false;            ///< the server still has to answer this generation
    bool lent = false;            ///< the payload or the response's room belongs to the application
    bool staged = false;          ///< its bytes go through `gpu_staging`
    bool holds_response = false;  ///< the link has to be told when the response is released
    std::uint32_t epoch = 0;      ///< of the connection that carries it
    std::byte* header = nullptr;  ///< of its request, set once by the channel; the payload lies behind it
    nanoseconds submitted{};
    nanoseconds deadline{};  ///< while it is settling: by when lent memory has to be free
    completion content;
};

/// The slots of a channel: free list, queue of finished calls, deadlines. No allocation after construction.
class client_slots {
  public:
    explicit client_slots(std::uint32_t count);

    [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
    [[nodiscard]] client_slot& operator[](std::uint32_t i) noexcept { return slots_[i]; }
    /// The slot of a current id, or null.
    [[nodiscard]] client_slot* find(call_id id) noexcept {
        if (id.slot >= count_) return nullptr;
        client_slot& slot = slots_[id.slot];
        return slot.content.id == id ? &slot : nullptr;
    }
    /// Takes a free slot under its next generation, or null.
    [[nodiscard]] client_slot* take_free() noexcept {
        if (free_count_ == 0) return nullptr;
        client_slot& slot = slots_[free_[--free_count_]];
        slot.state = slot_state::begun;
        if (++slot.content.id.generation == 0) slot.content.id.generation = 1;
        return &slot;
    }
    void put_free(client_slot& slot) noexcept {
        slot.state = slot_state::free;
        free_[free_count_++] = slot.content.id.slot;
    }

    void set_in_flight(client_slot& slot) noexcept {
        slot.state = slot_state::in_flight;
        next_deadline_ = std::min(next_deadline_, slot.deadline);
        ++open_;
    }
    /// A call has ended, but its completion waits for lent memory, until `deadline`.
    void set_settling(client_slot& slot, nanoseconds deadline) noexcept {
        slot.state = slot_state::settling;
        slot.deadline = deadline;
        next_deadline_ = std::min(next_deadline_, deadline);
    }
    /// Ends a call: its completion is ready for `take_done`.
    void finish(client_slot& slot) noexcept {
        close_one();
        push_done(slot);
    }
    /// Ends a call whose completion goes straight to the application. Only while none is ready.
    void finish_taken(client_slot& slot) noexcept {
        close_one();
        slot.state = slot_state::taken;
    }
    /// The oldest finished call, now `taken`; null if there is none.
    [[nodiscard]] client_slot* take_done() noexcept {
        if (done_count_ == 0) return nullptr;
        client_slot& slot = slots_[done_[done_head_]];
        if (++done_head_ == count_) done_head_ = 0;
        --done_count_;
        slot.state = slot_state::taken;
        return &slot;
    }
    /// One finished call out of turn (for the blocking call).
    void take_done(client_slot& slot) noexcept;

    /// Submitted calls without a completion (in flight or settling).
    [[nodiscard]] std::uint32_t open() const noexcept { return open_; }
    [[nodiscard]] std::uint32_t ready() const noexcept { return done_count_; }
    /// No deadline of an open call is earlier than this.
    [[nodiscard]] nanoseconds next_deadline() const noexcept { return next_deadline_; }
    void set_next_deadline(nanoseconds when) noexcept { next_deadline_ = when; }
    std::span<client_slot> all() noexcept { return slots_; }

  private:
    void close_one() noexcept {
        if (--open_ == 0) next_deadline_ = never;
    }
    void push_done(client_slot& slot) noexcept {
        slot.state = slot_state::done;
        std::uint32_t tail = done_head_ + done_count_++;
        if (tail >= count_) tail -= count_;
        done_[tail] = slot.content.id.slot;
    }

    std::uint32_t count_;
    std::vector<client_slot> slots_;
    std::vector<std::uint32_t> free_;  ///< a stack: the slot used last is the warmest
    std::uint32_t free_count_ = 0;
    std::vector<std::uint32_t> done_;  ///< a ring of `count` entries
    std::uint32_t done_head_ = 0;
    std::uint32_t done_count_ = 0;
    std::uint32_t open_ = 0;
    nanoseconds next_deadline_ = never;
};

}  // namespace accel::core
