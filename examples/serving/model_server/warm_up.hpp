// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/table.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/status.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving {

/// A name for `local://` that no client knows, by which this process reaches its own server.
[[nodiscard]] std::string warm_up_uri();

/// Sends each model `count` requests of zeros over `uri`, as many at once as there are slots, so that all that is made
/// on first use is there: kernels, streams, buffers. Then a tenth as many images, where it takes them; their answers
/// are not looked at, because zeros may be no image. Fails as the first inference that fails.
[[nodiscard]] result<void> warm_up(context& ctx, std::string_view uri, const std::vector<std::string>& models,
                                   std::uint32_t count);

}  // namespace accel::examples::serving
