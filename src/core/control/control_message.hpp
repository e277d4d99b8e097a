// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/control/session.hpp"

#include <accel_transport/completion.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/target.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

/// Messages of the control plane (docs/protocol.md, section 4): little-endian, one frame each (control_stream.hpp).
/// Every message starts with the same 16 bytes, whatever its version: u32 magic, u16 version, u16 kind, u64 request.
namespace accel::core {

inline constexpr std::uint16_t control_version = 1;
inline constexpr std::size_t max_control_bytes = 2048;
inline constexpr std::size_t max_description_bytes = 512;
inline constexpr std::size_t max_cancels = 128;  ///< calls in one message

/// /proc/sys/kernel/random/boot_id as 16 bytes: names a running kernel. Processes in other time namespaces, and copies
/// of a virtual machine, have the same one and other clocks.
using boot_identity = std::array<std::byte, 16>;

/// Two of the four times of a clock comparison: when the message that this one answers was sent (on the
/// receiver's clock, 0: none) and came in, and when this one was sent (on the sender's clock).
struct clock_stamps {
    nanoseconds echo{};
    nanoseconds received{};
    nanoseconds sent{};
};

struct hello {
    session_request request;
    nanoseconds sent{};
};

struct welcome {
    session_grant grant;
    boot_identity boot{};
    clock_stamps clocks;
};

struct refused {
    status code = status::protocol_error;
    std::string why;
};

struct query {};

struct offers {
    std::vector<std::string> schemes;
};

struct heartbeat {
    clock_stamps clocks;
};

/// Either way: the session is over. Session 0: all of this connection.
struct goodbye {
    std::uint64_t session_id = 0;
    status why = status::closed;
};

/// Client: does the server have this target?
struct find_target {
    std::string name;
};

struct target_found {
    std::uint32_t number = 0;
};

/// Client: nobody waits for the answers of these calls. They may not have arrived yet, or may have been answered.
struct cancel_calls {
    std::uint64_t session_id = 0;
    std::vector<call_id> calls;  ///< 1 to `max_cancels`
};

/// Server: it drains. No session of this connection has calls begun any more; those in flight are answered.
struct going_away {};

/// Client: which targets with names after this one (empty: all) does the server have?
struct list_targets {
    std::string after;
};

struct targets_listed {
    target_page page;
};

/// Client: does this target serve? An empty name asks for the server.
struct check_health {
    std::string name;
};

struct health_checked {
    health_state state = health_state::unknown;
};

struct control_message {
    std::uint64_t request = 0;  ///< chosen by the client, sent back with the answer
    std::variant<hello, welcome, refused, query, offers, heartbeat, goodbye, find_target, target_found, cancel_calls,
                 going_away, list_targets, targets_listed, check_health, health_checked>
        body;
};

/// Longer texts are cut; durations are brought into the range that `decode_control` accepts.
[[nodiscard]] std::vector<std::byte> encode_control(const control_message& message);

/// Checks every byte. `protocol_error` or `version_mismatch`, with a sentence, for what no correct peer sends.
[[nodiscard]] result<control_message> decode_control(std::span<const std::byte> bytes);

/// The request number of a message that could not be decoded, if it is a question (hello, query, find_target,
/// list_targets, check_health); else 0.
[[nodiscard]] std::uint64_t question_of_malformed(std::span<const std::byte> bytes) noexcept;
/// The same of an answer (welcome, offers, target_found, targets_listed,
/// health_checked).
[[nodiscard]] std::uint64_t answer_of_malformed(std::span<const std::byte> bytes) noexcept;

/// All zero if the host does not say; two such hosts are never taken for the same.
[[nodiscard]] boot_identity read_boot_identity();

}  // namespace accel::core
