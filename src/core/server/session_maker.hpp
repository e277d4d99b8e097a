// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/connection.hpp"
#include "core/poller.hpp"

#include <accel_transport/completion.hpp>
#include <accel_transport/status.hpp>

#include <memory>

namespace accel::core {

class accelerator_device;
class backend;
class further_keys;
struct metrics_sums;

/// Serves a server's sessions in place of handlers: GPU-resident services do. Its requests pass the host by, so that
/// the server's only thread sleeps until a session ends.
class session_maker {
  public:
    virtual ~session_maker() = default;
    /// What its server's URI may say beside `server_options`. Before `open`.
    [[nodiscard]] virtual further_keys* keys() noexcept = 0;
    /// What the server's thread watches; the only event is `lost`. Once, before any session. `limits`: of each session.
    /// `on`: where `server_options::memory` says; null: the host.
    [[nodiscard]] virtual result<std::unique_ptr<event_source>> open(backend& scheme, const poller_options& options,
                                                                     const link_geometry& limits,
                                                                     accelerator_device* on) = 0;
    /// The server's end of a new session. Control path, any thread.
    [[nodiscard]] virtual result<std::unique_ptr<connection>> connect(const link_config& config) = 0;
    /// The client of this session waits for the call no more. Any thread, until the session is lost.
    virtual void cancel(connection& of, call_id which) noexcept = 0;
    /// What its calls have counted. Any thread, from `open` until what it returned has gone.
    virtual void add_to(metrics_sums& sums) const = 0;
};

}  // namespace accel::core
