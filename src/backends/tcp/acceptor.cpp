#include "backends/tcp/acceptor.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace accel::tcp {
namespace {

constexpr std::size_t accepts_at_once = 32;
constexpr std::uint64_t listener_tag = ~std::uint64_t{0};

std::uint64_t tag_of(std::size_t place) noexcept {
    return (std::uint64_t{place} << 1) | 1;
}

unique_fd open_spare() noexcept {
    return unique_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

bool watch(int epoll, int fd, std::uint64_t tag) noexcept {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag;
    return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

acceptor::acceptor(unique_fd listener, int epoll)
    : listener_(std::move(listener)), spare_(open_spare()), epoll_(epoll), places_(places) {}

result<acceptor> acceptor::open(unique_fd listener, int epoll) {
    acceptor made(std::move(listener), epoll);
    if (!watch(epoll, made.listener_.get(), listener_tag)) {
        return error{status::system_error, errno,
                     "tcp: cannot watch the listening socket; raise the limit of open files"};
    }
    return made;
}

void acceptor::on_event(std::uint64_t data, std::vector<claim>& out) {
    if (data == listener_tag) {
        expire();
        return accept_some(out);
    }
    const std::size_t index = data >> 1;
    if (index < places_.size() && places_[index].socket.open()) {
        read_preamble(index, out);
    }
}

void acceptor::accept_some(std::vector<claim>& out) {
    for (std::size_t i = 0; i < accepts_at_once; ++i) {
        unique_fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket.open()) {
            const bool out_of_descriptors = errno == EMFILE || errno == ENFILE;
            if (out_of_descriptors) {
                shed_one();
            }
            return;
        }
        const std::size_t index = take_place();
        place& p = places_[index];
        p.socket = std::move(socket);
        p.received = 0;
        p.since = core::now();
        ++half_open_;
        if (!watch(epoll_, p.socket.get(), tag_of(index))) {
            free_place(index);
            continue;
        }
        read_preamble(index, out);
    }
}

/// Accepts and closes one connection, or the listener would stay ready for ever.
void acceptor::shed_one() noexcept {
    spare_.reset();
    unique_fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)).reset();
    spare_ = open_spare();
}

std::size_t acceptor::take_place() noexcept {
    std::size_t oldest = 0;
    for (std::size_t i = 0; i < places_.size(); ++i) {
        if (!places_[i].socket.open()) {
            return i;
        }
        if (places_[i].since < places_[oldest].since) {
            oldest = i;
        }
    }
    free_place(oldest);
    return oldest;
}

void acceptor::read_preamble(std::size_t index, std::vector<claim>& out) {
    place& p = places_[index];
    const ssize_t count =
        ::recv(p.socket.get(), p.bytes.data() + p.received, p.bytes.size() - p.received, MSG_DONTWAIT);
    if (count <= 0) {
        const bool later = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
        if (!later) {
            free_place(index);
        }
        return;
    }
    p.received += static_cast<std::size_t>(count);
    if (p.received < p.bytes.size()) {
        return;
    }
    claim complete;
    std::memcpy(&complete.preamble, p.bytes.data(), p.bytes.size());
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, p.socket.get(), nullptr);
    complete.socket = std::move(p.socket);
    --half_open_;
    out.push_back(std::move(complete));
}

void acceptor::free_place(std::size_t index) noexcept {
    places_[index].socket.reset();
    --half_open_;
}

void acceptor::expire() noexcept {
    if (half_open_ == 0) {
        return;
    }
    const core::nanoseconds limit = core::now() - patience;
    for (std::size_t i = 0; i < places_.size(); ++i) {
        if (places_[i].socket.open() && places_[i].since < limit) {
            free_place(i);
        }
    }
}

}  // namespace accel::tcp
