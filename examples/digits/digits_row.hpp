// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/digits_load.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace accel::examples::digits {

/// Stages in the order in which a request passes them.
inline constexpr std::array<std::pair<std::string_view, std::chrono::nanoseconds timeline::*>, 6> stages{
    {{"request", &timeline::request},
     {"queue", &timeline::queue},
     {"copy", &timeline::copy},
     {"preprocessing", &timeline::preprocessing},
     {"inference", &timeline::inference},
     {"response", &timeline::response}}};

/// One line of the table: a scheme with one form of input. Times in microseconds.
struct digits_row {
    std::string scheme;
    std::string input;
    std::string memory;  ///< where the server worked: host, cuda:0; empty: not known here
    std::uint32_t clients = 0;
    std::uint64_t requests = 0;  ///< answered
    std::uint64_t correct = 0;
    double p50_us = 0;  ///< submit to completion
    double p99_us = 0;
    double rate_per_s = 0;
    std::array<double, stages.size()> stages_us{};  ///< the median of each
    double cpu_us_per_request = 0;
};

[[nodiscard]] digits_row row_of(const load_options& options, const load_outcome& outcome);

[[nodiscard]] nlohmann::json to_json(const digits_row& row);
/// Takes what `to_json` made; throws nlohmann::json::exception for anything else.
[[nodiscard]] digits_row from_json(const nlohmann::json& entry);

[[nodiscard]] std::string table_text(const std::vector<digits_row>& rows);

}  // namespace accel::examples::digits
