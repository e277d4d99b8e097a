// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/target.hpp>

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace accel::examples::serving {

/// The target at which a server says which models it has loaded. It answers an empty request with the numbers of these
/// models' targets, each as a `std::uint32_t`: at most 4 KiB, as a server has at most `max_targets`.
inline constexpr std::string_view loaded_models_target = "loaded_models";

/// True: an answer of that target names `model`.
[[nodiscard]] inline bool names_model(std::span<const std::byte> answer, target model) noexcept {
    for (; answer.size() >= sizeof model.number; answer = answer.subspan(sizeof model.number))
        if (std::memcmp(answer.data(), &model.number, sizeof model.number) == 0) return true;
    return false;
}

}  // namespace accel::examples::serving
