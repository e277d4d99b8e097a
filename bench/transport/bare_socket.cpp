// SPDX-License-Identifier: Apache-2.0
#include "loopback_socket.hpp"
#include "side.hpp"

namespace accel::bench {
namespace {

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

result<std::unique_ptr<echo>> connect_socket(const std::string& port, std::size_t size_bytes) {
    auto socket = connect_on_loopback(port);
    if (!socket) return socket.error();
    return std::unique_ptr<echo>{std::make_unique<socket_echo>(std::move(*socket), size_bytes)};
}

}  // namespace

side bare_socket(std::size_t size_bytes) {
    return {"bare socket", {"socket", std::to_string(size_bytes)}, connect_socket};
}

int serve_bare_socket(std::size_t size_bytes) {
    const descriptor client = serve_one_on_loopback();
    if (client.get() < 0) return 1;
    std::vector<std::byte> bytes(size_bytes);
    while (read_all(client.get(), bytes) && write_all(client.get(), bytes)) {
    }
    return 0;
}

}  // namespace accel::bench
