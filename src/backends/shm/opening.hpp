// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/shm/descriptors.hpp"
#include "core/clock.hpp"
#include "core/connection.hpp"

#include <accel_transport/status.hpp>

namespace accel::shm {

/// A client's data connection, and what the server has passed over it.
struct opened {
    core::unique_fd socket;
    passed_descriptors descriptors;
};

/// Connects to the server, shows it the session's token and takes its answer. Waits, up to the deadline.
[[nodiscard]] result<opened> open_data_connection(const core::link_grant& grant, core::nanoseconds deadline);

}  // namespace accel::shm
