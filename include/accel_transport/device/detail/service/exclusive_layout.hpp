// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/completion_queue.hpp>
#include <accel_transport/detail/mlx5/send_queue.hpp>
#include <accel_transport/device/detail/proxy/queue.hpp>
#include <accel_transport/device/detail/service/layout.hpp>

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

/// A header whose last word has been seen before its first: the adapter may write them in any order, and the next look
/// finds all of it. After this number of looks the peer is wrong; no correct one comes near that.
inline constexpr std::uint32_t max_torn = 4096;

/// The part of a message's last work request, the header's, that is known before there is a message: all but number,
/// flags and length. And where an answer's bytes are written.
struct alignas(16) prepared_header {
    mlx5::be32 qpn_ds{};
    mlx5::be32 immediate{};
    mlx5::be32 key{};                                        ///< of the message's own memory
    mlx5::opcode operation = mlx5::opcode::write_immediate;  ///< `write`: the peer looks at its slots
    mlx5::remote_segment remote{};
    mlx5::be64 address{};  ///< of the header, for the adapter
    std::byte* response = nullptr;
};
inline constexpr std::uint32_t prepared_segments = 3;
static_assert(sizeof(prepared_header) == 48);

/// The counts of a place beside requests and answers.
struct session_counters {
    std::uint64_t expired = 0;
    std::uint64_t dropped = 0;
};

/// A send queue that one owner posts to. With `engine::proxy` its ring, and descriptors instead of WQEBBs.
struct owned_sends {
    std::byte* ring = nullptr;
    std::uint64_t* doorbell = nullptr;
    mlx5::be32* doorbell_record = nullptr;
    std::uint32_t wqebb_mask = 0;
    std::uint32_t limit = 0;     ///< WQEBBs under way, a power of two: each may become a completion
    std::uint32_t posted = 0;    ///< WQEBBs, free-running; every request takes one
    std::uint32_t released = 0;  ///< the adapter is done with all before
};

/// The part of a session that a turn needs. Its owner has a copy (`owned_sessions::sessions`), and writes every change
/// of it to the session as well, so that the next kernel finds it there.
struct alignas(16) session_view : owned_sends {
    std::uint64_t id = 0;
    // From the offer, since the session was opened.
    std::uint32_t request_capacity = 0;  ///< bytes
    std::uint32_t response_capacity = 0;
    // Counters.
    std::uint32_t held = 0;  ///< requests that are taken and not answered; each may need two WQEBBs
    session_phase phase = session_phase::none;
    std::uint64_t requests = 0;
    std::uint64_t replies = 0;
    std::uint32_t payloads_apart = 0;  ///< 1: the client's payloads do not lie after their headers
    std::uint32_t reported = 1;        ///< 0: the host does not know the counters as they are
    std::uint32_t plain = 0;           ///< of a copy; 1: open, and nothing is apart
    std::uint32_t reserved = 0;
};
static_assert(sizeof(session_view) == 96);

/// A place for sessions, with queues of its own.
struct exclusive_session : session_view {
    session_offer is;
    mlx5::send_queue_ref sends;              ///< its `state` is not used
    mlx5::completion_queue_ref completions;  ///< of sends only
    proxy::send_queue_ref proxied;           ///< `engine::proxy`, instead of both; without its `state`
    mlx5::completion_queue_state completions_state;
    session_counters counters;
    std::uint32_t order_seen = 0;  ///< the last
    std::uint32_t blocked = 0;
    std::uint32_t torn = 0;  ///< headers that were not seen whole, since `torn_since`
    std::int64_t torn_since = 0;
};

/// A slot as its owner has it at hand: what a look and an answer need of it.
struct alignas(16) owned_slot {
    std::byte* header = nullptr;  ///< of its request
    slot_watch watch;
    slot_watch* watch_at = nullptr;  ///< what `watch` is a copy of
    exclusive_session* session_at = nullptr;
    std::uint32_t session = 0;
    std::uint32_t slot = 0;
    std::uint64_t reserved = 0;
    prepared_header prepared;
};
static_assert(sizeof(owned_slot) == 96);
/// An owner of up to this number of slots keeps all of them at hand, otherwise the one that it needed last.
inline constexpr std::uint32_t max_at_hand = 16;
/// Instead of the place of that one.
inline constexpr std::uint32_t all_at_hand = 0xffff'ffffU;
inline constexpr std::uint32_t none_at_hand = 0xffff'fffeU;

/// Where all of it lies. Slots, watches, prepared answers and what is kept for parts have the number
/// `session << slot_bits | slot`; not all of the numbers are used.
struct exclusive_ref {
    exclusive_session* sessions = nullptr;  ///< null: the service is shared
    slot_watch* watches = nullptr;
    prepared_header* prepared = nullptr;
    part_slot* parts = nullptr;
    std::byte* requests = nullptr;  ///< the header of the first slot of the first session
    std::uint64_t slot_stride = 0;
    std::uint64_t session_stride = 0;
    std::uint32_t slots = 0;  ///< of a place
    std::uint32_t slot_bits = 0;
    engine by = engine::direct;
    mlx5::queue_place queues = mlx5::queue_place::host;  ///< gpu: the slots are there too
    const std::uint32_t* orders = nullptr;  ///< the host's, one per session: number of the command × 2 + 1 to open
};

}  // namespace accel::device::detail
