#include "backends/tcp/link.hpp"
#include "backends/tcp/poller.hpp"
#include "backends/tcp/wire.hpp"

#include <cstring>
#include <utility>

#include <sys/socket.h>

/// Making and ending a data connection.
namespace accel::tcp {

namespace {

/// How long a server's link goes on sending answers after `close`, and waits for the kernel to let go of
/// pinned pages.
constexpr std::chrono::milliseconds close_grace{250};

core::message_kind kind_received(core::link_role role) noexcept {
    return role == core::link_role::server ? core::message_kind::request : core::message_kind::response;
}

}  // namespace

tcp_link::tcp_link(tcp_poller& owner, const core::link_config& config)
    : poller_(owner),
      config_(config),
      queue_(config.geometry.slots),
      loans_(config.geometry.slots),
      reader_(kind_received(config.role), config.receive) {}

tcp_link::~tcp_link() {
    leave_poller();
    if (zerocopy_.pending()) {
        abort_connection();
    }
}

core::link_description tcp_link::describe() const {
    if (!is_server()) {
        return {};
    }
    const server_address address{.port = poller_.port()};
    core::link_description out(sizeof address);
    std::memcpy(out.data(), &address, sizeof address);
    return out;
}

result<void> tcp_link::attach(const core::link_grant& grant, core::nanoseconds deadline) {
    if (is_server()) {
        return {};
    }
    server_address address;
    if (grant.description.size() != sizeof address) {
        return error{status::protocol_error, 0,
                     "tcp: the server's description of its data path is malformed"};
    }
    std::memcpy(&address, grant.description.data(), sizeof address);
    if (address.format != server_address{}.format || address.port == 0) {
        return error{status::version_mismatch, 0,
                     "tcp: the server describes its data path in a form unknown here"};
    }
    auto socket = connect_to(grant.host, address.port, deadline);
    if (!socket) {
        return socket.error();
    }
    attach_preamble preamble;
    preamble.session_id = grant.session_id;
    preamble.token = grant.token;
    if (auto sent = send_all(socket->get(), &preamble, sizeof preamble, deadline); !sent) {
        return sent;
    }
    fd_ = std::move(socket).value();
    return {};
}

void tcp_link::activate() {
    if (is_server()) {
        polled_ = true;
        return poller_.await(*this);
    }
    start();
    poller_.allow_sleeping_reads(fd_.open() && let_reads_sleep(fd_.get()));
}

void tcp_link::start() {
    state_ = state::open;
    polled_ = true;
    if (config_.zerocopy) {
        zerocopy_.enable(fd_.get(), config_.geometry.slots);
    }
    if (!poller_.add(*this)) {
        fail(status::system_error);
    }
}

bool tcp_link::adopt(unique_fd& socket, const core::session_token& token) {
    if (token_used_ || state_ != state::idle || !equal_in_constant_time(token, config_.token)) {
        return false;
    }
    token_used_ = true;
    fd_ = std::move(socket);
    tune_data_socket(fd_.get());
    start();
    return true;
}

/// Does nothing for a link that was never activated: its poller may be another thread's.
void tcp_link::leave_poller() noexcept {
    if (polled_) {
        poller_.remove(*this);
        polled_ = false;
    }
}

/// The connection is of no more use. What came before is told first, then `lost`.
void tcp_link::fail(status reason) noexcept {
    if (state_ != state::open) {
        return;
    }
    state_ = state::losing;
    reason_ = reason;
    blocked_ = false;
    queue_.clear();
    poller_.unwatch(*this);
    poller_.make_hot(*this);
    if (!zerocopy_.pending()) {
        fd_.reset();
    } else {
        ::shutdown(fd_.get(), SHUT_RDWR);
    }
}

bool tcp_link::close() noexcept {
    if (state_ == state::closed) {
        return true;
    }
    if (state_ != state::closing) {
        leave_poller();
        const bool answers_first = state_ == state::open && is_server() && !peer_left_;
        if (state_ == state::open && !is_server()) {
            say_goodbye();
        }
        if (!answers_first) {
            queue_.clear();
        }
        state_ = state::closing;
        close_by_ = core::now() + close_grace;
    }
    if (!drained(core::now())) {
        return false;
    }
    fd_.reset();
    state_ = state::closed;
    return true;
}

/// As far as the kernel takes it now: a peer that does not get it sees a loss.
void tcp_link::say_goodbye() noexcept {
    if (queue_.mid_record()) {
        return;
    }
    const core::fragment_header last = make_goodbye();
    // A result would change nothing: the connection ends all the same.
    (void)::send(fd_.get(), &last, sizeof last, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/// True when nothing reads slots or lent memory any more.
bool tcp_link::drained(core::nanoseconds now) noexcept {
    if (!queue_.empty()) {
        flush();
    }
    reap_zerocopy();
    if (queue_.empty() && !zerocopy_.pending()) {
        return true;
    }
    const bool waits = is_server() || !peer_left_;
    if (waits && now < close_by_) {
        return false;
    }
    queue_.clear();
    if (zerocopy_.pending()) {
        abort_connection();
    }
    return true;
}

/// Resets the connection, so that the kernel drops what it still holds.
void tcp_link::abort_connection() noexcept {
    const linger at_once{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    fd_.reset();
    zerocopy_.forget();
}

}  // namespace accel::tcp
