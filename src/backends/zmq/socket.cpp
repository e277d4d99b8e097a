// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/socket.hpp"

#include "backends/zmq/descriptors.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

namespace accel::zmq {
namespace {

/// Every address, of both families with ZMQ_IPV6.
const std::string any_host = "tcp://*:";

std::string without_brackets(const std::string& host) {
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    return bracketed ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

result<owned_socket> owned_socket::open(void* context, int type) {
    if (const int none = try_descriptors(socket_descriptors); none != 0) return no_descriptor(none);
    owned_socket opened{::zmq_socket(context, type)};
    if (!opened) {
        const int native = zmq_errno();
        if (core::is_shortage(native)) return no_descriptor(native);
        return error{status::system_error, native,
                     fmt::format("ZeroMQ cannot open a socket: {}", zmq_strerror(native))};
    }
    if (!opened.set(ZMQ_LINGER, 0)) return refused_option();
    return opened;
}

owned_socket& owned_socket::operator=(owned_socket&& other) noexcept {
    if (this != &other) {
        close();
        handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
}

void owned_socket::close() noexcept {
    if (handle_ != nullptr) zmq_close(handle_);
    handle_ = nullptr;
}

bool owned_socket::bind(const std::string& endpoint) noexcept {
    const bool any = endpoint.starts_with(any_host);
    if (!set(ZMQ_IPV6, any || endpoint.find('[') != std::string::npos ? 1 : 0)) return false;
    if (try_binding(endpoint)) return true;
    if (!any || !core::is_missing_family(zmq_errno())) return false;
    return set(ZMQ_IPV6, 0) && try_binding(endpoint);
}

bool owned_socket::try_binding(const std::string& endpoint) noexcept {
    const core::nanoseconds deadline = core::deadline_after(std::chrono::milliseconds{500});
    while (zmq_bind(handle_, endpoint.c_str()) != 0) {
        if (zmq_errno() != EADDRINUSE || core::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    return true;
}

bool owned_socket::connect(const std::string& endpoint) noexcept {
    return set(ZMQ_IPV6, endpoint.find('[') != std::string::npos ? 1 : 0) &&
           zmq_connect(handle_, endpoint.c_str()) == 0;
}

bool owned_socket::set(int option, int value) noexcept {
    return set(option, std::as_bytes(std::span(&value, 1)));
}

bool owned_socket::set(int option, std::int64_t value) noexcept {
    return set(option, std::as_bytes(std::span(&value, 1)));
}

bool owned_socket::set(int option, std::span<const std::byte> value) noexcept {
    while (zmq_setsockopt(handle_, option, value.data(), value.size()) != 0)
        if (zmq_errno() != EINTR) return false;
    return true;
}

bool owned_socket::get(int option, void* value, std::size_t size) noexcept {
    while (zmq_getsockopt(handle_, option, value, &size) != 0)
        if (zmq_errno() != EINTR) return false;
    return true;
}

int owned_socket::events() noexcept {
    int value = 0;
    return get(ZMQ_EVENTS, &value, sizeof value) ? value : 0;
}

int owned_socket::fd() noexcept {
    int value = -1;
    return get(ZMQ_FD, &value, sizeof value) ? value : -1;
}

std::uint16_t owned_socket::bound_port() noexcept {
    std::array<char, 256> endpoint{};
    if (!get(ZMQ_LAST_ENDPOINT, endpoint.data(), endpoint.size())) return 0;
    const std::string_view text{endpoint.data()};
    const std::string_view digits = text.substr(text.rfind(':') + 1);
    std::uint16_t port = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), port);
    return port;
}

error refused_option() {
    const int native = zmq_errno();
    return {
        status::system_error, native,
        fmt::format("ZeroMQ rejects an option of its socket: {}; its version may be too old", zmq_strerror(native))};
}

std::string host_and_port(const std::string& host, std::uint16_t port) {
    const bool bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
    return bare_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string endpoint_at(const std::string& address, std::uint16_t port) {
    return "tcp://" + host_and_port(address, port);
}

result<std::vector<std::string>> endpoints_to_bind(const std::string& host, std::uint16_t port,
                                                   core::nanoseconds deadline) {
    const std::string port_text = port == 0 ? "*" : fmt::format("{}", port);
    if (host.empty() || host == "*") return std::vector{any_host + port_text};
    auto found = core::resolve(without_brackets(host), port, true, deadline);
    if (!found) return found.error();
    std::vector<std::string> out;
    for (const core::socket_address& each : *found) {
        const std::string address = core::numeric_host(each);
        const bool ipv6 = each.storage.ss_family == AF_INET6;
        out.push_back(fmt::format("tcp://{}:{}", ipv6 ? "[" + address + "]" : address, port_text));
    }
    return out;
}

int milliseconds_until(core::nanoseconds deadline) noexcept {
    const core::nanoseconds from = core::now();
    if (deadline <= from) return 0;
    constexpr core::nanoseconds longest = std::chrono::hours{1};
    const core::nanoseconds left = std::min(deadline - from, longest);
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

}  // namespace accel::zmq
