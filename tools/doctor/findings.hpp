// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/context.hpp>
#include <accel_transport/status.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel::doctor {

/// A limit of this process; nothing: unlimited.
using limit = std::optional<std::uint64_t>;

/// What this machine can do.
struct findings {
    std::string version;         ///< of this library
    std::string libzmq_version;  ///< empty: left out of this build
    bool libzmq_curve = false;   ///< CURVE is compiled in: without it no keys for zmq
    std::string kernel;          ///< "Linux 6.1.0 x86_64"
    unsigned cores = 0;          ///< that this process may use
    std::uint64_t memory_bytes = 0;
    limit locked_memory_bytes;  ///< RLIMIT_MEMLOCK, the soft one
    limit open_files;           ///< RLIMIT_NOFILE, the soft one
    std::vector<scheme_report> schemes;
    std::vector<std::string> auto_ranking;  ///< usable schemes between hosts, best first
    std::vector<std::string> advice;        ///< a sentence for each thing worth changing
};

[[nodiscard]] result<findings> examine();

}  // namespace accel::doctor
