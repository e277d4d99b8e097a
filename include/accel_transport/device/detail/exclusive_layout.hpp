// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/mlx5/completion_queue.hpp>
#include <accel_transport/device/detail/mlx5/send_queue.hpp>
#include <accel_transport/device/detail/service_layout.hpp>

#include <cstddef>
#include <cstdint>

/// A service whose queues have one owner each, as it lies in the kernels' memory. An owner is a thread, a
/// warp or a block: it alone touches what belongs to its sessions, so nothing here is atomic.
namespace accel::device::detail {

/// Why the owner does not look at a slot; bits of `slot_watch::away`.
namespace slot_away {
inline constexpr std::uint32_t closed = 1;   ///< no session has it
inline constexpr std::uint32_t held = 2;     ///< its request is not answered yet
inline constexpr std::uint32_t blocked = 4;  ///< its session's send queue has no room for an answer
}  // namespace slot_away

/// A slot, as its owner sees it. Read whole by one load.
struct alignas(8) slot_watch {
    std::uint32_t generation = 0;  ///< of the last request
    std::uint32_t away = slot_away::closed;
};

/// The work request of an answer, built when its session opens: only number, flags and length are missing. And where
/// the answer's bytes are written.
struct alignas(16) prepared_request {
    mlx5::control_segment control{};
    mlx5::remote_segment remote{};
    mlx5::data_segment local{};
    std::byte* response = nullptr;
    std::uint64_t reserved = 0;
};
inline constexpr std::uint32_t prepared_segments = 3;
static_assert(sizeof(prepared_request) == (std::size_t{prepared_segments} + 1) * mlx5::ds_bytes);

/// What a place has counted beside requests and answers.
struct session_counters {
    std::uint64_t expired = 0;
    std::uint64_t dropped = 0;
};

/// What a request needs of its session: a line of the GPU's cache, read in pieces of 16 bytes. The piece that is needed
/// first comes last, so that the others are under way by then.
struct alignas(128) session_view {
    mlx5::send_queue_ref sends;  ///< its `state` is not used: the counters follow
    // Of the offer, since it was opened.
    std::uint64_t id = 0;
    std::uint64_t request_capacity = 0;
    std::uint64_t response_capacity = 0;
    std::uint64_t peer_payloads = 0;
    std::uint64_t reserved[2] = {};
    // Counters.
    std::uint64_t requests = 0;
    std::uint64_t replies = 0;
    std::uint64_t padding = 0;
    // The send queue.
    std::uint32_t posted = 0;    ///< WQEBBs, free-running; every request takes one
    std::uint32_t released = 0;  ///< the adapter is done with all before
    std::uint32_t held = 0;      ///< requests that are taken and not answered; each may need two WQEBBs
    std::uint32_t limit = 0;     ///< WQEBBs under way, a power of two: each may become a completion
};
static_assert(sizeof(session_view) == 128);

/// A place for sessions, with queues of its own.
struct exclusive_session : session_view {
    session_phase phase = session_phase::none;
    session_offer is;
    mlx5::completion_queue_ref completions;  ///< of sends only
    mlx5::completion_queue_state completions_state;
    session_counters counters;
    std::uint32_t order_seen = 0;  ///< the last
    std::uint32_t blocked = 0;
    std::uint32_t reported = 1;  ///< 0: the host does not know the counters as they are
};

/// A slot, and what belongs to it.
struct alignas(16) place_ref {
    std::byte* header = nullptr;  ///< of its request
    slot_watch* watch = nullptr;
    exclusive_session* session = nullptr;
    prepared_request* prepared = nullptr;
    std::uint32_t session_index = 0;
    std::uint32_t slot = 0;
};
/// An owner of so many slots keeps them at hand.
inline constexpr std::uint32_t most_at_hand = 32;

/// Where all of it lies. Slots, watches and prepared requests have the number
/// `session << slot_bits | slot`; not all of the numbers are used.
struct exclusive_ref {
    exclusive_session* sessions = nullptr;  ///< null: the service is shared
    slot_watch* watches = nullptr;
    prepared_request* prepared = nullptr;
    std::byte* requests = nullptr;  ///< the header of the first slot of the first session
    std::uint64_t slot_stride = 0;
    std::uint64_t session_stride = 0;
    std::uint32_t slots = 0;  ///< of a place
    std::uint32_t slot_bits = 0;
    mlx5::queue_place queues = mlx5::queue_place::host;  ///< gpu: the slots are there too
    const std::uint32_t* orders = nullptr;  ///< the host's, one a session: number of the command × 2 + 1 to open
};

}  // namespace accel::device::detail
