// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/context.hpp>
#include <accel_transport/metrics.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace accel::report {

/// What a program counts beside its context. A thread of the endpoint calls it.
using more_metrics = std::function<std::vector<metric_family>()>;

/// Answers scrapes of `/metrics`, and `/healthz`, until it is destroyed. Its context and `more` have to outlive it.
class metrics_endpoint {
  public:
    virtual ~metrics_endpoint() = default;
    /// "HOST:PORT": where it is reached; with the real port.
    [[nodiscard]] virtual std::string address() const = 0;

    /// `at`: of `read_address`.
    [[nodiscard]] static result<std::unique_ptr<metrics_endpoint>> open(const context& ctx, const std::string& at,
                                                                        more_metrics more = {});
};

/// The same for what a command line said: none for an empty text. Prints where it is, or complains as `program`.
struct metrics_choice {
    std::unique_ptr<metrics_endpoint> endpoint;
    bool failed = false;
};
[[nodiscard]] metrics_choice open_metrics(const char* program, const context& ctx, const std::string& at,
                                          more_metrics more = {});

}  // namespace accel::report
