// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"

#include <accel_transport/log.hpp>

#include <memory>

namespace accel::core {

class log_writer;
struct log_sink;

/// An application's sink in the log, for as long as this lives. The destructor lets the lines logged before it arrive
/// (`flush_patience` at most) and waits for a call that is under way; after it there is none. On the log's thread (in a
/// sink) it waits for nothing. In a child of `fork`, a parent's registration does nothing.
class log_registration {
  public:
    log_registration() noexcept = default;
    /// An empty function registers nothing.
    explicit log_registration(log_function function);
    log_registration(log_registration&& other) noexcept = default;
    log_registration& operator=(log_registration&& other) noexcept;
    ~log_registration();

  private:
    void end() noexcept;
    log_writer* writer_ = nullptr;
    std::shared_ptr<log_sink> sink_;
};

/// How long the end of a sink or of the process waits for lines that are still to be written.
inline constexpr nanoseconds flush_patience = std::chrono::milliseconds{100};

/// Waits until the lines logged so far are written, but not longer than `within` for a sink or standard error
/// that takes none, nor than two seconds for a log's thread that gets no processor; false if they are not
/// written. Never waits on the log's own thread.
bool flush_log(nanoseconds within = flush_patience) noexcept;

}  // namespace accel::core
