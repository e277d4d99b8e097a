// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/security.hpp"
#include "core/control/session.hpp"
#include "core/link.hpp"
#include "core/poller.hpp"
#include "core/uri.hpp"

#include <accel_transport/target.hpp>

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::core {

class backend;
class context_state;

/// A way to a server, as `auto` finds it.
struct scheme_choice {
    uri peer;
    std::shared_ptr<const security_identity> security;  ///< null in process
    std::string why;
};

/// The request for a connection; kept, to connect again.
struct connect_request {
    std::shared_ptr<context_state> context;
    uri peer;  ///< `auto` has been resolved
    channel_options options;
    nanoseconds deadline = never;                       ///< of the first connect
    std::shared_ptr<const security_identity> security;  ///< null in process
    std::shared_ptr<slot_memory> requests;
    std::shared_ptr<slot_memory> responses;
    std::string why;                         ///< of the scheme
    std::vector<uri> hosts{};                ///< with several: all that the URI names, for `peer` is the one in use
    std::vector<uri> named{};                ///< with `dns+`: as the URI names them, to be resolved again
    std::size_t first_host = 0;              ///< which of them answered the first connect
    std::vector<scheme_choice> next_best{};  ///< for `auto`: what follows, should `peer` not be reached
    std::stop_token stopped{};               ///< nobody wants the connection any more
};

/// An open session, as its client knows it.
struct client_session {
    std::shared_ptr<session_watch> watch;
    std::uint64_t id = 0;
    std::shared_ptr<cancel_board> cancels;  ///< in process: the server's
};

/// An established connection: what is polled, the end of the session's path, and the session behind it.
template <class Source, class Path>
struct established {
    std::unique_ptr<Source> events;
    std::unique_ptr<Path> path;  // destroyed before its source
    client_session session;

    established() = default;
    established(established&&) noexcept = default;
    established& operator=(established&& other) noexcept {
        path = std::move(other.path);
        events = std::move(other.events);
        session = std::move(other.session);
        return *this;
    }
    ~established() { path.reset(); }
};
using channel_connection = established<poller, link>;

/// Loads keys and resolves `auto`. `time`: in place of `connect_timeout`.
[[nodiscard]] result<connect_request> resolve_connection(std::shared_ptr<context_state> context, uri peer,
                                                         const channel_options& options,
                                                         std::optional<nanoseconds> time = {},
                                                         further_keys* more = nullptr,
                                                         const std::stop_token& stopped = {});
/// The same, and makes the slots of a channel of the host's.
[[nodiscard]] result<connect_request> prepare_connection(std::shared_ptr<context_state> context, uri peer,
                                                         const channel_options& options,
                                                         std::optional<nanoseconds> time = {},
                                                         const std::stop_token& stopped = {});

/// Opens a session and its data path, within `connect_timeout`.
[[nodiscard]] result<channel_connection> open_connection(const connect_request& request);
/// The same by `request.deadline`; with `auto`, by the next best scheme if that fails. `request` says which it is.
[[nodiscard]] result<channel_connection> open_by_any_scheme(connect_request& request);

// The steps of `open_connection`, for connections that bring their own slots.
/// The scheme of `peer`, if this machine can use it.
[[nodiscard]] result<backend*> usable_backend(const connect_request& request);
[[nodiscard]] poller_options source_options(const connect_request& request);
/// Without slots.
[[nodiscard]] link_config client_config(const connect_request& request);
/// Asks the server for a session and attaches `path` to it.
[[nodiscard]] result<void> open_session(const connect_request& request, connection& path, client_session& session,
                                        nanoseconds deadline);

/// Asks the server for a target, within `connect_timeout`.
[[nodiscard]] result<target> resolve_target(const connect_request& request, std::string_view name);

/// Asks the server for the names of all its targets, within `connect_timeout`.
[[nodiscard]] result<std::vector<std::string>> ask_for_targets(const connect_request& request);

/// Asks the server whether this target serves; whether it serves itself, if the name is empty. Within
/// `connect_timeout`.
[[nodiscard]] result<health_state> ask_for_health(const connect_request& request, std::string_view name);

/// Tells the server that nobody waits for the answer of this call.
void cancel_call(const connect_request& request, const client_session& session, call_id which) noexcept;

/// Tells the server that the session is over.
void close_session(const connect_request& request, const client_session& session) noexcept;

}  // namespace accel::core
