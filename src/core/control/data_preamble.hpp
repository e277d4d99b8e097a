// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/protocol.hpp"

#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The first bytes of each connection to a server's port (docs/protocol.md, section 4): what it is for.
namespace accel::core {

inline constexpr std::size_t greeting_bytes = 8;
inline constexpr std::string_view control_greeting{"ACCLCTL\n", greeting_bytes};
inline constexpr std::string_view data_greeting{"ACCLTCP\n", greeting_bytes};
/// The first byte of a TLS connection (RFC 8446, section 5.1: a handshake record).
inline constexpr std::byte tls_first_byte{0x16};

/// A data connection begins with this: which session it belongs to.
struct data_preamble {
    std::array<char, greeting_bytes> magic{'A', 'C', 'C', 'L', 'T', 'C', 'P', '\n'};
    std::uint8_t version = static_cast<std::uint8_t>(protocol_version);
    std::array<std::uint8_t, 7> reserved{};
    std::uint64_t session_id = 0;
    session_token token{};
    std::array<std::byte, 24> padding{};
};
static_assert(sizeof(data_preamble) == 64);

/// Empty: malformed; `why` says how.
[[nodiscard]] std::optional<data_preamble> read_data_preamble(std::span<const std::byte> bytes, std::string& why);

/// The server's answer to a preamble: u16 status, u16 length of the sentence, then the sentence.
inline constexpr std::size_t data_answer_head_bytes = 4;
inline constexpr std::size_t max_data_answer_bytes = data_answer_head_bytes + 512;
[[nodiscard]] std::vector<std::byte> encode_data_answer(status code, std::string_view why);
/// Answers a connection whose preamble has been read. False: its socket, which is empty, did not take the answer.
bool answer_data(data_connection& to, status code, std::string_view why);
/// Its code where no session waits for the connection: it is unknown, has its connection, or the token is wrong.
inline constexpr status no_session_waits = status::not_found;
[[nodiscard]] error refuse_without_session();
/// How many bytes the answer has, once its head has come; 0: it is malformed.
[[nodiscard]] std::size_t data_answer_bytes(std::span<const std::byte, data_answer_head_bytes> head) noexcept;
/// For a whole answer.
[[nodiscard]] result<void> decode_data_answer(std::span<const std::byte> bytes);
/// As an application hears it: `no_session_waits` is `unauthorized` there.
[[nodiscard]] result<void> as_told_to_applications(result<void> answer);

}  // namespace accel::core
