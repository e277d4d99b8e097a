// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/control/security.hpp"
#include "core/control/session.hpp"

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace accel::core {

/// The client side of the control plane of a context: one thread, one connection to each server endpoint,
/// with TLS where there are keys, shared by all sessions with it. Sends and expects heartbeats; ends the
/// watches of sessions whose server went silent. Thread-safe.
class control_client {
  public:
    control_client();
    ~control_client();
    control_client(const control_client&) = delete;
    control_client& operator=(const control_client&) = delete;

    /// Opens a session by `deadline`; `watch` is ended when it dies. Refusals come back with the server's sentence.
    /// `closed` once `stopped`.
    [[nodiscard]] result<session_grant> open_session(const std::string& host, std::uint16_t port,
                                                     std::shared_ptr<const security_identity> security,
                                                     const session_request& request,
                                                     std::shared_ptr<session_watch> watch, nanoseconds deadline,
                                                     const std::stop_token& stopped = {});
    /// Tells the server that the session is over. Returns at once. Ignored if the session of `watch` has
    /// ended: a server that was restarted may have given its number to another one.
    void close_session(std::uint64_t session_id, std::shared_ptr<session_watch> watch) noexcept;

    /// A session has cancelled calls to tell of. Lock-free.
    void send_cancels() noexcept;

    /// The schemes the server offers, best first (for `auto://`). `closed` once `stopped`.
    [[nodiscard]] result<std::vector<std::string>> query_offers(const std::string& host, std::uint16_t port,
                                                                std::shared_ptr<const security_identity> security,
                                                                nanoseconds deadline,
                                                                const std::stop_token& stopped = {});

    /// The number of a target of this server; `not_found` with the server's sentence.
    [[nodiscard]] result<std::uint32_t> find_target(const std::string& host, std::uint16_t port,
                                                    std::shared_ptr<const security_identity> security,
                                                    std::string_view name, nanoseconds deadline);

    /// Targets of this server with names after this one.
    [[nodiscard]] result<target_page> list_targets(const std::string& host, std::uint16_t port,
                                                   std::shared_ptr<const security_identity> security,
                                                   std::string_view after, nanoseconds deadline);
    /// Whether this target serves; whether the server does, if the name is empty.
    [[nodiscard]] result<health_state> check_health(const std::string& host, std::uint16_t port,
                                                    std::shared_ptr<const security_identity> security,
                                                    std::string_view name, nanoseconds deadline);

  private:
    class impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace accel::core
