// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace accel::softnic {

/// A modelled link: what every port of a fabric sends and receives with.
struct link_settings {
    std::uint64_t bits_per_second = 0;  ///< of a port, in each direction; 0: no model, as fast as memory is copied
    std::uint64_t delay_ns = 0;         ///< propagation, one way

    [[nodiscard]] bool on() const { return bits_per_second != 0; }
    friend bool operator==(link_settings, link_settings) = default;
};

/// "25Gb/s,1us": rate (b/s, kb/s, Mb/s, Gb/s, Tb/s) and delay (ns, us, ms), decimal fractions allowed. Throws
/// std::invalid_argument with a sentence.
[[nodiscard]] link_settings parse_link(std::string_view text);

}  // namespace accel::softnic
