// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/model.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace accel::examples::serving {

/// A model from a file: TorchScript (`.pt`) or a package of AOTInductor's (`.pt2`), on this GPU, or on the host for -1.
/// Shapes are those that the table has for `name`. May block. `unsupported`: this build has no LibTorch;
/// `invalid_argument`: no such file, or not a model of these shapes.
[[nodiscard]] result<std::unique_ptr<model>> load_torch_file(std::string_view name, const std::string& path,
                                                             std::int16_t gpu);

/// Whether this build has LibTorch.
[[nodiscard]] bool has_torch_files() noexcept;

}  // namespace accel::examples::serving
