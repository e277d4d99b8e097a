// SPDX-License-Identifier: Apache-2.0
#include "waker.hpp"

#include "errors.hpp"

#include <cerrno>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::python {

loop_waker::loop_waker() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) raise(status::system_error, "the event loop gets no descriptor (eventfd)", 0, errno);
}

loop_waker::~loop_waker() {
    ::close(fd_);
}

void loop_waker::tell(std::uint64_t key) noexcept {
    bool first = false;
    {
        const std::lock_guard held(lock_);
        first = told_.empty();
        told_.push_back(key);
    }
    const std::uint64_t one = 1;
    if (first) static_cast<void>(!::write(fd_, &one, sizeof one));
}

std::vector<std::uint64_t> loop_waker::take() noexcept {
    std::uint64_t count = 0;
    static_cast<void>(!::read(fd_, &count, sizeof count));
    const std::lock_guard held(lock_);
    return std::exchange(told_, {});
}

part_wait::part_wait(loop_waker::post its_post) noexcept : post_(std::move(its_post)) {
    wake = &called;
}

bool part_wait::arm(exchange& of, bool room) noexcept {
    if (armed_.exchange(true)) return false;  // it is going to tell
    self_ = shared_from_this();
    if (!(room ? of.await_part(*this) : of.await_request_part(*this))) return false;
    armed_.store(false);
    self_.reset();
    return true;
}

void part_wait::called(exchange::part_waiter& self) noexcept {
    auto& own = static_cast<part_wait&>(self);
    const std::shared_ptr<part_wait> kept = std::move(own.self_);
    own.armed_.store(false);
    own.post_();
}

void add_waker(nb::module_& module) {
    nb::class_<py_waker>(module, "_Waker")
        .def("__init__", [](py_waker* self) { new (self) py_waker{std::make_shared<loop_waker>()}; })
        .def_prop_ro("_fd", [](const py_waker& self) { return self.own->fd(); })
        .def(
            "_take",
            [](const py_waker& self) {
                nb::list out;
                for (const std::uint64_t key : self.own->take()) out.append(key);
                return out;
            },
            nb::sig("def _take(self) -> list[int]"));
}

}  // namespace accel::python
