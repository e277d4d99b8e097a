// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/returned_request.hpp"

#include <algorithm>

namespace accel::examples::serving::doors {

void returned_request::keep(const call_slot& from, std::size_t length) {
    const auto bytes = from.request.first(length);
    bytes_.assign(bytes.begin(), bytes.end());
    kept_ = true;
}

void returned_request::move_to(const call_slot& next) {
    std::ranges::copy(bytes_, next.request.begin());
    bytes_ = {};
    kept_ = false;
}

}  // namespace accel::examples::serving::doors
