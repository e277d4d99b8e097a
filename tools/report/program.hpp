// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstdio>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

/// What every program of this repository does alike.
namespace accel::report {

/// "0.1.0".
[[nodiscard]] std::string version_text();

/// Writes `document` to a file, or to standard output for "-". Says false after a sentence on standard error.
[[nodiscard]] bool write_json(const std::string& path, const nlohmann::json& document);

/// Writes out what was printed to `stream`. Says false after a sentence on standard error: a full disk, say.
[[nodiscard]] bool written(std::FILE* stream);

/// Prints "program: sentence" on standard error and returns exit status 1.
int complain(std::string_view program, std::string_view sentence);
int complain(std::string_view program, const error& failure);

/// Blocks SIGINT and SIGTERM in this thread and those it starts: call it before any is started.
void block_stop_signals();
/// Waits for one of them.
void wait_for_stop_signal();

}  // namespace accel::report
