// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/zerocopy.hpp"

#include <cstring>
#include <ctime>

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace accel::tcp {

void zerocopy_ledger::enable(int fd, std::uint32_t slots) {
    const int on = 1;
    if (::setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0) {
        counts_.assign(slots, 0);
        enabled_ = true;
    }
}

void zerocopy_ledger::sent(std::uint32_t slot) noexcept {
    in_flight_[next_++ % in_flight_.size()] = slot;
    ++counts_[slot];
}

bool zerocopy_ledger::read(int fd, std::uint32_t& first, std::uint32_t& last) noexcept {
    alignas(cmsghdr) std::array<char, 128> control;
    msghdr message{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (::recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return false;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        const bool of_ip = (c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
                           (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR);
        if (!of_ip) continue;
        sock_extended_err note;
        std::memcpy(&note, CMSG_DATA(c), sizeof note);
        if (note.ee_origin == SO_EE_ORIGIN_ZEROCOPY && note.ee_errno == 0) {
            first = note.ee_info;
            last = note.ee_data;
            copied_ = (note.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0 ? copied_ + (last - first + 1) : 0;
            return true;
        }
    }
    // Something else was queued: an empty range.
    first = 1;
    last = 0;
    return true;
}

std::uint32_t zerocopy_ledger::take(std::uint32_t id) noexcept {
    if (id - oldest_ >= next_ - oldest_) return none;
    std::uint32_t& entry = in_flight_[id % in_flight_.size()];
    const std::uint32_t slot = entry;
    if (slot != none) {
        --counts_[slot];
        entry = none;
    }
    while (oldest_ != next_ && in_flight_[oldest_ % in_flight_.size()] == none) ++oldest_;
    return slot;
}

}  // namespace accel::tcp
