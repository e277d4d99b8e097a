#include "backends/zmq/client.hpp"
#include "backends/zmq/server.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

/// The control path of both ends: opening, attaching, ending.
namespace accel::zmq {
namespace {

constexpr std::uint8_t description_version = 1;
constexpr std::size_t description_bytes = 8;
// Room above the payload: header, extensions, what CURVE adds, and a handler's message where responses are
// tiny.
constexpr std::int64_t frame_overhead = 4'096;
constexpr int slots_overhead = 8;
/// Unread messages of one client, after which its connection is left waiting.
constexpr int server_receive_queue = 256;
/// A client that takes nothing for so long is disconnected, so that what is queued for it is freed.
constexpr int stalled_ms = 10'000;
constexpr int listen_backlog = 1'024;

void watch_fd(int epoll_fd, int fd) noexcept {
    epoll_event interest{};
    interest.events = EPOLLIN;
    ::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &interest);
}

int milliseconds_until(core::nanoseconds deadline) {
    return static_cast<int>(std::max(1L, core::poll_timeout(core::now(), deadline)));
}

client_identity identity_of(std::uint32_t index, const core::session_token& token) {
    client_identity identity;
    identity.index = index;
    static_assert(sizeof identity.token == sizeof token);
    std::memcpy(identity.token, token.data(), token.size());
    return identity;
}

}  // namespace

client_hub::client_hub() : epoll_fd_(::epoll_create1(EPOLL_CLOEXEC)) {
    watch(returned->fd());
}

client_hub::~client_hub() {
    ::close(epoll_fd_);
}

void client_hub::watch(int fd) const noexcept {
    watch_fd(epoll_fd_, fd);
}

void client_hub::forget(int fd) const noexcept {
    ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
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
    return epoll_fd_;
}

result<std::unique_ptr<core::link>> client_poller::open_link(const core::link_config& config) {
    return std::unique_ptr<core::link>{std::make_unique<client_link>(zmq_, hub_, security_, config)};
}

client_link::client_link(void* zmq_context, std::shared_ptr<client_hub> hub,
                         std::shared_ptr<const core::security_identity> security,
                         const core::link_config& config)
    : zmq_(zmq_context),
      hub_(std::move(hub)),
      security_(std::move(security)),
      config_(config),
      arrivals_(config.geometry.slots, config.geometry.response_bytes, config.receive),
      requests_(config.geometry.slots),
      frames_(in_flight::make(config.geometry.slots, config.send, hub_->returned, this)) {
    deferred_.reserve(config.geometry.slots);
}

client_link::~client_link() {
    static_cast<void>(close());
}

result<void> client_link::attach(const core::link_grant& grant, core::nanoseconds deadline) {
    std::uint16_t port = 0;
    std::uint32_t index = 0;
    const auto& told = grant.description;
    if (told.size() != description_bytes || told[0] != std::byte{description_version})
        return error{status::protocol_error, 0, "the server described its zmq data path in an unknown way"};
    std::memcpy(&port, told.data() + 2, sizeof port);
    std::memcpy(&index, told.data() + 4, sizeof index);
    auto endpoint = core::tcp_endpoint(grant.host, port, false);
    if (!endpoint) return endpoint.error();
    auto opened = core::zmq_socket::open(zmq_, ZMQ_DEALER);
    if (!opened) return opened.error();
    monitor_.close();
    socket_ = std::move(*opened);
    const client_identity identity = identity_of(index, grant.token);
    zmq_setsockopt(socket_.get(), ZMQ_ROUTING_ID, &identity, sizeof identity);
    return connect(*endpoint, deadline);
}

result<void> client_link::connect(const std::string& endpoint, core::nanoseconds deadline) {
    const auto largest = static_cast<std::int64_t>(config_.geometry.response_bytes) + frame_overhead;
    socket_.set(ZMQ_RECONNECT_IVL, -1);
    socket_.set(ZMQ_SNDHWM, 0);
    socket_.set(ZMQ_RCVHWM, static_cast<int>(config_.geometry.slots) + slots_overhead);
    socket_.set(ZMQ_MAXMSGSIZE, largest);
    socket_.set(ZMQ_RCVTIMEO, received_asleep_ms);
    socket_.set(ZMQ_CONNECT_TIMEOUT, milliseconds_until(deadline));
    socket_.set(ZMQ_HANDSHAKE_IVL, milliseconds_until(deadline));
    if (auto secured = core::secure_socket(socket_.get(), *security_, false); !secured) return secured;
    auto monitor = core::socket_monitor::open(
        zmq_, socket_,
        ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED | core::handshake_failures);
    if (!monitor) return monitor.error();
    if (!socket_.connect(endpoint)) {
        const int native = zmq_errno();
        return error{status::system_error, native,
                     fmt::format("cannot connect to {}: {}", endpoint, zmq_strerror(native))};
    }
    if (auto made = wait_for_handshake(*monitor, endpoint, deadline); !made) return made;
    monitor_ = std::move(*monitor);
    return {};
}

