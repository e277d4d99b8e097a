// SPDX-License-Identifier: Apache-2.0
#include "core/client/connect.hpp"

#include "core/cancel_board.hpp"
#include "core/client/connect_attempts.hpp"
#include "core/context_state.hpp"
#include "core/control/control_client.hpp"
#include "core/control/in_process.hpp"
#include "core/control/same_host.hpp"
#include "core/log.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/unix_socket.hpp"
#include "core/pacing.hpp"

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

constexpr int most_room_waits = 10;
constexpr std::chrono::milliseconds room_wait{50};

/// `rdma` reaches what listens as `gdr`, from a machine without devices.
bool can_stand_in(const backend& here, backend* offered) {
    if (offered == nullptr || offered == &here || offered->wire() != here.wire()) return false;
    return !here.fills_devices() && !offered->probe().usable;
}

/// Keys that are to encrypt payloads are of no use to a transport that cannot.
bool would_be_plain(const connect_request& request, const backend& scheme) {
    return request.security != nullptr && request.security->encrypts() && !scheme.encrypts();
}

/// A URI that names a transport has it as it is, unless `encrypt=required`.
result<void> check_encryption(const connect_request& request) {
    const backend* named = request.context->find_backend(request.peer.scheme);
    const bool required = request.options.security.encrypt == encryption::required;
    if (named == nullptr || !required || !would_be_plain(request, *named)) return {};
    return error{status::unsupported, 0,
                 fmt::format("{} cannot encrypt payloads, but encrypt=required asks for it; connect over tcp or zmq, "
                             "or leave out encrypt=required",
                             request.peer.scheme)};
}

/// The name by which `here` reaches what is offered to this process or host only; empty: it does not.
std::string name_within_host(const backend& here, std::string_view offer, nanoseconds asked) {
    if (here.scheme() == "local") return in_process::accepted_name(offer);
    return here.scheme() == "shm" ? same_host::accepted_name(offer, asked) : std::string{};
}

/// The server's name in place of its host and port.
void move_within_host(uri& peer, std::string scheme, const std::string& name) {
    peer.host = scheme == "shm" ? fmt::format("@{}", name) : name;
    peer.port = 0;
    peer.scheme = std::move(scheme);
}

/// For a scheme whose peers the OS knows.
security_options no_keys() {
    security_options none;
    none.insecure = true;
    return none;
}

/// Within a host, the process itself or the OS says who the server is.
result<std::shared_ptr<const security_identity>> keys_for(const connect_request& request, std::string_view scheme) {
    if (!within_host(scheme)) return request.security;
    if (scheme == "local") return std::shared_ptr<const security_identity>{};
    return load_client_security(no_keys());
}

void take(connect_request& request, scheme_choice choice) {
    request.peer = std::move(choice.peer);
    request.security = std::move(choice.security);
    request.why = std::move(choice.why);
}

/// Takes the server's best offer that this machine can use too, and says what became of the better ones. The others
/// follow.
result<void> choose_scheme(connect_request& request) {
    const nanoseconds asked = now();
    auto offers = request.context->control().query_offers(request.peer.host, request.peer.port, request.security,
                                                          request.deadline, request.stopped);
    if (!offers) return offers.error();
    std::string passed_over;
    std::vector<scheme_choice> choices;
    for (const auto& each : request.context->backends()) {
        for (const std::string& offer : *offers) {
            const std::string name = name_within_host(*each, offer, asked);
            const bool stands_in = can_stand_in(*each, request.context->find_backend(offer));
            const bool reached = within_host(each->scheme()) ? !name.empty() : offer == each->scheme() || stands_in;
            if (!reached) {
                if (each->scheme() == "shm" && same_host::has_another_clock(offer, asked))
                    passed_over +=
                        "; not shm: the server has a different clock (a copy of this machine, or a time namespace)";
                continue;
            }
            if (would_be_plain(request, *each)) {
                passed_over +=
                    fmt::format("; not {}: it cannot encrypt payloads (encrypt=off allows it)", each->scheme());
                continue;
            }
            auto [usable, reason] = each->probe();
            if (!usable) {
                passed_over += fmt::format("; not {}: {}", each->scheme(), reason);
                continue;
            }
            if (auto able = check_pacing(request.options.pacing, *each); !able) {
                passed_over += fmt::format("; not {}: {}", each->scheme(), able.error().message);
                continue;
            }
            auto keys = keys_for(request, each->scheme());
            if (!keys) return keys.error();
            scheme_choice& made = choices.emplace_back();
            made.peer = request.peer;
            made.peer.scheme = each->scheme();
            if (!name.empty()) move_within_host(made.peer, std::string{each->scheme()}, name);
            made.security = std::move(*keys);
            made.why = fmt::format("{}: {} ({}){}", each->scheme(),
                                   choices.size() == 1 ? "the best that both ends offer" : "the best that connects",
                                   reason, passed_over);
            break;
        }
    }
    if (choices.empty())
        return error{status::unsupported, 0,
                     fmt::format("{} and this machine have no scheme in common{}", request.peer.text(), passed_over)};
    take(request, std::move(choices.front()));
    choices.erase(choices.begin());
    request.next_best = std::move(choices);
    return {};
}

