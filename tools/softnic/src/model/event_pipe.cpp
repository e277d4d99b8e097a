// SPDX-License-Identifier: Apache-2.0
#include "model/event_pipe.hpp"

#include <cerrno>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace accel::softnic {

event_pipe::event_pipe(kind what) : kind_(what) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    read_ = ends[0];
    write_ = ends[1];
    ::fcntl(write_, F_SETFL, O_NONBLOCK);
}

event_pipe::~event_pipe() {
    ::close(write_);
}

bool event_pipe::send(std::uint64_t element, std::uint32_t event_type) {
    ib_uverbs_async_event_desc record{};
    record.element = element;
    record.event_type = event_type;
    static_assert(sizeof record == static_cast<std::size_t>(kind::asynchronous));
    const auto size = static_cast<std::size_t>(kind_);
    return ::write(write_, &record, size) == static_cast<ssize_t>(size);
}

bool event_pipe::readable() const {
    int available = 0;
    return ::ioctl(read_, FIONREAD, &available) == 0 && available > 0;
}

unsigned event_pipe::take_back(std::uint64_t element) {
    const auto size = static_cast<std::size_t>(kind_);
    int available = 0;
    if (::ioctl(read_, FIONREAD, &available) != 0) return 0;
    std::vector<ib_uverbs_async_event_desc> others;
    unsigned taken = 0;
    for (; available >= static_cast<int>(size); available -= static_cast<int>(size)) {
        ib_uverbs_async_event_desc record{};
        if (::read(read_, &record, size) != static_cast<ssize_t>(size)) break;
        if (record.element == element)
            ++taken;
        else
            others.push_back(record);
    }
    for (const auto& record : others) send(record.element, record.event_type);
    return taken;
}

}  // namespace accel::softnic
