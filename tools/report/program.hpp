// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

/// What every program of this repository does alike.
namespace accel {
class server;
}

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
/// The same, and SIGHUP.
void block_server_signals();
/// Waits for SIGINT or SIGTERM. After `block_server_signals`: calls `on_hangup` at each SIGHUP.
void wait_for_stop_signal(const std::function<void()>& on_hangup = {});
/// After `block_server_signals`: a descriptor from which these signals are read (`signalfd_siginfo`), without waiting;
/// -1: there are no more descriptors. Its owner closes it.
[[nodiscard]] int open_server_signals() noexcept;
/// What a server with these URIs does at SIGHUP: reads its keys again, and says on standard error what became of it.
void answer_hangup(std::string_view program, server& one, std::span<const std::string> uris);

}  // namespace accel::report
