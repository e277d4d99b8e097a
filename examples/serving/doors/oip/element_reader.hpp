// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace accel::examples::serving::oip {

/// Reads the elements of a tensor out of a JSON value, flat or nested like its shape, straight into bytes: without a
/// tree, and a piece at a time, because others wait meanwhile.
class element_reader {
  public:
    /// `text` is not checked. `what` has a form in JSON. BYTES: `strings`, and its elements have up to `max_bytes`.
    element_reader(std::string_view text, const tensor& what, bool strings, std::uint64_t max_bytes);

    /// Goes on for about so many characters. True: more follow. `invalid_argument`: this is no such value.
    [[nodiscard]] result<bool> step(std::size_t characters);
    /// The elements, once `step` has said false.
    [[nodiscard]] std::vector<std::byte>& bytes() noexcept { return bytes_; }

  private:
    enum class mistake : std::uint8_t { none, shape, element, too_long };
    /// Writes the number that a token is; false: it is none of the type.
    using number_writer = bool (*)(std::string_view token, std::byte* to);

    [[nodiscard]] mistake take_next();
    [[nodiscard]] mistake open();
    [[nodiscard]] mistake close();
    [[nodiscard]] mistake take_element();
    [[nodiscard]] mistake take_number();
    [[nodiscard]] mistake take_text();
    [[nodiscard]] bool is_placed_well();
    [[nodiscard]] error sentence_of(mistake what) const;

    std::string_view text_;
    tensor what_;
    std::uint64_t count_;
    std::uint64_t max_bytes_;
    number_writer write_ = nullptr;  ///< null: the elements are texts
    std::size_t at_ = 0;
    std::uint32_t depth_ = 0;
    std::uint32_t leaf_depth_ = 0;                             ///< of the elements, once there is one
    std::array<std::uint64_t, max_tensor_rank + 2> inside_{};  ///< values in the open array of each depth
    bool value_follows_ = true;                                ///< else a comma, or the end of an array
    std::uint64_t elements_ = 0;
    std::vector<std::byte> bytes_;
};

/// All of it at once.
[[nodiscard]] result<std::vector<std::byte>> read_elements(std::string_view text, const tensor& what,
                                                           bool strings = false, std::uint64_t max_bytes = 0);

/// How many elements a value has that is an element, or arrays of them without an empty one. Of another text: any
/// number.
[[nodiscard]] std::uint64_t count_elements(std::string_view text) noexcept;

/// What a JSON string is. `invalid_argument`: this is none.
[[nodiscard]] result<std::string> read_string(std::string_view text);

}  // namespace accel::examples::serving::oip