result<void> client_link::wait_for_handshake(core::socket_monitor& monitor, const std::string& endpoint,
                                             core::nanoseconds deadline) {
    for (;;) {
        const core::nanoseconds at = core::now();
        while (const auto event = monitor.next()) {
            if (event->what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return {};
            if ((event->what & core::handshake_failures) != 0)
                return error{status::unauthorized, 0,
                             fmt::format("the data path at {} did not let us in: {}", endpoint,
                                         core::explain_handshake_failure(*event))};
            return error{
                status::peer_lost, 0,
                fmt::format("the data path at {} is closed; is its port open in the firewall?", endpoint)};
        }
        if (at >= deadline)
            return error{
                status::timed_out, 0,
                fmt::format("the data path at {} did not answer in time; is its port open in the firewall?",
                            endpoint)};
        zmq_pollitem_t item{monitor.socket().get(), 0, ZMQ_POLLIN, 0};
        zmq_poll(&item, 1, core::poll_timeout(at, deadline));
    }
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

server_hub::server_hub(core::zmq_socket socket, std::shared_ptr<const core::security_identity> security)
    : router(std::move(socket)),
      router_fd(router.fd()),
      epoll_fd_(::epoll_create1(EPOLL_CLOEXEC)),
      security_(std::move(security)),
      port_(router.bound_port()) {}

server_hub::~server_hub() {
    ::close(epoll_fd_);
}

int server_hub::event_fd() noexcept {
    if (!watched_) {
        watch_fd(epoll_fd_, returned->fd());
        watch_fd(epoll_fd_, router_fd);
    }
    watched_ = true;
    return epoll_fd_;
}

void server_hub::stop() noexcept {
    if (watched_) ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, router_fd, nullptr);
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
        // It may have been opened since this turn began.
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
}

core::link_description server_link::describe() const {
    core::link_description told(description_bytes);
    const std::uint16_t port = hub_->port();
    told[0] = std::byte{description_version};
    std::memcpy(told.data() + 2, &port, sizeof port);
    std::memcpy(told.data() + 4, &identity_.index, sizeof identity_.index);
    return told;
}

void server_link::activate() {
    activated_ = true;
    hub_->activate(*this);
}

bool server_link::close() noexcept {
    if (!closed_) {
        closed_ = true;
        ended_ = true;
        frames_->forget();
        // What no peer was ever told of is not known to the polling thread.
        if (activated_) {
            hub_->remove(identity_.index);
        } else {
            hub_->put_index(identity_.index);
        }
    }
    if (activated_) hub_->returned->settle_forgotten();
    return frames_->idle();
}

result<std::unique_ptr<core::poller>> server_poller::open(void* zmq_context,
                                                          const core::poller_options& options) {
    auto endpoint = core::tcp_endpoint(options.host, options.port, true);
    if (!endpoint) return endpoint.error();
    auto router = core::zmq_socket::open(zmq_context, ZMQ_ROUTER);
    if (!router) return router.error();
    router->set(ZMQ_ROUTER_MANDATORY, 1);
    router->set(ZMQ_SNDHWM, 0);
    router->set(ZMQ_RCVHWM, server_receive_queue);
    router->set(ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(core::max_payload_bytes) + frame_overhead);
    router->set(ZMQ_TCP_MAXRT, stalled_ms);
    router->set(ZMQ_BACKLOG, listen_backlog);
    if (auto secured = core::secure_socket(router->get(), *options.security, true); !secured)
        return secured.error();
    if (!router->bind(*endpoint)) {
        const int native = zmq_errno();
        return error{native == EADDRINUSE ? status::invalid_argument : status::system_error, native,
                     fmt::format("cannot listen for zmq data on {}: {}; choose another host or data_port",
                                 core::host_and_port(options.host, options.port), zmq_strerror(native))};
    }
    auto hub = std::make_shared<server_hub>(std::move(*router), options.security);
    return std::unique_ptr<core::poller>{std::make_unique<server_poller>(std::move(hub))};
}

result<std::unique_ptr<core::link>> server_poller::open_link(const core::link_config& config) {
    return std::unique_ptr<core::link>{std::make_unique<server_link>(hub_, config)};
}

void server_poller::drop_stranger(message_part& identity) noexcept {
    const char* const known = zmq_msg_gets(identity.raw(), "Peer-Address");
    const std::string_view address = known != nullptr ? known : "an unknown address";
    core::log().limited(address).warn(
        "dropped zmq data of a client at {}: its session token is not (or no longer) good", address);
    drop_rest(hub_->router.get(), identity);
}

}  // namespace accel::zmq
