// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <string>
#include <string_view>

namespace accel::perf {

/// One URI of `accel_perf loop`, taken apart for the two ends.
struct loop_uris {
    std::string server;          ///< to listen on
    std::string client_query;    ///< "?key=value…" for behind the server's endpoint, or empty
    bool made_insecure = false;  ///< it named no keys, so `insecure=true` was added
};

/// `text` is a URI, or a scheme alone ("tcp"). Options of one end only go to that end, the others to both.
/// Fails where there are neither keys nor `insecure` and the host is not this one.
[[nodiscard]] result<loop_uris> split_for_loop(std::string_view text);

}  // namespace accel::perf
