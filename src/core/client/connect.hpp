#pragma once

#include "core/backend.hpp"
#include "core/control/security.hpp"
#include "core/control/session.hpp"
#include "core/uri.hpp"

#include <memory>
#include <optional>
#include <string>

namespace accel::core {

/// What a connection is made from; kept, to connect again.
struct connect_request {
    std::shared_ptr<context_state> context;
    uri peer;  ///< `auto` has been resolved
    channel_options options;
    std::shared_ptr<const security_identity> security;  ///< null in process
    std::shared_ptr<slot_memory> requests;
    std::shared_ptr<slot_memory> responses;
    std::string why;                            ///< of the scheme
    std::optional<resident_options> kernels{};  ///< they make the calls, and the link brings its slots
};

/// One established connection: the data path and the session behind it.
struct channel_connection {
    std::unique_ptr<poller> events;
    std::unique_ptr<link> path;  // destroyed before its poller
    std::shared_ptr<session_watch> watch;
    std::uint64_t session_id = 0;

    channel_connection() = default;
    channel_connection(channel_connection&&) noexcept = default;
    channel_connection& operator=(channel_connection&& other) noexcept {
        path = std::move(other.path);
        events = std::move(other.events);
        watch = std::move(other.watch);
        session_id = other.session_id;
        return *this;
    }
    ~channel_connection() { path.reset(); }
};

/// Reads the URI, loads keys and resolves `auto`.
[[nodiscard]] result<connect_request> resolve_connection(std::shared_ptr<context_state> context,
                                                         std::string_view text,
                                                         const channel_options& options);
/// The same, and makes the slots of a channel of the host's.
[[nodiscard]] result<connect_request> prepare_connection(std::shared_ptr<context_state> context,
                                                         std::string_view text,
                                                         const channel_options& options);

/// Opens a session and its data path, within `connect_timeout`.
[[nodiscard]] result<channel_connection> open_connection(const connect_request& request);

/// Tells the server that the session is over.
void close_session(const connect_request& request, const channel_connection& made) noexcept;

}  // namespace accel::core
