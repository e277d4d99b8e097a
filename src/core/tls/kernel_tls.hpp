// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tls/tls_stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

/// Records that the OS encrypts (Documentation/networking/tls.rst of Linux): what the socket is given is plain from
/// then on, and goes straight from where it lies. What is received stays OpenSSL's: one read by the OS would work
/// through all records that the socket holds, of one byte each if the peer likes, and not tell how many there were.
namespace accel::core {

/// The keys of what an end sends, as of its next record. Wiped when dropped.
struct record_keys {
    std::size_t key_bytes = 0;  ///< 16 or 32: AES-128-GCM or AES-256-GCM
    std::array<unsigned char, 32> key{};
    std::array<unsigned char, 12> iv{};
    std::uint64_t sequence = 0;  ///< of the next record

    record_keys() = default;
    record_keys(const record_keys&) = default;
    record_keys& operator=(const record_keys&) = default;
    ~record_keys();
};

/// Empty: the OS does not take this cipher, or the secrets are gone.
[[nodiscard]] std::optional<record_keys> next_record_keys(const tls_stream& of);

/// Lets the OS encrypt what is sent on `fd` from now on, if it has the module `tls`. The handshake is done;
/// `stream` must not send any more, and goes on receiving. False: nothing has changed.
[[nodiscard]] bool let_kernel_encrypt(const tls_stream& stream, int fd) noexcept;

}  // namespace accel::core
