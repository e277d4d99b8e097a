// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/rdma/key_cache.hpp"
#include "core/backend.hpp"
#include "verbs/async_events.hpp"
#include "verbs/domain.hpp"
#include "verbs/endpoint.hpp"
#include "verbs/queues.hpp"

#include <accel_transport/detail/wire/response_target.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace accel::rdma {

class rdma_poller;

// A peer can write into a slot at any time: each byte is read once, then checked.

/// The message that left from, or arrived in, a slot.
struct slot_use {
    std::span<std::byte> response_into;  ///< client: where the answer arrives, if not in its slot
    wire::response_target target;        ///< server: where the client wants the answer
    std::uint32_t lent_until = 0;        ///< number of the work request that reads lent memory
    bool lent = false;                   ///< … and it has not completed
    bool release_owed = false;
    bool copies_response = false;  ///< client: `response_into` is no memory the device can write
};

/// Server: where a client wants its answer. False: not what a correct client sends.
[[nodiscard]] bool read_response_target(const core::slot_header& header, const std::byte* at,
                                        wire::response_target& out) noexcept;
/// Client: a response that arrives, or goes from its slot, where the application wanted it. False: it does not fit.
[[nodiscard]] bool take_elsewhere(slot_use& use, core::link_event& event) noexcept;

/// The message in `slot`, which its peer has announced, as an event of the link. False: not what a correct
/// peer sends. `uses`: of all slots.
[[nodiscard, gnu::always_inline]] inline bool read_arrival(const core::link_config& config, std::span<slot_use> uses,
                                                           std::uint32_t slot, core::link_event& out) noexcept {
    if (slot >= config.geometry.slots) return false;
    const core::slot_memory& received = *config.receive;
    const std::byte* const bytes = received.header(slot);
    core::read_header(out.header, bytes);
    if (out.header.slot != slot || out.header.length > received.capacity()) return false;
    out.kind = core::event_kind::arrived;
    out.borrowed = false;
    out.reason = status::ok;
    out.owner = config.owner;
    out.payload = {received.payload(slot), out.header.length};
    out.response_room = {};
    slot_use& use = uses[slot];
    if (config.role == core::link_role::client) return use.response_into.empty() || take_elsewhere(use, out);
    use.target.length = 0;
    return out.header.extension_bytes == 0 || read_response_target(out.header, bytes, use.target);
}

/// One reliable connection and the slots it writes from and receives into. link_control.cpp makes
/// and ends it, send_datapath.cpp sends, gather_datapath.cpp too, receive_datapath.cpp receives.
class rdma_link final : public core::link, public verbs::async_listener {
  public:
    [[nodiscard]] static result<std::unique_ptr<core::link>> create(rdma_poller& owner,
                                                                    const core::link_config& config);
    ~rdma_link() override;
    rdma_link(const rdma_link&) = delete;
    rdma_link& operator=(const rdma_link&) = delete;

    [[nodiscard]] core::link_description describe() const override;
    [[nodiscard]] result<void> attach(const core::link_grant& grant, core::nanoseconds deadline) override;
    void activate() override;
    void peer_left() noexcept override { peer_left_ = true; }
    [[nodiscard]] bool close() noexcept override;
    [[nodiscard]] status deliver(const core::outgoing& message) noexcept override;
    [[nodiscard]] bool gathers() const noexcept override { return true; }
    [[nodiscard]] status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override;
    [[nodiscard]] bool retract(std::uint32_t slot) noexcept override;
    void consumed(std::uint32_t) noexcept override {}
    [[nodiscard]] bool flushed() noexcept override;
    [[nodiscard]] bool reaches(const core::region_state& region, bool written) noexcept override;
    [[nodiscard]] core::slot_memory& send() const noexcept override { return *config_.send; }
    [[nodiscard]] core::slot_memory& receive() const noexcept override { return *config_.receive; }

    // For the poller.
    [[nodiscard]] std::uint32_t number() const noexcept { return queue_pair_->number(); }
    /// A message has come; false if it makes no event, else that is written to `out`.
    [[nodiscard]] bool take_arrival(const mlx5::completion& completion, core::link_event& out) noexcept;
    /// Any other completion.
    void on_other_completion(const mlx5::completion& completion) noexcept;
    /// The link is of no more use; the next `drain_events` says so.
    void fail(status reason) noexcept;
    /// Events that are not bound to a completion: `buffer_released` and `lost`. Returns how many events it wrote.
    [[nodiscard]] std::size_t drain_events(std::span<core::link_event> out) noexcept;
    [[nodiscard]] bool has_something_to_tell() const noexcept { return state_ == state::losing || !released_.empty(); }
    /// Posts the receives that were used up.
    void refill_receives() noexcept;
    void on_async_event(ibv_event_type type) noexcept override;
    /// On the polling thread, after `on_async_event`.
    void settle_async_failure() noexcept { fail(async_reason_.load(std::memory_order_relaxed)); }

    bool pending = false;  ///< kept by the poller: it is going to ask what there is to tell

  private:
    enum class state : std::uint8_t {
        idle,  ///< not active yet
        open,
        losing,  ///< failed; the `lost` event is still to be told
        lost,
        closed,
    };
    struct source {
        std::span<const std::byte> payload;
        std::uint32_t key = 0;
        bool lent = false;
        bool behind = false;  ///< its header, in one piece with it
        bool on_gpu = false;
    };
    rdma_link(rdma_poller& owner, const core::link_config& config, std::shared_ptr<verbs::domain> domain);
    [[nodiscard]] result<void> prepare();
    [[nodiscard]] result<void> make_queue_pair();
    [[nodiscard]] result<void> connect(std::span<const std::byte> description);
    [[nodiscard]] result<void> probe_path(core::nanoseconds deadline);
    [[nodiscard]] const verbs::memory_keys* acquire_keys(const core::region_state& region, verbs::access use) noexcept;
    [[nodiscard]] bool is_server() const noexcept { return config_.role == core::link_role::server; }
    void end() noexcept;

