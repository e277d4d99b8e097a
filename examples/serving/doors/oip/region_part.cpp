// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/region_part.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/json_text.hpp"

namespace accel::examples::serving::oip {

result<std::optional<region_part>> read_region_part(const nlohmann::json& parameters) {
    const nlohmann::json* name = member(parameters, "shared_memory_region");
    if (name == nullptr) return std::optional<region_part>{};
    const nlohmann::json* bytes = member(parameters, "shared_memory_byte_size");
    const nlohmann::json* offset = member(parameters, "shared_memory_offset");
    const bool sized = bytes != nullptr && bytes->is_number_unsigned();
    const bool placed = offset == nullptr || offset->is_number_unsigned();
    if (!name->is_string() || !sized || !placed) return bad_region_part();
    return std::optional{region_part{name->get<std::string>(), offset == nullptr ? 0 : offset->get<std::uint64_t>(),
                                     bytes->get<std::uint64_t>()}};
}

}  // namespace accel::examples::serving::oip
