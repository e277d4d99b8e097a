// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/returned_request.hpp"

#include <algorithm>
#include <utility>

namespace accel::examples::serving::doors {

bool returned_request::keep(const call_slot& from, std::size_t length, std::shared_ptr<memory_budget> of) {
    memory_share share{std::move(of)};
    if (!share.grow(length)) return false;
    share_ = std::move(share);
    const auto bytes = from.request.first(length);
    bytes_.assign(bytes.begin(), bytes.end());
    kept_ = true;
    return true;
}

void returned_request::move_to(const call_slot& next) {
    std::ranges::copy(bytes_, next.request.begin());
    bytes_ = {};
    share_ = {};
    kept_ = false;
}

}  // namespace accel::examples::serving::doors
