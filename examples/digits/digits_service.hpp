#pragma once

#include "digits/network.hpp"

#include <accel_transport/server.hpp>

#include <array>
#include <cstdint>
#include <type_traits>

namespace accel::examples::digits {

/// The answer to every request: 44 bytes, little-endian.
struct digit_answer {
    std::uint32_t label = 0;                  ///< the digit, 0 … 9
    std::array<float, class_count> scores{};  ///< probability of each digit; they sum to 1
};
static_assert(sizeof(digit_answer) == 44 && std::is_trivially_copyable_v<digit_answer>);

/// Recognises digits. A request is one of two things, told apart by its length:
///   raw     921,600 bytes: a 640x480 RGB frame; the service preprocesses it
///   tensor  256 bytes: 64 floats of 0 … 1, row by row
/// Anything else, a blank frame or a value out of range is answered with `invalid_argument` and a sentence.
/// Any number of workers may call it at once; it must outlive the server.
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
