// SPDX-License-Identifier: Apache-2.0
#include "backends.hpp"

#include "loopback.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>

#include <unistd.h>

namespace accel::tests {

std::string backend_case::listen_uri() const {
    static std::atomic<unsigned> next{0};
    const bool has_port = network && scheme != "shm";
    if (has_port) return scheme + "://" + own_loopback() + ":0";
    return scheme + "://conformance-" + std::to_string(getpid()) + "-" + std::to_string(next++);
}

const std::vector<backend_case>& all_backends() {
#define ACCEL_CONFORMANCE_BACKEND(name, ...) backend_case{.scheme = #name __VA_OPT__(, ) __VA_ARGS__},
    static const std::vector<backend_case> all{
#include "backends.def"
    };
#undef ACCEL_CONFORMANCE_BACKEND
    return all;
}

const std::vector<backend_case>& network_backends() {
    static const std::vector<backend_case> network = [] {
        std::vector<backend_case> out;
        std::copy_if(all_backends().begin(), all_backends().end(), std::back_inserter(out),
                     [](const backend_case& c) { return c.network; });
        return out;
    }();
    return network;
}

}  // namespace accel::tests
