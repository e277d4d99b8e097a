#include "core/control/handshake_log.hpp"

#include "core/log.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

namespace accel::core {
namespace {

std::string peer_address(std::uint32_t descriptor) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (::getpeername(static_cast<int>(descriptor), any, &length) != 0 ||
        ::getnameinfo(any, length, host.data(), host.size(), port.data(), port.size(),
                      NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return "an unknown address";
    return fmt::format("{} port {}", host.data(), port.data());
}

std::string reason(const monitor_event& failure) {
    if (failure.what == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        return "it broke off the handshake (a client with the wrong server_key, or none, does that)";
    if (failure.value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
        return "one end uses keys and the other does not";
    if (failure.value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC)
        return "its server_key is not the key of this server";
    return fmt::format("it does not speak the protocol of accel_transport (ZeroMQ's error {:#x})",
                       failure.value);
}

}  // namespace

result<handshake_log> handshake_log::open(void* zmq_context, zmq_socket& server) {
    auto watcher = socket_monitor::open(
        zmq_context, server,
        ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED | handshake_failures);
    if (!watcher) return watcher.error();
    handshake_log opened;
    opened.monitor_ = std::move(*watcher);
    return opened;
}

void handshake_log::take_events() {
    while (const auto event = monitor_.next()) {
        if (event->what == ZMQ_EVENT_ACCEPTED) {
            addresses_[event->value] = peer_address(event->value);
        } else if ((event->what & handshake_failures) != 0) {
            failure_ = *event;
        } else if (auto gone = addresses_.extract(event->value)) {
            if (failure_.what != 0) report(gone.mapped());
            failure_ = {};
        }
    }
}

void handshake_log::report(const std::string& address) {
    // A key that is not authorised is reported by the authenticator, by name.
    if (failure_.what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH || !limit_.allow(now())) return;
    log().warn("refused a client at {}: {}", address, reason(failure_));
}

}  // namespace accel::core
