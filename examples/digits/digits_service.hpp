// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/digit_answer.hpp"
#include "digits/network.hpp"

#include <accel_transport/server.hpp>

#include <string_view>

namespace accel::examples::digits {

/// Why a request is refused for its length, or that of the room for its answer.
inline constexpr std::string_view length_wrong =
    "send a raw 640x480 RGB frame of 921600 bytes or a tensor of 64 floats, 256 bytes";
inline constexpr std::string_view room_too_small = "the answer needs response_bytes of 44";

/// Recognises digits. A request is one of two things, told apart by its length:
///   raw     921,600 bytes: a 640x480 RGB frame; the service preprocesses it
///   tensor  256 bytes: 64 floats of 0 … 1, row by row
/// Anything else, a blank frame or a value out of range is answered with `invalid_argument` and a sentence.
/// In host memory only. Any number of workers may call it at once; it must outlive the server.
class digits_service {
  public:
    /// With the network that is built into the program.
    [[nodiscard]] static result<digits_service> load();

    void serve(exchange request) const;

  private:
    explicit digits_service(const network& model) noexcept : model_(model) {}

    network model_;
};

}  // namespace accel::examples::digits
