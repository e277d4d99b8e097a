// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/model_server/model_registry.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel::examples::serving {

/// What a server prints when it ends.
struct summary {
    std::uint64_t requests = 0;
    std::uint64_t errors = 0;
    std::chrono::nanoseconds cpu_user{};    ///< of the whole process
    std::chrono::nanoseconds cpu_kernel{};  ///< likewise
    double rss_mib = 0;                     ///< at most
    std::vector<model_registry::row> models;
};

/// Of this process so far: processor time and memory.
void add_process_to(summary& out);
/// The sum of both; memory as well, models by name.
void add_to(summary& out, const summary& more);

/// "serving NAMES at URI" for each endpoint, or one line of JSON; written out.
void print_ready(bool json, const std::vector<std::string>& endpoints, const std::vector<std::string>& models);
/// A table, or one line of JSON; written out.
void print_summary(bool json, const summary& seen);

/// Of one line of JSON as they are printed; nothing of any other text.
struct ready_line {
    std::vector<std::string> endpoints;
    std::vector<std::string> models;
};
[[nodiscard]] std::optional<ready_line> read_ready(const std::string& line);
[[nodiscard]] std::optional<summary> read_summary(const std::string& line);

}  // namespace accel::examples::serving
