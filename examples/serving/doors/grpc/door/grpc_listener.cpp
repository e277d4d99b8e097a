// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/grpc_listener.hpp"

#include "serving/doors/http/listener.hpp"

#include <chrono>
#include <optional>
#include <utility>

#include <sys/stat.h>

namespace accel::examples::serving::doors {

using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

/// How soon a connection that ends makes room, where there is none.
constexpr std::chrono::milliseconds between_sweeps{50};

std::optional<std::uint64_t> inode_of(int fd) noexcept {
    struct stat about {};
    if (fstat(fd, &about) != 0) return std::nullopt;
    return about.st_ino;
}

}  // namespace

grpc_listener::grpc_listener(boost::asio::io_context& loop, tcp::acceptor at, std::size_t most, door_metrics& counting)
    : acceptor_(std::move(at)), timer_(loop), most_(most), counting_(counting) {}

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

/// Where there is no room, or descriptors are short, it tries again a little later.
void grpc_listener::accept() {
    if (!acceptor_.is_open()) return;
    if (given_.size() >= most_) sweep();
    const auto later = [this](const error_code& failed) {
        if (!failed) accept();
    };
    if (given_.size() >= most_) {
        timer_.expires_after(between_sweeps);
        return timer_.async_wait(later);
    }
    acceptor_.async_accept([this, later](const error_code& failed, tcp::socket from) {
        if (!failed) {
            hand_over(std::move(from));
            return accept();
        }
        timer_.expires_after(between_sweeps);
        timer_.async_wait(later);
    });
}

void grpc_listener::hand_over(tcp::socket from) {
    error_code failed;
    from.set_option(tcp::no_delay{true}, failed);
    from.native_non_blocking(true, failed);
    const auto inode = inode_of(from.native_handle());
    if (failed || !inode) return;
    ::grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters made;
    made.fd = from.release(failed);
    given_.push_back({made.fd, *inode});
    door_metrics::add(counting_.connections, 1);
    door_metrics::add(counting_.open_connections, 1);
    to_->HandleNewConnection(&made);
}

void grpc_listener::sweep() {
    const auto gone = std::erase_if(given_, [](const given& each) { return inode_of(each.fd) != each.inode; });
    door_metrics::drop(counting_.open_connections, gone);
}

}  // namespace accel::examples::serving::doors
