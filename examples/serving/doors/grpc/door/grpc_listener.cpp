// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/grpc_listener.hpp"

#include "serving/doors/http/listener.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::examples::serving::doors {

using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

/// How soon a newcomer that found no room tries again.
constexpr std::chrono::milliseconds between_tries{20};

/// A connection is closed for a newcomer after so many silent ticks, a second: gRPC may have read a request and not
/// made a call of it yet. Ticks stand still with the program, time does not.
constexpr std::uint64_t least_silence = 10;
/// How many connections that were closed for newcomers gRPC may still have.
constexpr std::size_t most_ending = 16;
/// How many connections a newcomer without room, and a tick, may cost a look.
constexpr std::size_t looks_of_newcomer = 64;
constexpr std::size_t looks_of_tick = 128;
/// Of very many, a tick looks at this part.
constexpr std::size_t ticks_of_sweep = 64;

std::optional<std::uint64_t> inode_of(int fd) noexcept {
    struct stat about {};
    if (fstat(fd, &about) != 0) return std::nullopt;
    return about.st_ino;
}

/// How many bytes have been read from a socket, and taken by its client. Nothing: some are unread.
std::optional<std::uint64_t> moved_by(int socket) noexcept {
    // The kernel's `tcp_info`, whose end libc's lacks; `tcpi_bytes_acked` and `tcpi_bytes_received` are the last two.
    std::array<std::uint64_t, 17> about{};
    socklen_t length = sizeof about;
    int unread = 0;
    // In this order: what arrives between the two is unread, or is more the next time.
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, about.data(), &length) != 0) return std::nullopt;
    if (::ioctl(socket, FIONREAD, &unread) != 0 || unread > 0) return std::nullopt;
    return about[15] + about[16];
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
    /// gRPC reads its end, and closes it.
    void end() const noexcept {
        if (is_it_) ::shutdown(fd_, SHUT_RDWR);
    }
    /// What it has sent and gRPC has not read is dropped: `shutdown` leaves that to gRPC.
    void reset() const noexcept {
        sockaddr none{};
        none.sa_family = AF_UNSPEC;
        if (is_it_) (void)::connect(fd_, &none, sizeof none);
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
    newcomer_.reset();
    timer_.cancel();
}

void grpc_listener::accept() {
    if (!acceptor_.is_open()) return;
    acceptor_.async_accept([this](const error_code& failed, tcp::socket from) {
        if (!acceptor_.is_open()) return;
        if (failed) return accept_later();  // descriptors are short
        newcomer_.emplace(std::move(from));
        admit();
    });
}

void grpc_listener::accept_later() {
    timer_.expires_after(between_tries);
    timer_.async_wait([this](const error_code& failed) {
        if (failed) return;
        if (newcomer_) return admit();
        accept();
    });
}

/// One newcomer at a time, which may have to wait for room.
void grpc_listener::admit() {
    tcp::socket from = std::move(*newcomer_);
    newcomer_.reset();
    error_code failed;
    const tcp::endpoint at = from.remote_endpoint(failed);
    const room found = failed ? room::never : make_room(client_of(at));
    if (found == room::later) {
        newcomer_.emplace(std::move(from));
        return accept_later();
    }
    if (found == room::there) hand_over(std::move(from), at);
    accept();
}

/// A client's share comes first: one that has more than that costs no other client a connection.
grpc_listener::room grpc_listener::make_room(const boost::asio::ip::address& client) {
    const auto is_over = [&] { return order_.count(client) >= most_of_one_; };
    if (!is_over() && !is_full()) return room::there;
    sweep(looks_of_newcomer);
    if (!is_over() && !is_full()) return room::there;
    if (!can_end_more()) return room::later;
    if (end_longest_idle(is_over() ? &client : nullptr)) return room::there;
    return is_over() ? room::never : room::later;
}

bool grpc_listener::can_end_more() {
    for (const auto& each : std::vector(ending_))
        if (inode_of(each->fd) != each->inode) forget(each);
    return ending_.size() < most_ending;
}

bool grpc_listener::is_silent(given& one) const {
    const auto moved = moved_by(one.fd);
    if (moved == one.moved && !calls_.any(one.port)) return true;
    one.moved = moved.value_or(one.moved);
    one.since = ticks_;
    return false;
}

bool grpc_listener::may_end(given& one) const {
    return is_silent(one) && ticks_ - one.since >= least_silence;
}

bool grpc_listener::end_longest_idle(const boost::asio::ip::address* client) {
    given* const longest = order_.longest(client, [this](given& each) { return may_end(each); });
    if (longest == nullptr) return false;
    held_socket{*longest}.end();
    longest->ending = true;
    order_.leave(*longest);
    ending_.push_back(longest->self);
    return true;
}

void grpc_listener::hand_over(tcp::socket from, const tcp::endpoint& at) {
    error_code failed;
    from.set_option(tcp::no_delay{true}, failed);
    from.native_non_blocking(true, failed);
    const auto inode = inode_of(from.native_handle());
    if (failed || !inode) return;
    ::grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters made;
    made.fd = from.release(failed);
    given& one = given_.emplace_back(client_of(at));
    one.fd = made.fd;
    one.inode = *inode;
    one.port = at.port();
    one.since = ticks_;
    one.self = std::prev(given_.end());
    order_.join(one);
    order_.set_idle(one);
    door_metrics::add(counting_.connections, 1);
    door_metrics::add(counting_.open_connections, 1);
    to_->HandleNewConnection(&made);
}

void grpc_listener::tick() {
    ++ticks_;
    sweep(std::max(looks_of_tick, given_.size() / ticks_of_sweep));
}

void grpc_listener::reset(const tcp::endpoint& client) {
    const boost::asio::ip::address address = client_of(client);
    for (const given& each : given_)
        if (each.port == client.port() && each.client == address) held_socket{each}.reset();
}

void grpc_listener::sweep(std::size_t most) {
    for (std::size_t left = std::min(most, given_.size()); left > 0; --left) {
        if (swept_ == given_.end()) swept_ = given_.begin();
        const auto at = swept_++;
        if (inode_of(at->fd) != at->inode)
            forget(at);
        else if (!at->ending && !is_silent(*at))
            order_.set_idle(*at);
    }
}

void grpc_listener::forget(std::list<given>::iterator gone) {
    if (std::erase(ending_, gone) == 0) order_.leave(*gone);
    if (swept_ == gone) ++swept_;
    given_.erase(gone);
    door_metrics::drop(counting_.open_connections);
}

}  // namespace accel::examples::serving::doors
