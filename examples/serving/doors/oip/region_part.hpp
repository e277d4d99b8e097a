// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {

/// A tensor's place in memory that its client has registered: "shared_memory_region", "…_offset", "…_byte_size".
struct region_part {
    std::string region;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};

/// An input that lies in a region.
struct region_input {
    std::size_t index = 0;  ///< in `model_description::inputs`
    region_part from;
};

/// What the parameters of a tensor say of a region; nothing: they name none. `invalid_argument`: the name is no text,
/// or offset or size are no whole numbers.
[[nodiscard]] result<std::optional<region_part>> read_region_part(const nlohmann::json& parameters);

}  // namespace accel::examples::serving::oip
