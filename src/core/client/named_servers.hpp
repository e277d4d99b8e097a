// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/uri.hpp"

#include <accel_transport/status.hpp>

#include <stop_token>
#include <vector>

namespace accel::core {

/// Resolves the host of a `dns+` URI to servers, one for each address: at least one, none twice. In the resolver's
/// order; of more than `max_hosts` addresses, always the same ones. A server's certificate must still have the name.
/// Waits for the resolver until `deadline`.
[[nodiscard]] result<std::vector<uri>> servers_of(const uri& named, nanoseconds deadline,
                                                  const std::stop_token& stopped = {});

/// The same for all hosts of a URI; those without `dns+` stay. A name that is not resolved stays too, for a connect to
/// say why. Names share the time until `deadline`.
[[nodiscard]] std::vector<uri> resolve_names(const std::vector<uri>& hosts, nanoseconds deadline,
                                             const std::stop_token& stopped = {});

}  // namespace accel::core
