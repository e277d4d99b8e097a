// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/link.hpp"
#include "backends/tcp/opening.hpp"
#include "backends/tcp/poller.hpp"
#include "backends/tcp/wire.hpp"
#include "core/control/data_preamble.hpp"
#include "core/log.hpp"
#include "core/net/socket.hpp"
#include "core/tls/kernel_tls.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <thread>
#include <utility>

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/// Making and ending a data connection.
namespace accel::tcp {

namespace {

/// How long a server's link goes on sending answers after `close`, and waits for the OS to release pinned pages.
constexpr std::chrono::milliseconds close_grace{250};

constexpr int connect_attempts = 10;
constexpr std::chrono::milliseconds pause_between_attempts{50};

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
    if (zerocopy_.pending()) abort_connection();
}

core::link_description tcp_link::describe() const {
    if (is_server()) return {};
    client_wish wish;
    wish.flags = poller_.encrypts() ? client_wish::encrypted : 0;
    core::link_description out(sizeof wish);
    std::memcpy(out.data(), &wish, sizeof wish);
    return out;
}

result<void> tcp_link::attach(const core::link_grant& grant, core::nanoseconds deadline) {
    return is_server() ? read_wish(grant.description) : connect(grant, deadline);
}

result<void> tcp_link::read_wish(const core::link_description& told) {
    client_wish wish;
    if (told.size() != sizeof wish)
        return error{status::protocol_error, 0, "tcp: the client's description of its data path is malformed"};
    std::memcpy(&wish, told.data(), sizeof wish);
    if (wish.format != client_wish{}.format || (wish.flags & ~client_wish::encrypted) != 0)
        return error{status::version_mismatch, 0, "tcp: the client's description of its data path has an unknown form"};
    encrypted_ = (wish.flags & client_wish::encrypted) != 0;
    if (encrypted_ && !poller_.encrypts()) {
        return error{status::unsupported, 0,
                     "tcp: this server does not encrypt payloads (encrypt=off); set encrypt=off at the client as well, "
                     "or remove it at the server"};
    }
    if (!encrypted_ && poller_.has_to_encrypt()) {
        return error{
            status::unauthorized, 0,
            "tcp: this server accepts only encrypted payloads (encrypt=required); remove encrypt=off at the client"};
    }
    return {};
}

/// A server whose port is flooded may drop a connection before it knows whose it is. Another is tried then, as the
/// control connection is. If the server took the first one, and only its answer was lost, it has no session that waits
/// for another: the first failure is the reason.
result<void> tcp_link::connect(const core::link_grant& grant, core::nanoseconds deadline) {
    result<void> first;
    for (int left = connect_attempts;; --left) {
        auto connected = connect_once(grant, deadline);
        const bool dropped = connected.code() == status::peer_lost;
        if (connected.code() == core::no_session_waits && !first) return first;
        if (dropped && first) first = connected;
        if (!dropped || left == 1 || core::now() + pause_between_attempts >= deadline)
            return core::as_told_to_applications(std::move(connected));
        std::this_thread::sleep_for(pause_between_attempts);
    }
}

/// The data connection goes to the control plane's port, which answers it.
result<void> tcp_link::connect_once(const core::link_grant& grant, core::nanoseconds deadline) {
    auto socket = core::connect_to(grant.address, grant.port, deadline);
    if (!socket) return socket.error();
    data_opening opening(socket->get(), deadline);
    encrypted_ = poller_.encrypts();
    if (encrypted_) {
        if (auto shaken = opening.encrypt(*poller_.security(), grant.host, {grant.session_id, grant.token}); !shaken)
            return shaken;
    }
    if (auto sent = opening.show(grant.session_id, grant.token); !sent) return sent;
    if (auto answered = opening.hear(); !answered) return answered;
    fd_ = std::move(*socket);
    if (!pace()) return core::cannot_pace(errno);
    secure(opening.take_tls());
    return {};
}

bool tcp_link::pace() const noexcept {
    return config_.pacing == bit_rate{} || core::pace_socket(fd_.get(), config_.pacing);
}

/// From now on bytes are encrypted, as both ends have agreed.
void tcp_link::secure(std::shared_ptr<core::tls_stream> tls) {
    if (tls == nullptr) return;
    kernel_encrypts_ = core::let_kernel_encrypt(*tls, fd_.get());
    tls->forget_secret();
    tls_ = std::make_unique<tls_bytes>(std::move(tls), fd_.get(), kernel_encrypts_);
}

void tcp_link::activate() {
    if (is_server()) {
        state_ = state::expected;
        return poller_.door().expect(*this, config_.session_id, config_.token, {encrypted_});
    }
    start();
}

/// Without memory for it the connection ends, and with it the session at the client.
void tcp_link::adopt(core::data_connection made) noexcept {
    fd_ = std::move(made.socket);
    core::tune_data_socket(fd_.get());
    const bool ready = pace();
    try {
        secure(std::move(made.tls));
        start();
    } catch (const std::bad_alloc&) {
        core::limited_log("memory").error("no memory is left for the connection of session {}", config_.session_id);
        tls_.reset();
        return fd_.reset();
    }
    if (!ready) fail(status::system_error);
}

/// Throws before anything has changed.
void tcp_link::start() {
    poller_.make_room();
    // The OS would pin plain bytes, and encrypted ones are a copy anyway.
    if (config_.zerocopy && !encrypted_) zerocopy_.enable(fd_.get(), config_.geometry.slots);
    state_ = state::open;
    if (!poller_.add(*this)) fail(status::system_error);
    reads_sleep_ = fd_.open() && core::let_reads_sleep(fd_.get());
}

/// Does nothing for a link that was never activated: its poller may be another thread's.
void tcp_link::leave_poller() noexcept {
    if (polled()) poller_.remove(*this);
}

/// The connection cannot be used any more. Events that came before are reported first, then `lost`.
void tcp_link::fail(status reason) noexcept {
    if (state_ != state::open) return;
    state_ = state::losing;
    reason_ = reason;
    unblock();
    queue_.clear();
    tls_.reset();
    poller_.unwatch(*this);
    poller_.make_hot(*this);
    if (!zerocopy_.pending())
        fd_.reset();
    else
        ::shutdown(fd_.get(), SHUT_RDWR);
}

bool tcp_link::flushed() noexcept {
    if (state_ == state::losing || state_ == state::lost) return false;
    int unacknowledged = 0;
    const bool knows = fd_.open() && ::ioctl(fd_.get(), SIOCOUTQ, &unacknowledged) == 0;
    return all_sent() && (!knows || unacknowledged == 0);
}

bool tcp_link::close() noexcept {
    if (state_ == state::closed) return true;
    if (state_ != state::closing) {
        leave_poller();
        const bool answers_first = state_ == state::open && is_server() && output_ != output::unwanted;
        if (state_ == state::open && !is_server()) say_goodbye();
        if (!answers_first) forget_output();
        state_ = state::closing;
        close_by_ = core::now() + close_grace;
    }
    if (!drained(core::now())) return false;
    if (encrypts()) tls_->finish({});
    tls_.reset();
    fd_.reset();
    state_ = state::closed;
    return true;
}

/// Sends what the OS takes now; a peer that does not get all of it sees a loss.
void tcp_link::say_goodbye() noexcept {
    if (queue_.mid_record()) return;
    const core::fragment_header last = make_goodbye();
    if (encrypts()) return tls_->finish(std::as_bytes(std::span(&last, 1)));
    // The result does not matter: the connection ends in any case.
    (void)::send(fd_.get(), &last, sizeof last, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/// True when nothing reads slots or lent memory any more.
bool tcp_link::drained(core::nanoseconds now) noexcept {
    if (!all_sent()) flush();
    reap_zerocopy();
    if (all_sent() && !zerocopy_.pending()) return true;
    const bool waits = is_server() || output_ != output::unwanted;
    if (waits && now < close_by_) return false;
    forget_output();
    if (zerocopy_.pending()) abort_connection();
    return true;
}

/// Resets the connection, so that the OS drops what it still holds.
void tcp_link::abort_connection() noexcept {
    const linger at_once{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    fd_.reset();
    zerocopy_.forget();
}

}  // namespace accel::tcp
