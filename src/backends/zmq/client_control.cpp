// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/client.hpp"
#include "backends/zmq/descriptors.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

/// The control path of the client's end: opening, attaching, ending.
namespace accel::zmq {
namespace {

constexpr int slots_overhead = 8;
/// Never, but not -1: with that, libzmq 4.3 drops unread answers when the connection ends, and aborts the process if it
/// hears of the end between two frames of an answer.
constexpr int reconnect_ms = std::numeric_limits<int>::max();

error explain(const monitor_event& event, const std::string& endpoint) {
    // ZeroMQ does not report that it had no descriptor for the connection.
    if (const int none = try_descriptors(1); none != 0) return no_descriptor(none);
    if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
        return {status::unauthorized, 0,
                fmt::format("the data path at {} refused this client: the session's credentials are valid once, and "
                            "only while the session is open",
                            endpoint)};
    if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL)
        return {status::protocol_error, 0,
                fmt::format("the process that answers at {} is not the data path of our server (ZeroMQ error {:#x}); "
                            "is there a proxy in between?",
                            endpoint, event.value)};
    if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        return {status::peer_lost, 0,
                fmt::format("the data path at {} closed the connection in the handshake; the server has stopped, is "
                            "overloaded, or needs a higher limit of open files",
                            endpoint)};
    return {status::peer_lost, 0,
            fmt::format("the data path at {} is closed; is its port open in the firewall?", endpoint)};
}

error no_answer(const std::string& endpoint) {
    if (const int none = try_descriptors(1); none != 0) return no_descriptor(none);
    return {status::timed_out, 0,
            fmt::format("the data path at {} did not answer in time; is its port open in the firewall, and does the "
                        "server have file descriptors left (ulimit -n)?",
                        endpoint)};
}

result<void> wait_for_handshake(socket_monitor& monitor, const std::string& endpoint, bit_rate pacing,
                                core::nanoseconds deadline) {
    for (;;) {
        const core::nanoseconds at = core::now();
        if (const auto event = monitor.next()) {
            if (event->what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return {};
            if (event->what == ZMQ_EVENT_CONNECTED) {
                if (core::pace_socket(static_cast<int>(event->value), pacing)) continue;
                return core::cannot_pace(errno);
            }
            return explain(*event, endpoint);
        }
        if (at >= deadline) return no_answer(endpoint);
        zmq_pollitem_t item{monitor.socket().get(), 0, ZMQ_POLLIN, 0};
        zmq_poll(&item, 1, milliseconds_until(deadline));
    }
}

}  // namespace

client_hub::client_hub() {
    watch(returned->fd());
}

void client_hub::watch(int fd) noexcept {
    deaf_ = !watch_fd(epoll_.get(), fd) || deaf_;
}

bool client_hub::hears() noexcept {
    if (!deaf_) [[likely]]
        return true;
    deaf_ = false;
    watch(returned->fd());
    for (const client_link* each : active) {
        if (!watched_) break;
        watch(each->fd());
        watch(each->monitor_fd());
    }
    return !deaf_;
}

void client_hub::forget(int fd) const noexcept {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void client_hub::add(client_link& link) {
    active.push_back(&link);
    if (!watched_) return;
    watch(link.fd());
    watch(link.monitor_fd());
}

void client_hub::remove(client_link& link) noexcept {
    if (std::erase(active, &link) == 0 || !watched_) return;
    forget(link.fd());
    forget(link.monitor_fd());
}

int client_hub::event_fd() noexcept {
    if (!watched_) {
        for (const client_link* each : active) {
            watch(each->fd());
            watch(each->monitor_fd());
        }
    }
    watched_ = true;
    return epoll_.get();
}

result<std::unique_ptr<core::poller>> client_poller::open(std::shared_ptr<shared_context> zmq, bool insecure) {
    auto hub = std::make_shared<client_hub>();
    if (const int failed = hub->failure(); failed != 0) return no_descriptor(failed);
    return std::unique_ptr<core::poller>{std::make_unique<client_poller>(std::move(zmq), std::move(hub), insecure)};
}

result<std::unique_ptr<core::link>> client_poller::open_link(const core::link_config& config) {
    std::optional<key_pair> keys;
    if (!insecure_) {
        auto made = key_pair::make();
        if (!made) return made.error();
        keys = std::move(*made);
    }
    return std::unique_ptr<core::link>{std::make_unique<client_link>(zmq_, hub_, std::move(keys), config)};
}

client_link::client_link(std::shared_ptr<shared_context> zmq, std::shared_ptr<client_hub> hub,
                         std::optional<key_pair> keys, const core::link_config& config)
    : zmq_(std::move(zmq)),
      hub_(std::move(hub)),
      keys_(std::move(keys)),
      config_(config),
      arrivals_(config.geometry.slots, config.geometry.response_bytes, config.receive),
      requests_(config.geometry.slots),
      frames_(in_flight::make(config.geometry.slots, config.send, hub_->returned, this)) {
    deferred_.reserve(config.geometry.slots);
}

client_link::~client_link() {
    static_cast<void>(close());
}

core::link_description client_link::describe() const {
    client_description own;
    if (keys_) own.key = keys_->public_key();
    return encode(own);
}

result<void> client_link::attach(const core::link_grant& grant, core::nanoseconds deadline) {
    auto server = parse_server(grant.description);
    if (!server) return server.error();
    if (server->key.has_value() != keys_.has_value()) return mixed_keys();
    if (auto opened = open_socket(*server, grant.token); !opened) return opened;
    if (auto made = connect(endpoint_at(grant.address, server->port), deadline); !made) return made;
    // ZeroMQ has its own copy for as long as the socket lives; a link connects once.
    keys_.reset();
    return {};
}

/// Makes a socket with the session's credentials.
result<void> client_link::open_socket(const server_description& server, const core::session_token& token) {
    auto opened = owned_socket::open(zmq_->get(), ZMQ_DEALER);
    if (!opened) return opened.error();
    monitor_.close();
    socket_ = std::move(*opened);
    client_identity identity = identity_of(server.index, token);
    bool set = socket_.set(ZMQ_ROUTING_ID, std::as_bytes(std::span{&identity, 1}));
    wipe(identity.token);
    if (keys_) {
        set = set && socket_.set(ZMQ_CURVE_SERVERKEY, *server.key) &&
              socket_.set(ZMQ_CURVE_PUBLICKEY, keys_->public_key()) &&
              socket_.set(ZMQ_CURVE_SECRETKEY, keys_->secret_key());
    } else {
        set = set && socket_.set(ZMQ_PLAIN_USERNAME, std::as_bytes(std::span{&server.index, 1})) &&
              socket_.set(ZMQ_PLAIN_PASSWORD, token);
    }
    if (set) return {};
    return refused_credentials();
}

result<void> client_link::connect(const std::string& endpoint, core::nanoseconds deadline) {
    const auto largest = static_cast<std::int64_t>(config_.geometry.response_bytes) + frame_overhead;
    const int patience_ms = std::max(1, milliseconds_until(deadline));
    // The handshake's end is later than our deadline, so that a timeout reported by ZeroMQ is the server's.
    const bool set = socket_.set(ZMQ_RECONNECT_IVL, reconnect_ms) && socket_.set(ZMQ_SNDHWM, 0) &&
                     socket_.set(ZMQ_RCVHWM, static_cast<int>(config_.geometry.slots) + slots_overhead) &&
                     socket_.set(ZMQ_MAXMSGSIZE, largest) && socket_.set(ZMQ_RCVTIMEO, received_asleep_ms) &&
                     socket_.set(ZMQ_CONNECT_TIMEOUT, patience_ms) &&
                     socket_.set(ZMQ_HANDSHAKE_IVL, patience_ms + 1'000);
    if (!set) return refused_option();
    // The event names the connection's descriptor, which is ZeroMQ's.
    const int connected = config_.pacing == bit_rate{} ? 0 : ZMQ_EVENT_CONNECTED;
    auto monitor = socket_monitor::open(
        zmq_->get(), socket_,
        connected | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED | handshake_failures);
    if (!monitor) return monitor.error();
    if (!socket_.connect(endpoint)) {
        const int native = zmq_errno();
        return error{status::system_error, native,
                     fmt::format("cannot connect to {}: {}", endpoint, zmq_strerror(native))};
    }
    if (auto made = wait_for_handshake(*monitor, endpoint, config_.pacing, deadline); !made) return made;
    monitor_ = std::move(*monitor);
    // ZeroMQ signals an event only to whoever has found that there was none.
    check_connection();
    return {};
}

void client_link::activate() {
    fd_ = socket_.fd();
    monitor_fd_ = monitor_.socket().fd();
    hub_->add(*this);
}

bool client_link::close() noexcept {
    if (!closed_) {
        closed_ = true;
        ended_ = true;
        hub_->remove(*this);
        monitor_.close();
        socket_.close();
        frames_->forget();
        deferred_.clear();
    }
    hub_->returned->settle_forgotten();
    return frames_->idle();
}

}  // namespace accel::zmq