/// Another scheme may do better: the failure is of this one's way, not of what was asked for.
bool may_do_better(status failure) noexcept {
    switch (failure) {
        case status::peer_lost:
        case status::timed_out:
        case status::unsupported:
        case status::protocol_error:
        case status::out_of_memory:
        case status::system_error:
        case status::device_lost:
            return true;
        default:
            return false;
    }
}

session_request describe_request(const connect_request& request, const connection& path) {
    session_request out;
    out.scheme = request.peer.scheme;
    out.wanted = {request.options.slots, request.options.request_bytes, request.options.response_bytes};
    out.peer_timeout = request.options.peer_timeout;
    out.priority = request.options.priority;
    out.description = path.describe();
    return out;
}

result<session_grant> ask_server(const connect_request& request, const connection& path,
                                 const std::shared_ptr<session_watch>& watch, nanoseconds deadline) {
    session_request wanted = describe_request(request, path);
    if (request.security == nullptr) {
        wanted.watch = watch;
        return in_process::open_session(request.peer.host, wanted);
    }
    return request.context->control().open_session(request.peer.host, request.peer.port, request.security, wanted,
                                                   watch, deadline, request.stopped);
}

}  // namespace

result<backend*> usable_backend(const connect_request& request) {
    const std::string& scheme = request.peer.scheme;
    auto found = request.context->named_backend(scheme);
    if (!found) return found;
    auto [usable, reason] = (*found)->probe();
    if (!usable) return error{status::unsupported, 0, fmt::format("{}: {}", scheme, reason)};
    return found;
}

poller_options source_options(const connect_request& request) {
    poller_options out;
    out.security = request.security;
    out.zerocopy = request.options.zerocopy;
    out.pacing = request.options.pacing;
    out.verbs = request.options.verbs;
    return out;
}

link_config client_config(const connect_request& request) {
    link_config out;
    out.role = link_role::client;
    out.geometry = {request.options.slots, request.options.request_bytes, request.options.response_bytes};
    out.zerocopy = request.options.zerocopy;
    out.pacing = request.options.pacing;
    return out;
}

result<void> open_session(const connect_request& request, connection& path, client_session& session,
                          nanoseconds deadline) {
    session.watch = std::make_shared<session_watch>(request.options.slots);
    if (session.watch->event_fd() < 0) return no_descriptor("for a session", -session.watch->event_fd());
    auto grant = ask_server(request, path, session.watch, deadline);
    if (!grant) return grant.error();
    session.id = grant->session_id;
    session.cancels = std::move(grant->cancels);

    try {
        const link_grant told{grant->session_id, grant->token,
                              request.peer.host, std::move(grant->description),
                              request.peer.port, std::move(grant->address)};
        auto attached = path.attach(told, deadline);
        if (!attached) close_session(request, session);
        return attached;
    } catch (...) {
        close_session(request, session);
        throw;
    }
}

result<connect_request> resolve_connection(std::shared_ptr<context_state> context, uri peer,
                                           const channel_options& options, std::optional<nanoseconds> time,
                                           further_keys* more, const std::stop_token& stopped) {
    if (peer.scheme != "auto") {
        if (auto known = context->named_backend(peer.scheme); !known) return known.error();
    }
    auto effective = apply_options(peer, options, more);
    if (!effective) return effective.error();
    if (time) effective->connect_timeout = *time;

    connect_request request;
    request.context = std::move(context);
    request.peer = std::move(peer);
    request.options = std::move(*effective);
    request.deadline = deadline_after(request.options.connect_timeout);
    request.stopped = stopped;
    if (request.peer.scheme != "local") {
        const bool needs_keys = !within_host(request.peer.scheme);
        auto security = load_client_security(needs_keys ? request.options.security : no_keys());
        if (!security) return security.error();
        request.security = named_after(std::move(*security), request.options.security, request.peer.name);
    }
    if (request.peer.scheme == "auto") {
        if (auto chosen = choose_scheme(request); !chosen) return chosen.error();
    } else {
        request.why = fmt::format("{}: named by the URI", request.peer.scheme);
    }
    if (auto able = check_encryption(request); !able) return able.error();
    if (const backend* chosen = request.context->find_backend(request.peer.scheme); chosen != nullptr)
        if (auto able = check_pacing(request.options.pacing, *chosen); !able) return able.error();
    return request;
}

