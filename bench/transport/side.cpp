// SPDX-License-Identifier: Apache-2.0
#include "side.hpp"

#include "report/sizes.hpp"

namespace accel::bench {

int serve_side(const std::vector<std::string>& arguments) {
    if (arguments.size() < 2) return 2;
    const std::string& kind = arguments[0];
    if (kind == "socket") return serve_bare_socket(*parse_size(arguments[1]));
    if (kind == "tls") return serve_bare_tls(*parse_size(arguments[1]));
    if (kind == "zmq") return serve_bare_zmq(arguments[1] == "curve");
    if (kind == "verbs-busy" || kind == "verbs-block") {
        if (arguments.size() < 3) return 2;
        const auto in_flight = static_cast<std::uint32_t>(*parse_size(arguments[2]));
        return serve_bare_verbs(*parse_size(arguments[1]), in_flight, kind == "verbs-block");
    }
    if (kind == "ours") return serve_ours(arguments[1]);
    return 2;
}

}  // namespace accel::bench
