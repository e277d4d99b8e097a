// SPDX-License-Identifier: Apache-2.0
#include "core/pacing.hpp"

#include "core/net/socket.hpp"

#include <fmt/format.h>

namespace accel::core {

result<void> check_pacing(bit_rate wanted, const backend& scheme) {
    if (wanted == bit_rate{}) return {};
    if (scheme.paces()) return probe_pacing();
    return error{status::unsupported, 0,
                 fmt::format("{} does not use OS sockets, which do the pacing; use tcp or zmq, or leave out pacing",
                             scheme.scheme())};
}

}  // namespace accel::core
