// SPDX-License-Identifier: Apache-2.0
#include "core/context_state.hpp"
#include "core/control/data_preamble.hpp"
#include "core/control/listener.hpp"
#include "core/log.hpp"
#include "core/server/server_core.hpp"
#include "core/tls/tls_stream.hpp"
#include "staging/staged_exchanges.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>

/// Sessions of a server: limits, opening, ending. Called by the control planes and the workers.
namespace accel::core {
namespace {

result<session_token> random_token() {
    session_token token;
    if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
        return error{status::system_error, errno, "cannot get random bytes for a session token"};
    return token;
}

}  // namespace

result<session_grant> server_core::open_session(entrance& through, const session_request& request,
                                                const client_identity& client) {
    const std::size_t memory = slot_memory::size_bytes(request.wanted.slots, request.wanted.request_bytes) +
                               slot_memory::size_bytes(request.wanted.slots, request.wanted.response_bytes);
    auto granted = [&]() -> result<session_grant> {
        const auto on = find_listener(through, request.scheme);
        if (!on) {
            return error{status::unsupported, 0,
                         fmt::format("this server does not listen for '{}' here; it offers {}", request.scheme,
                                     fmt::join(through.offers(), ", "))};
        }
        const session_cost cost{memory, maker_ == nullptr ? on->scheme->session_descriptors() : 0};
        if (auto within = check_limits(request, client, cost); !within) return within.error();
        return make_session(through, *on, least_loaded(), request, client, memory);
    }();
    if (!granted) {
        limited_log(client.account()).warn("refused a session from {}: {}", client.text(), granted.error().message);
        const std::lock_guard lock(mutex_);
        ++refused_;
    }
    return granted;
}

/// Finds a listener by the scheme's name, or else by its wire format: `rdma` may reach a listener of `gdr`.
std::optional<server_core::listener> server_core::find_listener(const entrance& through,
                                                                std::string_view scheme) const {
    const backend* asked = context_->find_backend(scheme);
    const std::lock_guard lock(mutex_);
    for (const listener& each : through.listeners)
        if (each.where.scheme == scheme) return each;
    for (const listener& each : through.listeners)
        if (asked != nullptr && each.scheme->wire() == asked->wire()) return each;
    return std::nullopt;
}

result<void> server_core::check_limits(const session_request& request, const client_identity& client,
                                       const session_cost& cost) const {
    const link_geometry& wanted = request.wanted;
    if (request.version != protocol_version) {
        return error{status::version_mismatch, 0,
                     fmt::format("this server speaks version {} of the protocol, but the client speaks version {}; "
                                 "update the older end",
                                 protocol_version, request.version)};
    }
    if (wanted.slots == 0 || wanted.slots > options_.max_slots) {
        return error{
            status::overloaded, 0,
            fmt::format("the client asks for {} slots; this server grants 1 to {}", wanted.slots, options_.max_slots)};
    }
    if (wanted.request_bytes > options_.max_request_bytes || wanted.response_bytes > options_.max_response_bytes) {
        return error{status::message_too_large, 0,
                     fmt::format("the client asks for requests of {} and responses of {} bytes; this server accepts {} "
                                 "and {}",
                                 wanted.request_bytes, wanted.response_bytes, options_.max_request_bytes,
                                 options_.max_response_bytes)};
    }
    const std::lock_guard lock(mutex_);
    if (draining_) return error{status::overloaded, 0, "this server is draining; try another server"};
    if (open_sessions_ >= options_.max_sessions)
        return error{status::overloaded, 0, fmt::format("all {} sessions are in use", options_.max_sessions)};
    if (cost.memory_bytes > options_.max_memory_bytes - std::min(memory_bytes_, options_.max_memory_bytes)) {
        return error{status::overloaded, 0,
                     fmt::format("the client asks for {} bytes of slots, but {} of {} are in use; ask for fewer or "
                                 "smaller slots",
                                 cost.memory_bytes, memory_bytes_, options_.max_memory_bytes)};
    }
    if (const std::uint32_t most = session_descriptor_limit(); cost.descriptors > most - std::min(descriptors_, most))
        return error{status::overloaded, 0,
                     fmt::format("sessions use {} descriptors, and no more are allowed; raise the server's limit of "
                                 "open files (ulimit -n)",
                                 descriptors_)};
    return check_share(client, cost);
}

/// The limits of one client, so that others are served. A client of this process has none.
result<void> server_core::check_share(const client_identity& client, const session_cost& cost) const {
    const auto found = clients_.find(client.account());
    if (client.account().empty() || found == clients_.end()) return {};
    // GPU-resident services have few places, often meant for one client.
    const bool all = maker_ != nullptr && options_.max_client_sessions == 0;
    const std::uint32_t sessions =
        all ? options_.max_sessions : own_or_share(options_.max_client_sessions, options_.max_sessions);
    const std::size_t memory = own_or_share(options_.max_client_memory_bytes, options_.max_memory_bytes);
    if (found->second.sessions >= sessions)
        return error{status::overloaded, 0,
                     fmt::format("all {} sessions allowed for one client are in use (max_client_sessions)", sessions)};
    if (cost.memory_bytes > memory - std::min(found->second.memory_bytes, memory))
        return error{status::overloaded, 0,
                     fmt::format("the client asks for {} bytes of slots, but {} of the {} allowed for one client are "
                                 "in use (max_client_memory_bytes)",
                                 cost.memory_bytes, found->second.memory_bytes, memory)};
    const std::uint32_t descriptors = own_or_share(std::uint32_t{0}, session_descriptor_limit());
    if (cost.descriptors > descriptors - std::min(found->second.descriptors, descriptors))
        return error{
            status::overloaded, 0,
            fmt::format("sessions of this client use {} of the {} descriptors allowed for one client; raise the "
                        "server's limit of open files (ulimit -n)",
                        found->second.descriptors, descriptors)};
    return {};
}

result<session_grant> server_core::make_session(entrance& through, const listener& on, worker& owner,
                                                const session_request& request, const client_identity& client,
                                                std::size_t memory_bytes) {
    auto token = random_token();
    if (!token) return token.error();
    session_grant grant;
    grant.token = *token;
    grant.granted = request.wanted;
    grant.peer_timeout = options_.peer_timeout;
    {
        const std::lock_guard lock(mutex_);
        grant.session_id = next_id_++;
    }
    auto made = std::make_unique<session>(owner, grant.session_id, on.scheme->scheme(), client, request.wanted);
    if (server_metrics* const metrics = owner.metrics(); metrics != nullptr)
        made->count_in(metrics->of_scheme(on.scheme->scheme()));
    if (!on.scheme->shares_memory())
        made->memory_bytes = memory_bytes;
    else
        grant.cancels = made->shared_cancels();
    link_config config;
    config.role = link_role::server;
    config.geometry = request.wanted;
    config.owner = made.get();
    config.zerocopy = options_.zerocopy;
    config.pacing = options_.pacing;
    config.session_id = grant.session_id;
    config.token = grant.token;
    if (auto done = connect_session(*made, on, request, std::move(config), grant); !done) return done.error();
    session_commands::list command(1);
    {
        const std::lock_guard lock(mutex_);
        const std::size_t gpu_bytes = made->device_bytes();
        poller* const source = maker_ == nullptr ? on.pollers.at(&owner) : nullptr;
        connection* const by_maker = maker_ == nullptr ? nullptr : &made->connection();
        const std::uint32_t descriptors = maker_ == nullptr ? on.scheme->session_descriptors() : 0;
        share& had = clients_[client.account()];
        sessions_[grant.session_id] = {
            &owner,        source,   &through,           client,    grant.token, made->shared_cancels(),
            request.watch, by_maker, made->memory_bytes, gpu_bytes, descriptors, true};
        if (draining_ && request.watch != nullptr) request.watch->drain();
        ++had.sessions;
        had.memory_bytes += made->memory_bytes;
        had.descriptors += descriptors;
        memory_bytes_ += made->memory_bytes;
        descriptors_ += descriptors;
        gpu_memory_bytes_ += gpu_bytes;
        ++open_sessions_;
        ++opened_;
    }
    try {
        made->connection().activate();
    } catch (...) {
        forget_session(*made);
        throw;
    }
    owner.install(std::move(made), std::move(command));
    return grant;
}

result<void> server_core::connect_session(session& made, const listener& on, const session_request& request,
                                          link_config config, session_grant& grant) const {
    const auto attach = [&](connection& with) -> result<void> {
        const link_grant told{grant.session_id, grant.token, {}, request.description};
        if (auto attached = with.attach(told, never); !attached) return attached;
        grant.description = with.describe();
        return {};
    };
    if (maker_ != nullptr) {
        auto opened = maker_->connect(config);
        if (!opened) return opened.error();
        if (auto attached = attach(**opened); !attached) return attached;
        made.set_connection(std::move(*opened));
        return {};
    }
    if (!on.scheme->shares_memory()) {
        if (auto slots = make_slots(on, request.wanted, config); !slots) return slots;
    }
    auto path = on.pollers.at(&made.owner())->open_link(config);
    if (!path) return path.error();
    if (auto attached = attach(**path); !attached) return attached;
    made.set_link(std::move(*path));
    if (device_ != nullptr) return put_on_device(made, request);
    if (!on.scheme->shares_memory()) made.lends().open(*context_, made.path().receive(), made.path().send());
    return {};
}

result<void> server_core::make_slots(const listener& on, const link_geometry& wanted, link_config& config) const {
    const slot_place place = on.scheme->fills_devices() ? slot_place{context_->devices(), device_} : slot_place{};
    auto requests = slot_memory::create(wanted.slots, wanted.request_bytes, place);
    if (!requests) return requests.error();
    auto responses = slot_memory::create(wanted.slots, wanted.response_bytes, place);
    if (!responses) return responses.error();
    config.receive = std::move(*requests);
    config.send = std::move(*responses);
    return {};
}

/// The handler's slots on the GPU: the transport's own, or slots that are copied to and from those.
result<void> server_core::put_on_device(session& made, const session_request& request) const {
    device_session place;
    place.priority = request.priority;
    place.lane = made.owner().staging()->streams().assign(request.priority);
    slot_memory& arriving = made.path().receive();
    slot_memory& leaving = made.path().send();
    if (!arriving.split()) {
        const slot_place on{context_->devices(), device_, made.path().wants_device_slots()};
        auto requests = slot_memory::create(arriving.count(), arriving.capacity(), on);
        if (!requests) return requests.error();
        auto responses = slot_memory::create(leaving.count(), leaving.capacity(), on);
        if (!responses) return responses.error();
        if (on.shareable) made.path().share_device_slots(*requests, *responses);
        for (slot_memory* each : {&arriving, &leaving}) {
            if (!options_.pin_slots) break;
            if (auto pinned = each->pin(context_->devices()); !pinned) return pinned;
        }
        place.requests = std::move(*requests);
        place.responses = std::move(*responses);
    }
    made.put_on_device(std::move(place));
    return {};
}

worker& server_core::least_loaded() const noexcept {
    const std::lock_guard lock(mutex_);
    const auto load = [this](const worker* candidate) {
        return std::count_if(sessions_.begin(), sessions_.end(),
                             [&](const auto& entry) { return entry.second.owner == candidate; });
    };
    worker* best = workers_.front();
    for (worker* each : workers_)
        if (workers_.size() > 1 && load(each) < load(best)) best = each;
    return *best;
}

/// Only the client whose session it is may do this.
result<void> server_core::take_connection(data_connection& made, const client_identity& client) {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(made.session_id);
    const bool own = found != sessions_.end() && found->second.counted &&
                     (made.tls == nullptr || made.tls->session() || found->second.client.name == client.name);
    if (!own || found->second.source == nullptr) return refuse_without_session();
    return found->second.source->take_connection(made);
}

std::optional<session_token> server_core::token_of(std::uint64_t session_id) const {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(session_id);
    if (found == sessions_.end() || !found->second.counted) return std::nullopt;
    return found->second.token;
}

void server_core::close_session(std::uint64_t id, status why) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    found->second.cancels->end();  // at once, for handlers that the worker waits for
    found->second.owner->close_session(id, why, std::exchange(found->second.closing, {}));
}

