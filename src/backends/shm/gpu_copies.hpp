// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/shm/descriptors.hpp"
#include "core/link.hpp"
#include "staging/accelerator.hpp"
#include "staging/long_copy.hpp"
#include "staging/stream_wait.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace accel::shm {

/// A client's copies between its own memory and its server's slots on a GPU, of one session. Belongs to the polling
/// thread, but for `map`. Nothing waits: the caller asks how far the copies are. The first copy of a slot opens a
/// stream; nothing allocates after that.
class gpu_copies {
  public:
    /// The copy under way for a slot.
    struct copy {
        std::uint32_t slot = 0;
        bool request = false;       ///< else a response
        bool listed = false;        ///< it is under way
        bool fed = false;           ///< the stream has all of it
        bool told = false;          ///< somebody is woken at its end
        bool wanted_back = false;   ///< its lent memory, by a call that has ended
        std::uint32_t entry = 0;    ///< request: what its announcement says
        core::link_event response;  ///< response: what is told of it
        core::long_copy whole;
        std::span<const core::lent_range> ranges;  ///< in place of `whole`, if any
        core::range_cursor at;
        std::byte* to = nullptr;  ///< where the next range goes
        std::size_t left = 0;     ///< bytes of ranges
        std::unique_ptr<core::device_stream> stream;
    };

    /// Maps what the server has passed: for the open GPU that it lies on, or else for one that reaches it directly.
    /// `own`: slots that requests come from.
    [[nodiscard]] static result<std::unique_ptr<gpu_copies>> map(const std::shared_ptr<core::accelerator>& gpus,
                                                                 const passed_descriptors& passed,
                                                                 const core::link_geometry& geometry,
                                                                 core::slot_memory& own);
    ~gpu_copies();
    gpu_copies(const gpu_copies&) = delete;
    gpu_copies& operator=(const gpu_copies&) = delete;

    [[nodiscard]] core::accelerator_device& gpu() const noexcept { return gpu_; }
    /// Memory of another GPU takes the way over the host.
    [[nodiscard]] bool reaches(const core::region_state& region) const noexcept;
    /// The payload is copied into the server's slot on the GPU; else into the one on the host, which takes less time.
    [[nodiscard]] bool takes(const core::outgoing& message) const noexcept;
    [[nodiscard]] std::span<std::byte> response(std::uint32_t slot, std::size_t length) const noexcept {
        return {responses_ + slot * response_stride_, length};
    }

    /// Starts to copy a payload that this `takes`. Its announcement will say `entry`.
    [[nodiscard]] status send(const core::outgoing& message, std::uint32_t entry) noexcept;
    /// Starts to copy a response to where its event says.
    [[nodiscard]] status receive(const core::link_event& arrived) noexcept;
    [[nodiscard]] bool under_way(std::uint32_t slot) const noexcept { return copies_[slot].listed; }
    [[nodiscard]] bool active() const noexcept { return !listed_.empty(); }
    /// Some response is under way.
    [[nodiscard]] bool receives() const noexcept;
    /// The call of this slot has ended. True: a copy still touches what it lent.
    [[nodiscard]] bool abandon(std::uint32_t slot) noexcept;

    /// Goes on with all copies. `take(copy, done)` gets each that has ended, well or not; false leaves it for later.
    template <class Take>
    void poll(Take take) noexcept {
        std::size_t kept = 0;
        for (const std::uint32_t slot : listed_) {
            copy& each = copies_[slot];
            const core::stream_progress far = go_on(each);
            each.listed = far == core::stream_progress::running || !take(each, far == core::stream_progress::done);
            if (each.listed) listed_[kept++] = slot;
        }
        listed_.resize(kept);
    }
    /// Gives no more to the streams. True: no copy touches any memory.
    [[nodiscard]] bool settle() noexcept;
    /// True: `waker` will be told when there is more to do.
    [[nodiscard]] bool wakes(core::stream_waker& waker) noexcept;

  private:
    gpu_copies(core::accelerator_device& gpu, const core::link_geometry& geometry);
    [[nodiscard]] result<void> map_slots(const passed_descriptors& passed, const core::link_geometry& geometry,
                                         core::shared_of whose);
    [[nodiscard]] status start(copy& made) noexcept;
    [[nodiscard]] core::stream_progress go_on(copy& each) noexcept;
    void feed(copy& each) noexcept;
    [[nodiscard]] bool feed_ranges(copy& each) noexcept;

    core::accelerator_device& gpu_;
    std::byte* requests_ = nullptr;
    std::byte* responses_ = nullptr;
    std::size_t request_stride_;
    std::size_t response_stride_;
    bool own_pinned_ = false;
    std::vector<copy> copies_;
    std::vector<std::uint32_t> listed_;  ///< slots of copies that are under way; capacity for all
};

}  // namespace accel::shm
