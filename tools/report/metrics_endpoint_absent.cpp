// SPDX-License-Identifier: Apache-2.0
#include "report/metrics_endpoint.hpp"

/// In place of metrics_endpoint.cpp where prometheus-cpp is missing.
namespace accel::report {

result<std::unique_ptr<metrics_endpoint>> metrics_endpoint::open(const context& /*ctx*/, const std::string& /*at*/,
                                                                 more_metrics /*more*/) {
    return error{
        status::unsupported, 0,
        "this program was built without prometheus-cpp; install prometheus-cpp-dev and build it again, or leave "
        "out --metrics"};
}

}  // namespace accel::report
