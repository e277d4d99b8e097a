#include "side.hpp"

#include "report/sizes.hpp"

#include <cstdio>

#include <fmt/format.h>

namespace accel::bench {

int serve_side(const std::vector<std::string>& arguments) {
    if (arguments.size() < 2) return 2;
    const std::string& kind = arguments[0];
    if (kind == "socket") return serve_bare_socket(report::parse_size(arguments[1]).value_or(0));
    if (kind == "zmq") return serve_bare_zmq(arguments[1] == "curve");
    if (kind == "ours") return serve_ours(arguments[1]);
    return 2;
}

void announce(const std::string& endpoint) {
    fmt::print("serving {}\n", endpoint);
    std::fflush(stdout);
}

}  // namespace accel::bench
