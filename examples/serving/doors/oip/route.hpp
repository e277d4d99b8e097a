// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace accel::examples::serving::oip {

/// What a path asks for.
enum class action : std::uint8_t {
    server_metadata,
    live,
    ready,
    all_statistics,
    model_metadata,
    model_ready,
    model_configuration,
    model_statistics,
    infer,
    generate,
    generate_stream,
    region_status,
    region_register,
    region_unregister,
};

struct route {
    action what = action::live;
    std::string model{};   ///< empty: none is named
    std::string region{};  ///< of region_…; empty: all of them
    bool on_gpu = false;   ///< of region_…: CUDA shared memory
};

/// Reads a path, or a whole http(s):// URI, with its %-escapes; what follows '?' is left out. `not_found`: nothing is
/// there, or the model's version is not 1, the only one.
[[nodiscard]] result<route> find_route(std::string_view target);

/// The method that an action is asked with.
[[nodiscard]] std::string_view method_of(action what) noexcept;

}  // namespace accel::examples::serving::oip