result<connect_request> prepare_connection(std::shared_ptr<context_state> context, uri peer,
                                           const channel_options& options, std::optional<nanoseconds> time,
                                           const std::stop_token& stopped) {
    auto request = resolve_connection(std::move(context), std::move(peer), options, time, nullptr, stopped);
    if (!request) return request;
    auto requests = slot_memory::create(request->options.slots, request->options.request_bytes);
    if (!requests) return requests.error();
    auto responses = slot_memory::create(request->options.slots, request->options.response_bytes);
    if (!responses) return responses.error();
    request->requests = std::move(*requests);
    request->responses = std::move(*responses);
    return request;
}

result<channel_connection> open_connection(const connect_request& request) {
    const nanoseconds deadline = deadline_after(request.options.connect_timeout);
    auto chosen = usable_backend(request);
    if (!chosen) return chosen.error();
    channel_connection made;
    auto events = (*chosen)->open_poller(source_options(request));
    if (!events) return events.error();
    made.events = std::move(*events);

    link_config config = client_config(request);
    config.send = request.requests;
    config.receive = request.responses;
    auto path = made.events->open_link(config);
    if (!path) return path.error();
    made.path = std::move(*path);
    if (auto opened = open_session(request, *made.path, made.session, deadline); !opened) return opened.error();
    return made;
}

/// Each scheme has its share of the time.
result<channel_connection> open_by_any_scheme(connect_request& request) {
    std::string failed;
    int room_waits = most_room_waits;
    for (;;) {
        request.options.connect_timeout = share_of(request.deadline, request.next_best.size() + 1);
        auto made = open_connection(request);
        // The failed try's own session may have the place, until the server has heard of its end.
        if (made.code() == status::overloaded && !failed.empty() && room_waits-- > 0 && now() < request.deadline &&
            !request.stopped.stop_requested()) {
            std::this_thread::sleep_for(room_wait);
            continue;
        }
        if (made) {
            request.why += failed;
            request.next_best.clear();
            return made;
        }
        if (request.next_best.empty() || !may_do_better(made.code())) {
            if (failed.empty()) return made;
            return error{made.code(), made.error().native, made.error().message + failed};
        }
        failed += fmt::format("; not {}: {}", request.peer.scheme, made.error().message);
        limited_log(request.peer.host)
            .warn("auto: {} does not connect, {} is next: {}", request.peer.text(),
                  request.next_best.front().peer.scheme, made.error().message);
        take(request, std::move(request.next_best.front()));
        request.next_best.erase(request.next_best.begin());
    }
}

namespace {

error not_a_target_name() {
    return {status::invalid_argument, 0,
            fmt::format("a target's name must have 1 to {} printable characters and no blanks", max_target_bytes)};
}

}  // namespace

result<target> resolve_target(const connect_request& request, std::string_view name) {
    if (!is_target_name(name)) return not_a_target_name();
    auto found = request.security == nullptr
                     ? in_process::find_target(request.peer.host, name)
                     : request.context->control().find_target(request.peer.host, request.peer.port, request.security,
                                                              name, deadline_after(request.options.connect_timeout));
    if (!found) return found.error();
    return target{*found};
}

/// The names of a page come after those before it. So even a server that always has more ends the loop.
result<std::vector<std::string>> ask_for_targets(const connect_request& request) {
    const nanoseconds deadline = deadline_after(request.options.connect_timeout);
    std::vector<std::string> all;
    for (;;) {
        const std::string after = all.empty() ? "" : all.back();
        auto page = request.security == nullptr
                        ? in_process::list_targets(request.peer.host, after)
                        : request.context->control().list_targets(request.peer.host, request.peer.port,
                                                                  request.security, after, deadline);
        if (!page) return page.error();
        if (all.size() + page->names.size() > max_targets)
            return error{status::protocol_error, 0,
                         fmt::format("the server at {} names more than {} targets", request.peer.text(), max_targets)};
        std::ranges::move(page->names, std::back_inserter(all));
        if (!page->more) return all;
    }
}

result<health_state> ask_for_health(const connect_request& request, std::string_view name) {
    if (!name.empty() && !is_target_name(name)) return not_a_target_name();
    if (request.security == nullptr) return in_process::check_health(request.peer.host, name);
    return request.context->control().check_health(request.peer.host, request.peer.port, request.security, name,
                                                   deadline_after(request.options.connect_timeout));
}

void cancel_call(const connect_request& request, const client_session& session, call_id which) noexcept {
    if (session.cancels != nullptr) return session.cancels->cancel(which);
    if (session.watch->cancels.add(which)) request.context->control().send_cancels();
}

void close_session(const connect_request& request, const client_session& session) noexcept {
    if (request.security == nullptr) return;  // in process, the link itself says so
    request.context->control().close_session(session.id, session.watch);
}

}  // namespace accel::core