void server_core::cancel(std::uint64_t id, std::span<const call_id> calls) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    for (const call_id& each : calls) found->second.cancels->cancel(each);
    if (found->second.made == nullptr || !found->second.counted) return;
    for (const call_id& each : calls) maker_->cancel(*found->second.made, each);
}

void server_core::session_lost(const session& which, status why) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(which.id());
    if (found == sessions_.end() || !found->second.counted) return;
    found->second.counted = false;
    --open_sessions_;
    --clients_[found->second.client.account()].sessions;
    if (why != status::closed) ++lost_;
    if (found->second.watch != nullptr) found->second.watch->end(why);
    if (found->second.through->control)
        found->second.through->control->end_session(which.id(), why, std::exchange(found->second.notice, {}));
}

/// It never began.
void server_core::forget_session(const session& which) noexcept {
    {
        const std::lock_guard lock(mutex_);
        const auto found = sessions_.find(which.id());
        found->second.counted = false;
        --open_sessions_;
        --clients_[found->second.client.account()].sessions;
    }
    session_freed(which);
}

void server_core::session_freed(const session& which) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(which.id());
    if (found == sessions_.end()) return;
    memory_bytes_ -= found->second.memory_bytes;
    descriptors_ -= found->second.descriptors;
    const auto had = clients_.find(found->second.client.account());
    had->second.memory_bytes -= found->second.memory_bytes;
    had->second.descriptors -= found->second.descriptors;
    const share& left = had->second;
    if (left.sessions == 0 && left.memory_bytes == 0 && left.descriptors == 0) clients_.erase(had);
    gpu_memory_bytes_ -= found->second.gpu_memory_bytes;
    sessions_.erase(found);
}

}  // namespace accel::core
