#include "core/control/zmq_socket.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::core {
namespace {

bool is_ipv6(const std::string& endpoint) noexcept {
    return endpoint.find('[') != std::string::npos;
}

}  // namespace

result<zmq_socket> zmq_socket::open(void* context, int type) {
    zmq_socket opened{::zmq_socket(context, type)};
    if (!opened) {
        const int native = zmq_errno();
        return error{
            status::system_error, native,
            fmt::format("ZeroMQ could not open a socket: {}; too many channels in one process, or too few "
                        "file descriptors (ulimit -n)",
                        zmq_strerror(native))};
    }
    opened.set(ZMQ_LINGER, 0);
    return opened;
}

zmq_socket& zmq_socket::operator=(zmq_socket&& other) noexcept {
    if (this != &other) {
        close();
        handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
}

void zmq_socket::close() noexcept {
    if (handle_ != nullptr) zmq_close(handle_);
    handle_ = nullptr;
}

bool zmq_socket::bind(const std::string& endpoint) noexcept {
    set(ZMQ_IPV6, is_ipv6(endpoint) ? 1 : 0);
    const nanoseconds deadline = deadline_after(std::chrono::milliseconds{500});
    while (zmq_bind(handle_, endpoint.c_str()) != 0) {
        if (zmq_errno() != EADDRINUSE || now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    return true;
}

bool zmq_socket::connect(const std::string& endpoint) noexcept {
    set(ZMQ_IPV6, is_ipv6(endpoint) ? 1 : 0);
    return zmq_connect(handle_, endpoint.c_str()) == 0;
}

bool zmq_socket::set(int option, int value) noexcept {
    return zmq_setsockopt(handle_, option, &value, sizeof value) == 0;
}

bool zmq_socket::set(int option, std::int64_t value) noexcept {
    return zmq_setsockopt(handle_, option, &value, sizeof value) == 0;
}

int zmq_socket::events() noexcept {
    int value = 0;
    std::size_t size = sizeof value;
    return zmq_getsockopt(handle_, ZMQ_EVENTS, &value, &size) == 0 ? value : 0;
}

int zmq_socket::fd() noexcept {
    int value = -1;
    std::size_t size = sizeof value;
    return zmq_getsockopt(handle_, ZMQ_FD, &value, &size) == 0 ? value : -1;
}

std::uint16_t zmq_socket::bound_port() noexcept {
    std::array<char, 256> endpoint{};
    std::size_t size = endpoint.size();
    if (zmq_getsockopt(handle_, ZMQ_LAST_ENDPOINT, endpoint.data(), &size) != 0) return 0;
    const std::string_view text{endpoint.data()};
    const std::string_view digits = text.substr(text.rfind(':') + 1);
    std::uint16_t port = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), port);
    return port;
}

bool zmq_socket::send(std::span<const std::byte> bytes, bool more) noexcept {
    return zmq_send(handle_, bytes.data(), bytes.size(), ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
}

bool zmq_frame::receive(zmq_socket& from) noexcept {
    int got = -1;
    do {
        got = zmq_msg_recv(&message_, from.get(), ZMQ_DONTWAIT);
    } while (got < 0 && zmq_errno() == EINTR);
    return got >= 0;
}

std::span<const std::byte> zmq_frame::bytes() noexcept {
    return {static_cast<const std::byte*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
}

std::string_view zmq_frame::text() noexcept {
    return {static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
}

std::string_view zmq_frame::property(const char* name) const noexcept {
    const char* value = zmq_msg_gets(&message_, name);
    return value != nullptr ? std::string_view{value} : std::string_view{};
}

result<socket_monitor> socket_monitor::open(void* context, zmq_socket& watched, int events) {
    static std::atomic<std::uint64_t> counter{0};
    const std::string endpoint = fmt::format("inproc://accel.monitor.{}", counter.fetch_add(1));
    auto pair = zmq_socket::open(context, ZMQ_PAIR);
    if (!pair) return pair.error();
    // Without a bound: ZeroMQ's own thread would wait for us where the queue is full.
    pair->set(ZMQ_RCVHWM, 0);
    if (zmq_socket_monitor(watched.get(), endpoint.c_str(), events) != 0 ||
        zmq_connect(pair->get(), endpoint.c_str()) != 0) {
        const int native = zmq_errno();
        zmq_socket_monitor(watched.get(), nullptr, 0);
        return error{status::system_error, native,
                     fmt::format("ZeroMQ could not watch a socket: {}", zmq_strerror(native))};
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
    zmq_frame head;
    if (!pair_ || !head.receive(pair_)) return std::nullopt;
    std::uint16_t what = 0;
    monitor_event event;
    if (const auto bytes = head.bytes(); bytes.size() >= sizeof what + sizeof event.value) {
        std::memcpy(&what, bytes.data(), sizeof what);
        std::memcpy(&event.value, bytes.data() + sizeof what, sizeof event.value);
    }
    event.what = what;
    for (bool more = head.more(); more;) {
        zmq_frame rest;
        more = rest.receive(pair_) && rest.more();
    }
    return event;
}

std::string explain_handshake_failure(const monitor_event& event) {
    if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
        return "it does not accept this client's key; add the client's public key to the server's "
               "authorized_keys";
    if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
        event.value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
        return "one end uses keys and the other does not; give both ends keys, or ask both for insecure";
    if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
        event.value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC)
        return "server_key is not the key of that server; compare it with the server's .pub file";
    return "it broke off the handshake; check that server_key is the key of that server, and that both ends "
           "use keys or "
           "neither";
}

std::string host_and_port(const std::string& host, std::uint16_t port) {
    const bool bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
    return bare_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

result<std::string> tcp_endpoint(const std::string& host, std::uint16_t port, bool to_bind) {
    const std::string port_text = to_bind && port == 0 ? "*" : fmt::format("{}", port);
    if (to_bind && (host.empty() || host == "*")) return fmt::format("tcp://0.0.0.0:{}", port_text);

    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = to_bind ? AI_PASSIVE : 0;
    addrinfo* found = nullptr;
    const int failure = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{found, [](addrinfo* list) {
                                                                   if (list != nullptr) ::freeaddrinfo(list);
                                                               }};
    if (failure != 0)
        return error{status::invalid_argument, failure,
                     fmt::format("the host name '{}' has no address: {}; check its spelling", name,
                                 ::gai_strerror(failure))};
    const addrinfo* chosen = found;
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
        if (a->ai_family == AF_INET) {
            chosen = a;
            break;
        }
    }
    std::array<char, NI_MAXHOST> numeric{};
    if (::getnameinfo(chosen->ai_addr, chosen->ai_addrlen, numeric.data(), numeric.size(), nullptr, 0,
                      NI_NUMERICHOST) != 0)
        return error{status::invalid_argument, 0,
                     fmt::format("the host name '{}' has no numeric address", name)};
    return chosen->ai_family == AF_INET6 ? fmt::format("tcp://[{}]:{}", numeric.data(), port_text)
                                         : fmt::format("tcp://{}:{}", numeric.data(), port_text);
}

long poll_timeout(nanoseconds from, nanoseconds deadline) noexcept {
    if (deadline <= from) return 0;
    constexpr nanoseconds longest = std::chrono::hours{1};
    const nanoseconds left = std::min(deadline - from, longest);
    return static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

wake_signal::wake_signal() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

wake_signal::~wake_signal() {
    if (fd_ >= 0) ::close(fd_);
}

void wake_signal::set() noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(fd_, &one, sizeof one));
}

void wake_signal::clear() noexcept {
    std::uint64_t count = 0;
    static_cast<void>(!::read(fd_, &count, sizeof count));
}

}  // namespace accel::core
