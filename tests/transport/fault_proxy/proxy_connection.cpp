// SPDX-License-Identifier: Apache-2.0
#include "proxy_connection.hpp"

#include <algorithm>
#include <cerrno>

#include <sys/socket.h>
#include <unistd.h>

namespace accel::tests {

namespace {

bool would_block(ssize_t outcome) {
    return outcome < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN);
}

fault if_meant_for(const fault& mine, flow direction) {
    fault out = mine;
    if (mine.direction != direction) out.kind = fault_kind::none;
    return out;
}

}  // namespace

void half::interest(pollfd& reading, pollfd& writing, proxy_clock::duration& pause) const {
    if (ended_ || stalled_) return;
    const auto now = proxy_clock::now();
    if (paused_until_ > now) {
        pause = std::min(pause, paused_until_ - now);
        return;
    }
    const bool room = discarding_ || end_ < buffer_.size();
    if (!source_ended_ && room) reading.events = static_cast<short>(reading.events | POLLIN);
    if (begin_ < end_) writing.events = static_cast<short>(writing.events | POLLOUT);
}

bool half::move(std::uint64_t& struck) {
    if (ended_ || stalled_ || paused_until_ > proxy_clock::now()) return true;
    if (due() && !strike(struck)) return false;
    if (stalled_ || paused_until_ > proxy_clock::now()) return true;
    return read_some(struck) && write_some() && (!due() || strike(struck));
}

bool half::strike(std::uint64_t& struck) {
    ++struck;
    const fault_kind kind = fault_.kind;
    fault_.kind = fault_kind::none;
    switch (kind) {
        case fault_kind::cut:
            reset_ = true;
            return false;
        case fault_kind::end:
            return false;
        case fault_kind::stall:
            stalled_ = true;
            return true;
        case fault_kind::delay:
            paused_until_ = proxy_clock::now() + fault_.pause;
            return true;
        case fault_kind::truncate:
            (void)shutdown(to_, SHUT_WR);
            discarding_ = true;
            begin_ = end_ = 0;
            return true;
        case fault_kind::none:
        case fault_kind::corrupt:
            break;
    }
    return true;
}

bool half::read_some(std::uint64_t& struck) {
    if (source_ended_ || (!discarding_ && end_ == buffer_.size())) return true;
    const ssize_t got = recv(from_, buffer_.data() + end_, buffer_.size() - end_, MSG_DONTWAIT);
    if (would_block(got)) return true;
    if (got < 0) {
        reset_ = true;
        return false;
    }
    if (got == 0) {
        source_ended_ = true;
        return true;
    }
    const auto count = static_cast<std::size_t>(got);
    if (fault_.kind == fault_kind::corrupt && fault_.offset >= taken_ && fault_.offset < taken_ + count) {
        buffer_[end_ + (fault_.offset - taken_)] ^= std::byte{fault_.mask};
        ++struck;
    }
    taken_ += count;
    if (!discarding_) end_ += count;
    return true;
}

bool half::write_some() {
    while (begin_ < end_) {
        std::size_t count = end_ - begin_;
        const bool armed = fault_.kind != fault_kind::none && fault_.kind != fault_kind::corrupt;
        if (armed && passed_ + count > fault_.offset) count = static_cast<std::size_t>(fault_.offset - passed_);
        if (count == 0) return true;  // the fault is due
        const ssize_t put = send(to_, buffer_.data() + begin_, count, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (would_block(put)) return true;
        if (put < 0) {
            reset_ = true;
            return false;
        }
        begin_ += static_cast<std::size_t>(put);
        passed_ += static_cast<std::uint64_t>(put);
    }
    begin_ = end_ = 0;
    if (source_ended_ && !ended_) end_in_order();
    return true;
}

void half::end_in_order() {
    (void)shutdown(to_, SHUT_WR);
    ended_ = true;
}

proxy_connection::proxy_connection(int client_fd, int server_fd, const fault& mine)
    : client(client_fd),
      server(server_fd),
      up(client_fd, server_fd, if_meant_for(mine, flow::to_server)),
      down(server_fd, client_fd, if_meant_for(mine, flow::to_client)) {}

proxy_connection::~proxy_connection() {
    if (reset || up.reset() || down.reset()) {
        const linger at_once{.l_onoff = 1, .l_linger = 0};
        (void)setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        (void)setsockopt(server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    close(client);
    close(server);
}

bool proxy_connection::move(std::uint64_t& struck) {
    return up.move(struck) && down.move(struck) && !(up.finished() && down.finished());
}

}  // namespace accel::tests
