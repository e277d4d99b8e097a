// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/shm/gpu_copies.hpp"
#include "backends/shm/lane.hpp"
#include "backends/shm/layout.hpp"
#include "backends/shm/opening.hpp"
#include "backends/shm/segment.hpp"
#include "core/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace accel::shm {

class shm_poller;

/// One direction of a session, as this process has it mapped.
struct direction {
    segment memory;
    std::shared_ptr<core::slot_memory> slots;

    direction() = default;
    direction(segment mapped, const segment_layout& layout, std::uint32_t count, std::size_t capacity)
        : memory(std::move(mapped)),
          slots(core::slot_memory::over(memory.base() + layout.slots_at, count, capacity, layout.stride)) {}
    [[nodiscard]] segment_head& head() const noexcept { return *reinterpret_cast<segment_head*>(memory.base()); }
};

/// A server's slots on a GPU that its client may map.
struct shared_gpu_slots {
    std::shared_ptr<core::slot_memory> requests;
    std::shared_ptr<core::slot_memory> responses;
    core::unique_fd requests_fd;  ///< until they have been passed
    core::unique_fd responses_fd;
};

/// One end of a session in shared memory. The server makes it all; the client maps it: the requests' direction to
/// write, the responses' to read. control.cpp makes and ends it, datapath.cpp sends and receives, gpu_datapath.cpp too.
class shm_link final : public core::link {
  public:
    [[nodiscard]] static result<std::unique_ptr<core::link>> create(shm_poller& owner, const core::link_config& config);
    ~shm_link() override;
    shm_link(const shm_link&) = delete;
    shm_link& operator=(const shm_link&) = delete;

    [[nodiscard]] core::link_description describe() const override;
    [[nodiscard]] result<void> attach(const core::link_grant& grant, core::nanoseconds deadline) override;
    void activate() override;
    [[nodiscard]] bool close() noexcept override;
    [[nodiscard]] status deliver(const core::outgoing& message) noexcept override;
    [[nodiscard]] bool gathers() const noexcept override { return true; }
    [[nodiscard]] status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override;
    /// Lent payloads were copied, and a late response is left in its slot.
    [[nodiscard]] bool retract(std::uint32_t slot) noexcept override;
    void consumed(std::uint32_t) noexcept override {}
    [[nodiscard]] bool reaches(const core::region_state& region, bool written) noexcept override;
    [[nodiscard]] bool wants_device_slots() const noexcept override { return wants_gpu_slots_; }
    void share_device_slots(const std::shared_ptr<core::slot_memory>& requests,
                            const std::shared_ptr<core::slot_memory>& responses) noexcept override;
    /// A client's are its own: a call may be begun on one connection and leave on the next.
    [[nodiscard]] core::slot_memory& send() const noexcept override {
        return is_server() ? *outgoing_.slots : *config_.send;
    }
    [[nodiscard]] core::slot_memory& receive() const noexcept override { return *incoming_.slots; }
    [[nodiscard]] bool receives() const noexcept override { return copies_ != nullptr && copies_->receives(); }

    // For the poller.
    [[nodiscard]] int fd() const noexcept { return socket_.get(); }
    [[nodiscard]] std::uint64_t session_id() const noexcept { return config_.session_id; }
    /// Takes the connection that its client has made.
    void adopt(core::unique_fd socket);
    /// The same on the poller's thread, where nothing may throw.
    void adopt_arrival(core::unique_fd socket) noexcept;
    /// Takes what has arrived; returns how many events it wrote.
    [[nodiscard]] std::size_t take(std::span<core::link_event> out) noexcept;
    /// True if `take` has something, after the peer was told that this end sleeps.
    [[nodiscard]] bool has_work() const noexcept;
    /// The socket is readable: the peer has woken this end, or is gone.
    void hear() noexcept;
    /// Client: what its server reads before it wakes this end.
    void publish(std::uint32_t sleep) noexcept { outgoing_.head().sleep.store(sleep, std::memory_order_seq_cst); }

  private:
    enum class state : std::uint8_t {
        idle,      ///< not active yet
        expected,  ///< server: its client has not connected yet
        open,
        open_to_gpu,  ///< … and slots on a GPU are shared, so that messages take the way of gpu_datapath.cpp
        losing,       ///< failed; the `lost` event is still to be reported
        lost,
        closed,
    };
    /// Client: where a response goes instead of its slot.
    struct target {
        std::span<std::byte> room;
        std::uint32_t generation = 0;
        bool on_gpu = false;
    };
    /// The outcome of a message that was announced.
    enum class taken : std::uint8_t { event, nothing, wrong };

