// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

struct ibv_context;
struct ibv_pd;

namespace accel::bench {

/// The first device, and a protection domain for `ibv_reg_mr`.
class bare_domain {
  public:
    bare_domain() noexcept;
    ~bare_domain();
    bare_domain(const bare_domain&) = delete;
    bare_domain& operator=(const bare_domain&) = delete;

    /// How many microseconds it takes to register all of them, for sending; nothing where one cannot be.
    [[nodiscard]] std::optional<double> register_all(std::span<const std::span<std::byte>> ranges) const;

  private:
    ibv_context* device_ = nullptr;
    ibv_pd* domain_ = nullptr;
};

}  // namespace accel::bench
