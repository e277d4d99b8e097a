// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/awaited_connections.hpp"

namespace accel::tcp {

class tcp_link;

struct connection_terms {
    bool encrypted = false;
};

/// A server's connections, as far as the poller.
class arrivals : public core::awaited_connections<tcp_link, connection_terms, core::data_connection> {
  public:
    /// Checks the session, its token and whether the connection is as agreed; answers it and keeps it for the poller.
    [[nodiscard]] result<void> take(core::data_connection& made);
};

}  // namespace accel::tcp
