// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tls/tls_stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

/// Records that the kernel encrypts and decrypts (Documentation/networking/tls.rst of Linux): the socket's
/// bytes are plain from then on, and go straight from and to where they lie.
namespace accel::core {

/// The keys of one direction as of its next record. Wiped when dropped.
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

/// Empty: the kernel does not take this cipher, or the secrets are gone.
[[nodiscard]] std::optional<record_keys> next_record_keys(const tls_stream& of, bool sending);

enum class kernel_tls : std::uint8_t {
    absent,  ///< nothing has changed: the stream goes on as it is
    taken,   ///< the stream may be dropped; `fd` carries on
    broken,  ///< the connection is lost
};

/// Hands a data connection to the kernel, if it has the module `tls`. The handshake is done, and neither end
/// has sent anything that was not read.
[[nodiscard]] kernel_tls hand_to_kernel(const tls_stream& stream, int fd) noexcept;

}  // namespace accel::core
