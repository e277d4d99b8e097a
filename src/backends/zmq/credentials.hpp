// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace accel::zmq {

/// A CURVE key, binary.
using curve_key = std::array<std::byte, 32>;

/// Overwrites a secret; the compiler does not leave that out.
void wipe(std::span<std::byte> secret) noexcept;

/// An ephemeral CURVE key pair. Wiped when it is dropped; ZeroMQ keeps a copy for as long as its socket lives.
class key_pair {
  public:
    /// `unsupported` where ZeroMQ was built without CURVE.
    [[nodiscard]] static result<key_pair> make();
    key_pair() = default;
    key_pair(key_pair&& other) noexcept;
    key_pair& operator=(key_pair&& other) noexcept;
    ~key_pair() { wipe(secret_); }

    [[nodiscard]] const curve_key& public_key() const noexcept { return public_; }
    [[nodiscard]] const curve_key& secret_key() const noexcept { return secret_; }

  private:
    curve_key public_{};
    curve_key secret_{};
};

/// ZeroMQ did not take an option; zmq_errno() says why.
[[nodiscard]] error refused_credentials();

}  // namespace accel::zmq
