// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace accel::examples::serving::oip {

/// Writes the elements of a tensor as a flat JSON array, a piece at a time.
class element_writer {
  public:
    /// BYTES: `strings`, and `count_strings` has found `elements` good. They have to outlive it.
    element_writer(const tensor& what, bool strings, std::span<const std::byte> elements);

    /// Appends about so many characters. True: more follow. `invalid_argument`: a number is infinite or none, or a
    /// string is no UTF-8, which JSON cannot say. Then `to` has a part.
    [[nodiscard]] result<bool> step(std::size_t characters, std::string& to);

  private:
    /// Appends the first element, and takes it away; false: JSON cannot say it.
    using appender = bool (*)(std::string& to, std::span<const std::byte>& from);

    data_type type_;
    bool strings_;
    appender append_ = nullptr;
    std::span<const std::byte> left_;
    bool begun_ = false;
};

/// All of them at once.
[[nodiscard]] result<void> append_elements(std::string& to, const tensor& what, bool strings,
                                           std::span<const std::byte> elements);

/// The longest text that they become.
[[nodiscard]] std::uint64_t longest_json(const tensor& what, bool strings) noexcept;

}  // namespace accel::examples::serving::oip
