// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/description.hpp"
#include "backends/zmq/descriptors.hpp"
#include "backends/zmq/monitor.hpp"
#include "backends/zmq/server.hpp"
#include "core/control/security.hpp"
#include "core/log.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/host_names.hpp"
#include "core/net/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

/// The control path of the server's end: listening, opening, ending.
namespace accel::zmq {
namespace {

/// The most unread messages of one client; then its connection waits.
constexpr int receive_queue = 64;
/// How long a stranger may take to show who it is.
constexpr int handshake_ms = 5'000;
/// A client that takes nothing for so long is disconnected, so that what is queued for it is freed.
constexpr int stalled_ms = 10'000;
constexpr int listen_backlog = 1'024;
/// How long the last answers may be under way when a server stops.
constexpr std::chrono::milliseconds flush_grace{20};
constexpr int zap_enforce_domain = 93;  // ZMQ_ZAP_ENFORCE_DOMAIN: named in zmq.h only for draft builds

/// Only clients that the gatekeeper expects get in.
bool secure(owned_socket& router, const std::string& domain, const std::optional<key_pair>& keys) {
    const auto* text = reinterpret_cast<const std::byte*>(domain.data());
    const bool named = router.set(zap_enforce_domain, 1) && router.set(ZMQ_ZAP_DOMAIN, {text, domain.size()});
    if (!keys) return named && router.set(ZMQ_PLAIN_SERVER, 1);
    return named && router.set(ZMQ_CURVE_SERVER, 1) && router.set(ZMQ_CURVE_SECRETKEY, keys->secret_key());
}

std::int64_t longest_frame(const core::poller_options& options) {
    const std::size_t bytes = options.max_request_bytes > 0
                                  ? std::min<std::size_t>(options.max_request_bytes, core::max_payload_bytes)
                                  : core::max_payload_bytes;
    return static_cast<std::int64_t>(bytes) + frame_overhead;
}

bool bound(owned_socket& router, const core::poller_options& options) {
    return router.set(ZMQ_ROUTER_MANDATORY, 1) && router.set(ZMQ_SNDHWM, 0) &&  // `in_flight` bounds what is sent
           router.set(ZMQ_RCVHWM, receive_queue) && router.set(ZMQ_MAXMSGSIZE, longest_frame(options)) &&
           router.set(ZMQ_TCP_MAXRT, stalled_ms) && router.set(ZMQ_HANDSHAKE_IVL, handshake_ms) &&
           router.set(ZMQ_BACKLOG, listen_backlog) && router.set(ZMQ_RCVTIMEO, received_asleep_ms);
}

error cannot_listen(const core::poller_options& options) {
    const int native = zmq_errno();
    if (core::is_shortage(native)) return no_descriptor(native);
    const auto where = host_and_port(options.host, options.port);
    return {status::system_error, native,
            fmt::format("cannot listen for zmq data on {}: {}; choose another host or data_port", where,
                        zmq_strerror(native))};
}

/// Binds, and paces what the listening socket will accept: connections inherit it.
result<void> bind_paced(void* context, owned_socket& router, const std::string& endpoint,
                        const core::poller_options& options) {
    auto monitor = socket_monitor::open(context, router, ZMQ_EVENT_LISTENING);
    if (!monitor) return monitor.error();
    if (!router.bind(endpoint)) return cannot_listen(options);
    // ZeroMQ has told of it before it returned.
    const auto listening = monitor->next();
    if (!listening)
        return error{status::system_error, 0, "ZeroMQ does not report where it listens, so pacing is not possible"};
    if (!core::pace_socket(static_cast<int>(listening->value), options.pacing)) return core::cannot_pace(errno);
    return {};
}

/// To the first address that this machine has, as the control plane's socket.
result<void> bind_router(void* context, owned_socket& router, std::span<const std::string> endpoints,
                         const core::poller_options& options) {
    result<void> bound;
    for (const std::string& each : endpoints) {
        if (options.pacing != bit_rate{})
            bound = bind_paced(context, router, each, options);
        else
            bound = router.bind(each) ? result<void>{} : cannot_listen(options);
        if (bound || !core::is_missing_family(bound.error().native)) break;
    }
    return bound;
}

}  // namespace

server_hub::server_hub(server_entrance entrance)
    : zmq_(std::move(entrance.zmq)),
      router(std::move(entrance.router)),
      router_fd(router.fd()),
      gate_(entrance.gate),
      domain_(std::move(entrance.domain)),
      key_(entrance.key),
      port_(router.bound_port()) {}

int server_hub::event_fd() noexcept {
    deaf_ = deaf_ || !watched_;
    watched_ = true;
    (void)hears();
    return epoll_.get();
}

bool server_hub::hears() noexcept {
    if (deaf_) [[unlikely]]
        deaf_ = !watch_fd(epoll_.get(), returned->fd()) || !watch_fd(epoll_.get(), router_fd);
    return !deaf_;
}

void server_hub::stop() noexcept {
    if (watched_) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, router_fd, nullptr);
    router.close();
    returned->close();
}

std::uint32_t server_hub::take_index() {
    const std::lock_guard lock{mutex_};
    if (free_.empty()) return next_index_++;
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
}

void server_hub::activate(server_link& opened) {
    const std::lock_guard lock{mutex_};
    activated_.push_back(&opened);
    changed_.store(true, std::memory_order_release);
}

