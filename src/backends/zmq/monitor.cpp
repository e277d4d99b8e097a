// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/monitor.hpp"

#include "backends/zmq/descriptors.hpp"
#include "backends/zmq/message.hpp"
#include "core/net/descriptor_error.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>

namespace accel::zmq {

result<socket_monitor> socket_monitor::open(void* context, owned_socket& watched, int events) {
    static std::atomic<std::uint64_t> counter{0};
    const std::string endpoint = fmt::format("inproc://accel.monitor.{}", counter.fetch_add(1));
    auto pair = owned_socket::open(context, ZMQ_PAIR);
    if (!pair) return pair.error();
    // Unbounded, because ZeroMQ's own thread would block on a full queue. A client's socket makes one
    // connection, so there are few events.
    if (!pair->set(ZMQ_RCVHWM, 0)) return refused_option();
    if (zmq_socket_monitor(watched.get(), endpoint.c_str(), events) != 0 ||
        zmq_connect(pair->get(), endpoint.c_str()) != 0) {
        const int native = zmq_errno();
        zmq_socket_monitor(watched.get(), nullptr, 0);
        if (core::is_shortage(native)) return no_descriptor(native);
        return error{status::system_error, native,
                     fmt::format("ZeroMQ cannot watch a socket: {}", zmq_strerror(native))};
    }
    socket_monitor opened;
    opened.watched_ = watched.get();
    opened.pair_ = std::move(*pair);
    return opened;
}

socket_monitor& socket_monitor::operator=(socket_monitor&& other) noexcept {
    if (this != &other) {
        close();
        watched_ = std::exchange(other.watched_, nullptr);
        pair_ = std::move(other.pair_);
    }
    return *this;
}

void socket_monitor::close() noexcept {
    // In this order: ZeroMQ blocks on an event for which there is no listener.
    if (watched_ != nullptr) zmq_socket_monitor(watched_, nullptr, 0);
    watched_ = nullptr;
    pair_.close();
}

std::optional<monitor_event> socket_monitor::next() noexcept {
    message_part head;
    if (!pair_ || !head.receive(pair_.get())) return std::nullopt;
    std::uint16_t what = 0;
    monitor_event event;
    if (head.size() >= sizeof what + sizeof event.value) {
        std::memcpy(&what, head.data(), sizeof what);
        std::memcpy(&event.value, head.data() + sizeof what, sizeof event.value);
    }
    event.what = what;
    drop_rest(pair_.get(), head);
    return event;
}

}  // namespace accel::zmq