    shm_link(shm_poller& owner, const core::link_config& config) : poller_(owner), config_(config) {}
    [[nodiscard]] bool is_server() const noexcept { return config_.role == core::link_role::server; }
    [[nodiscard]] result<void> make_segments();
    [[nodiscard]] result<void> map_segments(opened& made);
    [[nodiscard]] segment_layout layout_of(core::link_role filled_by) const noexcept;
    [[nodiscard]] direction direction_of(core::link_role filled_by, segment mapped) const;
    void find_lanes() noexcept;
    void map_gpu_slots(const passed_descriptors& passed);
    [[nodiscard]] bool is_open() const noexcept { return state_ == state::open || state_ == state::open_to_gpu; }
    void end() noexcept;
    [[nodiscard]] bool polled() const noexcept { return state_ >= state::expected && state_ <= state::lost; }
    void lose(status why) noexcept;

    // Sending.
    [[nodiscard]] bool fits(const core::outgoing& message) const noexcept {
        return message.slot < config_.geometry.slots && message.length() <= outgoing_.slots->capacity();
    }
    void put_request(std::uint32_t slot, std::span<const std::byte> payload) noexcept;
    void put_extensions(std::uint32_t slot, std::size_t bytes) noexcept;
    [[nodiscard]] status deliver_lent_response(const core::outgoing& message) noexcept;
    void announce(std::uint32_t entry) noexcept;
    void wake(std::uint32_t sleep) noexcept;

    [[nodiscard]] status deliver_by_gpu(const core::outgoing& message) noexcept;
    [[nodiscard]] status deliver_plain_by_gpu(std::uint32_t slot, std::span<const std::byte> payload) noexcept;
    [[nodiscard]] status deliver_answer_by_gpu(const core::outgoing& message) noexcept;

    // Receiving.
    [[nodiscard]] bool read_message(core::link_event& event, std::uint32_t slot) noexcept;
    [[nodiscard]] bool fill(core::link_event& event, std::uint32_t slot) noexcept;
    [[nodiscard]] bool keep_extensions(const core::slot_header& header) noexcept;
    [[nodiscard]] bool place(core::link_event& event, target& wanted) const noexcept;
    [[nodiscard]] std::size_t take_messages(std::span<core::link_event> out) noexcept;
    [[nodiscard]] std::size_t take_more(std::span<core::link_event> out) noexcept;
    [[nodiscard]] std::size_t take_last(std::span<core::link_event> out) noexcept;
    [[nodiscard]] std::size_t tell_loss(std::span<core::link_event> out, std::size_t count) noexcept;
    [[nodiscard]] taken fill_by_gpu(core::link_event& event, std::uint32_t entry) noexcept;
    [[nodiscard]] taken place_by_gpu(core::link_event& event, target& wanted, bool on_gpu) noexcept;
    [[nodiscard]] std::size_t take_by_gpu(std::span<core::link_event> out) noexcept;
    [[nodiscard]] std::size_t take_copied(std::span<core::link_event> out) noexcept;
    [[nodiscard]] std::size_t take_last_by_gpu(std::span<core::link_event> out) noexcept;
    [[nodiscard]] bool has_other_work() const noexcept;

    shm_poller& poller_;
    core::link_config config_;
    state state_ = state::idle;
    status reason_ = status::ok;
    core::unique_fd socket_;
    direction outgoing_;
    direction incoming_;
    segment page_;  ///< client: of the server's poller
    lane_writer writer_;
    lane_reader reader_;
    const sleep_word* peer_sleep_ = nullptr;
    std::uint32_t woken_ = 0;      ///< the peer's sleep that this end has ended
    std::uint32_t last_left_ = 0;  ///< losing: messages that may still be taken
    std::vector<target> targets_;
    std::vector<std::uint32_t> released_;  ///< slots whose lent payload was copied; capacity for all
    bool wants_gpu_slots_ = false;         ///< server: its client does
    shared_gpu_slots shared_;              ///< server; null: none
    std::unique_ptr<gpu_copies> copies_;   ///< client; null: payloads go over the host
};

// Every message's way.

/// `entry`: a slot, and flags if any.
inline void shm_link::announce(std::uint32_t entry) noexcept {
    writer_.push(entry);
    const std::uint32_t sleep = peer_sleep_->load(std::memory_order_seq_cst);
    if ((sleep & 1) != 0 && sleep != woken_) [[unlikely]]
        wake(sleep);
}

/// False: no correct peer sends it.
inline bool shm_link::read_message(core::link_event& event, std::uint32_t slot) noexcept {
    const core::slot_memory& slots = *incoming_.slots;
    if (slot >= config_.geometry.slots) [[unlikely]]
        return false;
    core::read_header(event.header, slots.header(slot));
    if (event.header.slot != slot || event.header.length > slots.capacity()) [[unlikely]]
        return false;
    event.kind = core::event_kind::arrived;
    event.borrowed = !is_server();  // a response is read in memory of this link
    event.owner = config_.owner;
    event.payload = {slots.payload(slot), event.header.length};
    event.response_room = {};
    return true;
}

}  // namespace accel::shm
