// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/uri.hpp"

#include <accel_transport/gpu_options.hpp>

#include <string>
#include <string_view>
#include <variant>

namespace accel::gpu {

/// The URI keys that only services and channels of kernels have; sets what they were made for.
class kernel_keys final : public core::further_keys {
  public:
    explicit kernel_keys(gpu_service_options& into) noexcept : into_(&into) {}
    explicit kernel_keys(gpu_channel_options& into) noexcept : into_(&into) {}
    [[nodiscard]] result<bool> set(std::string_view name, std::string_view value) override;
    [[nodiscard]] std::string names() const override;

  private:
    std::variant<gpu_service_options*, gpu_channel_options*> into_;
};

/// Bounds, and options that exclude each other.
[[nodiscard]] result<void> check(const kernel_options& options, const verbs_options& verbs);

}  // namespace accel::gpu
