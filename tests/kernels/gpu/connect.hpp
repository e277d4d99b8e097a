// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace accel::tests {

/// A channel to a service on this GPU, without keys; throws std::runtime_error with the reason if there is none.
inline channel connect_to_service(context& from, const std::string& uri, std::size_t bytes, std::uint32_t slots) {
    channel_options wanted;
    wanted.slots = slots;
    wanted.request_bytes = wanted.response_bytes = bytes;
    wanted.security.insecure = true;
    wanted.peer_timeout = patience(2s);
    wanted.call_timeout = patience(10s);
    auto made = channel::connect(from, uri, wanted);
    if (!made) throw std::runtime_error(made.error().message);
    return std::move(*made);
}

}  // namespace accel::tests