void server_hub::merge_activated() noexcept {
    if (!changed_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock{mutex_};
    for (server_link* each : activated_) {
        const std::uint32_t index = each->identity().index;
        if (links_.size() <= index) links_.resize(index + std::size_t{1});
        links_[index] = each;
    }
    activated_.clear();
    changed_.store(false, std::memory_order_relaxed);
}

void server_hub::remove(std::uint32_t index) noexcept {
    merge_activated();
    links_[index] = nullptr;
    put_index(index);
}

void server_hub::put_index(std::uint32_t index) noexcept {
    const std::lock_guard lock{mutex_};
    free_.push_back(index);
}

server_link* server_hub::find(message_part& identity) noexcept {
    client_identity shown;
    if (identity.size() != sizeof shown) return nullptr;
    std::memcpy(&shown, identity.data(), sizeof shown);
    for (int attempt = 0; attempt < 2; ++attempt) {
        server_link* const behind = shown.index < links_.size() ? links_[shown.index] : nullptr;
        if (behind != nullptr && same_identity(shown, behind->identity())) return behind;
        // It may have been opened since this poll began.
        merge_activated();
    }
    return nullptr;
}

server_link::server_link(std::shared_ptr<server_hub> hub, const core::link_config& config)
    : hub_(std::move(hub)),
      config_(config),
      identity_(identity_of(hub_->take_index(), config.token)),
      arrivals_(config.geometry.slots, config.geometry.request_bytes, config.receive),
      frames_(in_flight::make(config.geometry.slots, config.send, hub_->returned, this)) {}

server_link::~server_link() {
    static_cast<void>(close());
    wipe(config_.token);
    wipe(identity_.token);
}

core::link_description server_link::describe() const {
    return encode(server_description{hub_->port(), identity_.index, hub_->key()});
}

result<void> server_link::attach(const core::link_grant& grant, core::nanoseconds) {
    auto client = parse_client(grant.description);
    if (!client) return client.error();
    if (client->key.has_value() != hub_->key().has_value()) return mixed_keys();
    credential shown;
    if (client->key)
        shown.name = *client->key;
    else
        shown = {std::as_bytes(std::span{&identity_.index, 1}), config_.token};
    entry_ = hub_->expect(shown);
    wipe(shown.password);
    if (!entry_.empty()) return {};
    return error{status::protocol_error, 0, "the client sent a key that another session already uses"};
}

void server_link::activate() {
    activated_ = true;
    hub_->activate(*this);
}

bool server_link::flushed() noexcept {
    if (!frames_->idle()) {
        flushed_at_ = {};
        return false;
    }
    if (flushed_at_ == core::nanoseconds{}) flushed_at_ = core::now() + flush_grace;
    return core::now() >= flushed_at_;
}

bool server_link::close() noexcept {
    if (!closed_) {
        closed_ = true;
        ended_ = true;
        hub_->forget(entry_);
        frames_->forget();
        // No peer knows this link, so the polling thread does not either.
        if (activated_)
            hub_->remove(identity_.index);
        else
            hub_->put_index(identity_.index);
    }
    if (activated_) hub_->returned->settle_forgotten();
    return frames_->idle();
}

result<std::unique_ptr<core::poller>> server_poller::open(const std::shared_ptr<shared_context>& zmq,
                                                          const core::poller_options& options) {
    auto endpoints = endpoints_to_bind(options.host, options.port, core::deadline_after(core::name_patience));
    if (!endpoints) return endpoints.error();
    auto gate = zmq->gate();
    if (!gate) return gate.error();
    auto router = owned_socket::open(zmq->get(), ZMQ_ROUTER);
    if (!router) return router.error();
    std::optional<key_pair> keys;
    if (!options.security->insecure()) {
        auto made = key_pair::make();
        if (!made) return made.error();
        keys = std::move(*made);
    }
    if (!bound(*router, options)) return refused_option();
    server_entrance entrance{zmq, *gate, (*gate)->open_domain(), std::nullopt, {}};
    if (!secure(*router, entrance.domain, keys)) return refused_credentials();
    if (keys) entrance.key = keys->public_key();
    if (auto bound_to = bind_router(zmq->get(), *router, *endpoints, options); !bound_to) return bound_to.error();
    entrance.router = std::move(*router);
    auto hub = std::make_shared<server_hub>(std::move(entrance));
    if (const int failed = hub->failure(); failed != 0) return no_descriptor(failed);
    return std::unique_ptr<core::poller>{std::make_unique<server_poller>(std::move(hub))};
}

result<std::unique_ptr<core::link>> server_poller::open_link(const core::link_config& config) {
    // One for the coming connection, and some for others.
    if (const int none = try_descriptors(socket_descriptors); none != 0)
        return core::no_descriptor("for zmq in the server", none);
    return std::unique_ptr<core::link>{std::make_unique<server_link>(hub_, config)};
}

void server_poller::drop_stranger(message_part& identity) noexcept {
    const char* const address = zmq_msg_gets(identity.raw(), "Peer-Address");
    const std::string_view from = address != nullptr ? address : "an unknown address";
    core::limited_log(from).warn(
        "dropped zmq data from a client at {}: it names a session that is closed, or not its own", from);
    drop_rest(hub_->router.get(), identity);
}

}  // namespace accel::zmq
