// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <vector>

namespace accel::bench {

/// What it takes to lend a region for the first time, and after that. Medians, in microseconds.
struct registration_cost {
    std::size_t size_bytes = 0;
    double first_us = 0;    ///< `submit` of a slice of a region that was not lent before
    double further_us = 0;  ///< `submit` of another slice of it
    double bare_us = 0;     ///< `ibv_reg_mr` of the same memory for the same use
};

/// Regions that lie behind each other in one mapping. Medians of the time for all, in microseconds.
struct small_regions_cost {
    std::size_t regions = 0;
    std::size_t size_bytes = 0;  ///< of each
    double alone_us = 0;         ///< first use of each, one after the other
    double covered_us = 0;       ///< the same, where a region around them had been lent before
    double bare_us = 0;          ///< `ibv_reg_mr` of each
};

struct registration_report {
    std::vector<registration_cost> sizes;
    small_regions_cost small;
};

/// Measured in this process, over this machine's RDMA device.
[[nodiscard]] result<registration_report> measure_registration(std::size_t rounds);

}  // namespace accel::bench
