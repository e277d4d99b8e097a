// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/metrics/call_series.hpp"
#include "core/protocol.hpp"

#include <accel_transport/server.hpp>
#include <accel_transport/timeline.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace accel::core {

class session;
class region_state;
struct device_work;
struct served_target;

/// Life of a server's slot: idle → open, until its answer has left → idle. Or idle → room for a part of another call's
/// response, until that has left → idle. Or idle → part of another call's request, until it is given back → idle.
enum class exchange_phase : std::uint8_t { idle, open, room, part };

/// The parts that few exchanges have.
namespace exchange_extra {
inline constexpr std::uint8_t borrowed = 1;     ///< the link must be told when the request has been read
inline constexpr std::uint8_t described = 2;    ///< `extension_bytes` are in front of the answer's header
inline constexpr std::uint8_t in_parts = 4;     ///< its client takes parts, see `part_credits`
inline constexpr std::uint8_t further = 8;      ///< no exchange, but room for a part of one, or a part of its request
inline constexpr std::uint8_t returned = 16;    ///< such a slot that is given back empty
inline constexpr std::uint8_t queued = 32;      ///< … whose message the link did not take yet
inline constexpr std::uint8_t metadata = 64;    ///< `metadata_bytes` follow the request
inline constexpr std::uint8_t continues = 128;  ///< a further part of the request follows, see `part_inbox`
}  // namespace exchange_extra

/// The parts that the end of an exchange has to look after.
namespace exchange_end {
inline constexpr std::uint8_t watched = 1;  ///< its handler has a stop token
inline constexpr std::uint8_t in_parts = 2;
inline constexpr std::uint8_t targeted = 4;      ///< its target counts it as a user
inline constexpr std::uint8_t continues = 8;     ///< parts of its request may have arrived
inline constexpr std::uint8_t taken = 16;        ///< no exchange, but a part of a request that a handler has
inline constexpr std::uint8_t intercepted = 32;  ///< interceptors have seen it
inline constexpr std::uint8_t asked = 64;        ///< its handler knows of requests in parts
}  // namespace exchange_end

/// A handler's own copy of memory that its client wanted back.
struct own_memory {
    std::vector<std::byte> bytes;
    std::span<const std::byte> request;
    std::span<std::byte> response_room;
};

/// One slot of a session at the server. The worker owns it, but while `open` the exchange does.
struct exchange_state {
    session* owner = nullptr;
    std::byte* header = nullptr;  ///< of its answer; the room behind it takes the payload
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    exchange_phase phase = exchange_phase::idle;
    device_work* device = nullptr;      ///< null: the handler's bytes are on the host
    std::uint8_t extras = 0;            ///< `exchange_extra`; one comparison asks for all of them
    std::atomic<std::uint8_t> ends{0};  ///< `exchange_end`
    std::uint16_t extension_bytes = 0;
    std::uint16_t metadata_bytes = 0;
    std::uint16_t interceptors = 0;    ///< how many have seen it, with `exchange_end::intercepted`
    server_series* counts = nullptr;   ///< where it counts; null: nowhere
    const handler* service = nullptr;  ///< on a device: whose request it is, while it waits for a stream

    // The request.
    std::uint64_t trace_id = 0;
    nanoseconds arrival{};
    nanoseconds handler_start{};
    nanoseconds deadline{};
    std::span<const std::byte> request;
    std::span<std::byte> response_room;
    std::atomic<const own_memory*> own{nullptr};  ///< in place of both, once the client is gone
    /// For the response.
    [[nodiscard]] std::span<std::byte> room() const noexcept;
    /// Whether `room`, where the link takes the response from, is memory that its client has lent and no link copies
    /// it there: over `local`. Only of slots on the host.
    [[nodiscard]] bool is_wanted_in(std::span<const std::byte> room) const noexcept {
        return (extras & exchange_extra::borrowed) != 0 && room.data() != header + header_bytes;
    }

    // The answer.
    struct fields {
        status code = status::ok;
        bool counts_apart = false;  ///< it has a target, failed, or has stages
        std::uint32_t application_code = 0;
        const region_state* lent = nullptr;
        std::array<nanoseconds, 3> stages{};  ///< by `stage`

        void fail(status why) noexcept {
            code = why;
            counts_apart = true;
        }
        void record(stage what, nanoseconds duration) noexcept {
            stages[static_cast<std::size_t>(what)] += duration;
            counts_apart = true;
        }
    } answer;  ///< cleared at once when the request is admitted
    std::span<const std::byte> payload;
    std::atomic<std::uint32_t>* leases = nullptr;  ///< of `payload`, until it is handed over

    /// Lease of the last lent answer, until the transport has released it.
    std::atomic<std::uint32_t>* leases_out = nullptr;
    union {
        served_target* target = nullptr;  ///< with `exchange_end::targeted`
        exchange_state* other;            ///< of a part of a request that came too early, beside `next`
    };

    /// Link of the worker's queue of answers from other threads, of the room that a call's parts have, or of the parts
    /// of its request.
    exchange_state* next = nullptr;
};

/// Ends the process: an exchange was used after its answer.
[[noreturn]] exchange_state& misused_exchange() noexcept;

/// The checked precondition of every method of the public `exchange`: it is still open.
[[nodiscard]] inline exchange_state& open_state(exchange_state* state) noexcept {
    return state != nullptr ? *state : misused_exchange();
}

}  // namespace accel::core
