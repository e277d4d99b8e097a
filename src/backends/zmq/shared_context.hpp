// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/gatekeeper.hpp"

#include <accel_transport/status.hpp>

#include <memory>
#include <mutex>
#include <optional>

namespace accel::zmq {

/// The ZeroMQ context of a backend, and its gatekeeper. Every poller and link holds it, so it ends after the
/// last socket. Thread-safe.
class shared_context {
  public:
    /// `system_error` where descriptors are short.
    [[nodiscard]] static result<std::shared_ptr<shared_context>> open();
    explicit shared_context(void* made) noexcept : handle_(made) {}
    ~shared_context();
    shared_context(const shared_context&) = delete;
    shared_context& operator=(const shared_context&) = delete;

    [[nodiscard]] void* get() const noexcept { return handle_; }
    /// Started by the first server's poller.
    [[nodiscard]] result<gatekeeper*> gate();

  private:
    void* handle_;
    std::mutex mutex_;
    std::optional<gatekeeper> gate_;
};

}  // namespace accel::zmq
