// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

namespace accel::perf {

/// Payload sizes and how often each is chosen.
class size_mix {
  public:
    struct part {
        std::size_t bytes = 0;
        std::uint32_t weight = 0;
        friend bool operator==(const part&, const part&) = default;
    };

    /// "64:70,4KiB:20,1MiB:10": at most 64 sizes, weights from 1 to 1,000,000.
    [[nodiscard]] static std::optional<size_mix> parse(std::string_view text);

    [[nodiscard]] const std::vector<part>& parts() const noexcept { return parts_; }
    [[nodiscard]] bool empty() const noexcept { return parts_.empty(); }
    [[nodiscard]] std::size_t longest() const noexcept;
    [[nodiscard]] double mean_bytes() const noexcept;
    /// One size. Not of an empty mix.
    [[nodiscard]] std::size_t choose(std::mt19937_64& random) const noexcept;

  private:
    std::vector<part> parts_;
    std::uint64_t total_ = 0;
};

}  // namespace accel::perf
