// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace accel::tests {

/// One row of backends.def: what the suite has to know about a scheme.
struct backend_case {
    std::string scheme;
    bool network = false;          ///< peers may be other processes; the URI has host and port
    bool encrypted = false;        ///< with keys: payload bytes changed on the way are never delivered
    bool sockets = true;           ///< a network's data passes sockets, where a proxy can stand between
    std::size_t sessions = 1000;   ///< how many sessions `sessions_test` opens at once
    std::size_t connects = 4'000;  ///< how often `leak_test` connects and disconnects

    /// A URI to listen on: any free port, or a name not used before.
    [[nodiscard]] std::string listen_uri() const;

    friend std::ostream& operator<<(std::ostream& out, const backend_case& c) { return out << c.scheme; }
};

[[nodiscard]] const std::vector<backend_case>& all_backends();
[[nodiscard]] const std::vector<backend_case>& network_backends();

}  // namespace accel::tests
