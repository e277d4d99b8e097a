#include "side.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace accel::bench {
namespace {

/// Owns a descriptor.
class descriptor {
  public:
    explicit descriptor(int number) noexcept : number_(number) {}
    descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    descriptor& operator=(descriptor&&) = delete;
    ~descriptor() {
        if (number_ >= 0) close(number_);
    }
    [[nodiscard]] int get() const noexcept { return number_; }

  private:
    int number_;
};

sockaddr_in loopback(std::uint16_t port) noexcept {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

void send_at_once(int socket) noexcept {
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool write_all(int socket, const std::vector<std::byte>& bytes) noexcept {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t now = ::send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
        if (now <= 0) return false;
        done += static_cast<std::size_t>(now);
    }
    return true;
}

bool read_all(int socket, std::vector<std::byte>& bytes) noexcept {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t now = ::recv(socket, bytes.data() + done, bytes.size() - done, 0);
        if (now <= 0) return false;
        done += static_cast<std::size_t>(now);
    }
    return true;
}

class socket_echo final : public echo {
  public:
    socket_echo(descriptor socket, std::size_t size_bytes)
        : socket_(std::move(socket)), out_(size_bytes), in_(size_bytes) {}
    bool round_trip() override { return write_all(socket_.get(), out_) && read_all(socket_.get(), in_); }

  private:
    descriptor socket_;
    std::vector<std::byte> out_;
    std::vector<std::byte> in_;
};

error socket_error(const char* what) {
    return {status::system_error, errno, std::string{what} + ": " + std::strerror(errno)};
}

result<std::unique_ptr<echo>> connect_socket(const std::string& port, std::size_t size_bytes) {
    descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const sockaddr_in address = loopback(static_cast<std::uint16_t>(std::atoi(port.c_str())));
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        return socket_error("connect");
    }
    send_at_once(socket.get());
    return std::unique_ptr<echo>{std::make_unique<socket_echo>(std::move(socket), size_bytes)};
}

}  // namespace

side bare_socket(std::size_t size_bytes) {
    return {"bare socket", {"socket", std::to_string(size_bytes)}, connect_socket};
}

int serve_bare_socket(std::size_t size_bytes) {
    const descriptor listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener.get(), generic, length) != 0 || listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), generic, &length) != 0) {
        return 1;
    }
    announce(std::to_string(ntohs(address.sin_port)));
    const descriptor client{accept(listener.get(), nullptr, nullptr)};
    send_at_once(client.get());
    std::vector<std::byte> bytes(size_bytes);
    while (read_all(client.get(), bytes) && write_all(client.get(), bytes)) {
    }
    return 0;
}

}  // namespace accel::bench
