// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "staging/accelerator.hpp"
#include "staging/long_copy.hpp"
#include "staging/stream_wait.hpp"

#include <accel_transport/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace accel::core {

/// Where a call is on its way between a GPU's memory and its slot.
enum class staging_phase : std::uint8_t {
    none,
    copying_out,  ///< the payload, into the request's slot
    copied_out,   ///< …which the link has not taken yet
    away,         ///< delivered; its response will be copied
    copying_in,   ///< the response, to where it is wanted
};

/// The copies of a call whose payload, or place for the response, is a GPU's memory that the link does not
/// reach. One for each slot, filled while `phase` says so.
struct staged_call {
    staging_phase phase = staging_phase::none;
    bool listed = false;                    ///< `gpu_staging::poll` looks at it
    outgoing message;                       ///< what the link is given once the payload is in its slot
    slice into;                             ///< where the response is copied to; empty: it stays
    long_copy copy;                         ///< while `copying()`
    bool fed = false;                       ///< the stream has all of it
    nanoseconds copied_out{};               ///< how long that took
    accelerator_device* gpu = nullptr;      ///< of the stream
    std::unique_ptr<device_stream> stream;  ///< kept for later calls of this slot

    [[nodiscard]] bool copying() const noexcept {
        return phase == staging_phase::copying_out || phase == staging_phase::copying_in;
    }
    [[nodiscard]] bool waiting() const noexcept { return copying() || phase == staging_phase::copied_out; }
};

/// The copies of one channel. Belongs to its thread. A slot's first use opens a stream and the first of all
/// pins the slots; nothing allocates after that.
class gpu_staging {
  public:
    /// `wake_fd` becomes readable when a copy has ended; -1: nobody sleeps.
    gpu_staging(std::uint32_t slots, int wake_fd);
    gpu_staging(const gpu_staging&) = delete;
    gpu_staging& operator=(const gpu_staging&) = delete;

    [[nodiscard]] staged_call& operator[](std::uint32_t slot) noexcept { return calls_[slot]; }
    /// A stream for this slot, on that GPU unless it has one already.
    [[nodiscard]] status prepare(std::uint32_t slot, accelerator_device& gpu);
    /// Starts a copy; the call waits for it in `phase`.
    void start(std::uint32_t slot, staging_phase phase, std::byte* to, const std::byte* from,
               std::size_t bytes) noexcept;
    /// The payload lies where the link can read it, but the link has no room: the call waits in `copied_out`.
    void wait_for_link(std::uint32_t slot) noexcept;

    /// Goes on with a copy. How far it is.
    [[nodiscard]] stream_progress go_on(staged_call& call) noexcept;

    /// Some call waits for a copy, or for the link.
    [[nodiscard]] bool active() const noexcept { return !listed_.empty(); }
    /// `wake_fd` will say when there is more to do, for all of them: none waits for the link, none has pieces
    /// of a copy yet to be given.
    [[nodiscard]] bool wakes() const noexcept;

    /// Calls `look(slot, call)` for each call that waits; it moves the phase on, or not.
    template <class Look>
    void poll(Look look) noexcept {
        std::size_t kept = 0;
        for (const std::uint32_t slot : listed_) {
            staged_call& call = calls_[slot];
            if (call.waiting()) look(slot, call);
            call.listed = call.waiting();
            if (call.listed) listed_[kept++] = slot;
        }
        listed_.resize(kept);
    }

  private:
    void feed(staged_call& call) noexcept;
    void list(std::uint32_t slot) noexcept;

    std::unique_ptr<stream_waker> waker_;  ///< outlives the streams
    std::vector<staged_call> calls_;
    std::vector<std::uint32_t> listed_;
};

}  // namespace accel::core