    // Sending.
    [[nodiscard]] bool is_failure(std::uint32_t slot) const noexcept;
    [[nodiscard]] std::size_t requests_of(const core::outgoing& message) const noexcept;
    [[nodiscard]] status deliver_in_one(std::uint32_t slot, const source& from, std::size_t extensions) noexcept;
    [[nodiscard]] status deliver_in_pieces(std::uint32_t slot, const source& from, std::size_t extensions) noexcept;
    [[nodiscard]] std::uint64_t peer_header(std::uint32_t slot) const noexcept {
        return peer_.slots_address + slot * peer_.slots_stride + core::extension_room;
    }
    void address_header(mlx5::work_request& request, std::uint32_t slot, std::size_t extensions) const noexcept;
    void make_plain(mlx5::work_request& request, std::uint32_t slot) const noexcept;
    [[nodiscard]] bool fits_inline(std::size_t bytes) const noexcept {
        return bytes <= queue_pair_->sizes().inline_bytes;
    }
    [[nodiscard]] status post_message(std::span<mlx5::work_request> requests, std::uint32_t slot, bool lent) noexcept;
    [[nodiscard]] status post(std::span<const mlx5::work_request> requests) noexcept;
    [[nodiscard]] bool post_marker() noexcept;
    [[nodiscard]] source own_source(const core::outgoing& message) const noexcept;
    [[nodiscard]] std::uint64_t peer_payload(std::uint32_t slot) const noexcept {
        return peer_.apart() ? peer_.payloads_address + slot * peer_.payloads_stride
                             : peer_header(slot) + core::header_bytes;
    }
    [[nodiscard]] source lent_source(const core::outgoing& message) noexcept;
    [[nodiscard]] const verbs::memory_keys* keys_of(const core::region_state& region, verbs::access use) noexcept;
    [[nodiscard]] std::size_t write_response_target(const core::outgoing& message) noexcept;
    void settle_lent() noexcept;
    void remember_lent(std::uint32_t slot) noexcept;

    // Sending a payload in ranges.
    /// How far the one that is under way has been posted.
    struct gathering {
        bool under_way = false;
        std::uint32_t slot = 0;
        std::uint32_t generation = 0;
        core::range_cursor at;
        std::uint64_t posted = 0;  ///< bytes
    };
    struct gather_batch;
    [[nodiscard]] status deliver_gathered(const core::outgoing& message) noexcept;
    [[nodiscard]] bool has_keys_of(std::span<const core::lent_range> ranges) noexcept;
    [[nodiscard]] bool goes_on_with(const core::outgoing& message) const noexcept;
    [[nodiscard]] bool fits_in_one(const core::outgoing& message) const noexcept;
    [[nodiscard]] std::size_t put_head(const core::outgoing& message) noexcept;
    [[nodiscard]] status gather_in_one(const core::outgoing& message) noexcept;
    [[nodiscard]] status deliver_copied(const core::outgoing& message) noexcept;
    [[nodiscard]] status post_ranges(const core::outgoing& message) noexcept;
    void fill_request(const core::outgoing& message, gather_batch& batch) noexcept;
    [[nodiscard]] status post_gathered_head(const core::outgoing& message) noexcept;
    void push_released(std::uint32_t slot) noexcept;
    void forget_release(std::uint32_t slot) noexcept;

    rdma_poller& poller_;
    core::link_config config_;
    std::shared_ptr<verbs::domain> domain_;
    verbs::region_handle send_memory_;
    verbs::region_handle receive_memory_;
    verbs::region_handle send_payloads_;     ///< of slots with their payloads on a GPU
    verbs::region_handle receive_payloads_;  ///< … likewise
    std::optional<verbs::queue_pair> queue_pair_;
    verbs::endpoint peer_;
    verbs::receive_use own_use_;                      ///< client
    verbs::receive_use* use_ = &own_use_;             ///< server: of the receives that all its sessions share
    verbs::completion_queue* completions_ = nullptr;  ///< one of the poller's, with room for as many:
    std::uint32_t completions_admitted_ = 0;
    std::uint64_t longest_write_ = 0;  ///< bytes of one work request
    std::uint64_t plain_end_ = 0;      ///< one takes fewer payload bytes than this behind their header
    bool announces_ = true;            ///< by immediate data; else the peer looks at its slots
    state state_ = state::idle;
    status reason_ = status::ok;
    bool polled_ = false;   ///< the poller knows this link
    bool closing_ = false;  ///< `close` was called; answers may still be on their way
    bool peer_left_ = false;
    std::atomic<status> async_reason_{status::ok};
    core::nanoseconds close_by_{};
    key_cache keys_;
    std::vector<slot_use> slots_;
    gathering gathering_;
    /// Messages of lent memory, in the order in which they were posted, each with the number of its last work request.
    struct lent_message {
        std::uint32_t slot = 0;
        std::uint32_t until = 0;
    };
    std::vector<lent_message> lent_;       ///< capacity for the whole queue
    std::vector<std::uint32_t> released_;  ///< capacity for all slots
};

/// The write that the peer is told of: by its immediate data, the slot's number.
[[gnu::always_inline]] inline void rdma_link::address_header(mlx5::work_request& request, std::uint32_t slot,
                                                             std::size_t extensions) const noexcept {
    request.operation = mlx5::opcode::write_immediate;
    request.immediate = mlx5::to_be32(slot);
    request.remote_address = peer_header(slot) - extensions;
    request.remote_key = peer_.slots_key;
}

}  // namespace accel::rdma
