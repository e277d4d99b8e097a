// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/grpc_listener.hpp"

#include "serving/doors/http/listener.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::examples::serving::doors {

using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

/// How soon a connection that ends makes room, where there is none.
constexpr std::chrono::milliseconds between_sweeps{50};

/// Of a connection that is closed for a newcomer: what has just arrived may be a request that gRPC has not read yet.
constexpr std::chrono::milliseconds least_silence{200};
/// How many connections that were closed for newcomers gRPC may still have.
constexpr std::size_t most_ending = 16;

std::optional<std::uint64_t> inode_of(int fd) noexcept {
    struct stat about {};
    if (fstat(fd, &about) != 0) return std::nullopt;
    return about.st_ino;
}

/// How long nothing has come or gone.
std::optional<std::chrono::milliseconds> silence_of(int socket) noexcept {
    tcp_info about{};
    socklen_t length = sizeof about;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &about, &length) != 0) return std::nullopt;
    return std::chrono::milliseconds{std::min(about.tcpi_last_data_recv, about.tcpi_last_data_sent)};
}

}  // namespace

std::uint16_t port_of(std::string_view peer) noexcept {
    const std::string_view digits = peer.substr(peer.rfind(':') + 1);
    std::uint16_t out = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return out;
}

/// A connection's descriptor of our own, while gRPC may close its own and another file may get that number.
class grpc_listener::held_socket {
  public:
    explicit held_socket(const given& of) noexcept : fd_(::fcntl(of.fd, F_DUPFD_CLOEXEC, 0)) {
        is_it_ = inode_of(fd_) == of.inode;
    }
    held_socket(const held_socket&) = delete;
    held_socket& operator=(const held_socket&) = delete;
    ~held_socket() {
        if (fd_ >= 0) ::close(fd_);
    }
    [[nodiscard]] std::optional<std::chrono::milliseconds> silence() const noexcept {
        return is_it_ ? silence_of(fd_) : std::nullopt;
    }
    /// gRPC reads its end, and closes it.
    void end() const noexcept {
        if (is_it_) ::shutdown(fd_, SHUT_RDWR);
    }

  private:
    int fd_;
    bool is_it_ = false;
};

grpc_listener::grpc_listener(boost::asio::io_context& loop, tcp::acceptor at, const door_settings& limits,
                             door_metrics& counting)
    : acceptor_(std::move(at)),
      timer_(loop),
      most_(limits.max_connections),
      most_of_one_(most_of_an_address(limits)),
      counting_(counting) {}

result<void> grpc_listener::start(std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> to) {
    to_ = std::move(to);
    if (auto listens = listen(acceptor_); !listens) return listens;
    accept();
    return {};
}

void grpc_listener::stop() {
    error_code ignored;
    acceptor_.close(ignored);
    timer_.cancel();
}

void grpc_listener::accept() {
    if (!acceptor_.is_open()) return;
    if (is_full()) return await_newcomer();
    acceptor_.async_accept([this](const error_code& failed, tcp::socket from) {
        if (failed) return accept_later();  // descriptors are short
        hand_over(std::move(from));
        accept();
    });
}

void grpc_listener::accept_later() {
    timer_.expires_after(between_sweeps);
    timer_.async_wait([this](const error_code& failed) {
        if (!failed) accept();
    });
}

void grpc_listener::await_newcomer() {
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const error_code& failed) {
        if (failed) return accept_later();
        sweep();
        if (!is_full() || (given_.size() < most_ + most_ending && end_longest_idle(nullptr))) return accept();
        accept_later();
    });
}

bool grpc_listener::end_longest_idle(const boost::asio::ip::address* client) {
    auto longest = given_.end();
    auto silence = least_silence;
    for (auto each = given_.begin(); each != given_.end(); ++each) {
        if (each->ending || (client != nullptr && each->client != *client) || calls_.any(each->port)) continue;
        const auto silent = held_socket{*each}.silence();
        if (!silent || *silent < silence) continue;
        silence = *silent;
        longest = each;
    }
    if (longest == given_.end()) return false;
    held_socket{*longest}.end();
    longest->ending = true;
    ++ending_;
    return true;
}

void grpc_listener::hand_over(tcp::socket from) {
    error_code failed;
    const tcp::endpoint at = from.remote_endpoint(failed);
    const auto client = client_of(at);
    const auto same =
        std::ranges::count_if(given_, [&](const given& each) { return !each.ending && each.client == client; });
    if (static_cast<std::size_t>(same) >= most_of_one_ && !end_longest_idle(&client)) return;
    from.set_option(tcp::no_delay{true}, failed);
    from.native_non_blocking(true, failed);
    const auto inode = inode_of(from.native_handle());
    if (failed || !inode) return;
    ::grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters made;
    made.fd = from.release(failed);
    given_.push_back({.fd = made.fd, .inode = *inode, .client = client, .port = at.port()});
    door_metrics::add(counting_.connections, 1);
    door_metrics::add(counting_.open_connections, 1);
    to_->HandleNewConnection(&made);
}

void grpc_listener::sweep() {
    const auto gone = std::erase_if(given_, [](const given& each) { return inode_of(each.fd) != each.inode; });
    ending_ = static_cast<std::size_t>(std::ranges::count(given_, true, &given::ending));
    door_metrics::drop(counting_.open_connections, gone);
}

}  // namespace accel::examples::serving::doors
