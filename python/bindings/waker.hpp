// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/server.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <nanobind/nanobind.h>

namespace accel::python {

namespace nb = nanobind;

/// Tells an event loop, by a descriptor, what has happened on threads of the library, which must not wait for the GIL.
class loop_waker {
  public:
    loop_waker();
    loop_waker(const loop_waker&) = delete;
    loop_waker& operator=(const loop_waker&) = delete;
    ~loop_waker();
    [[nodiscard]] int fd() const noexcept { return fd_; }
    void tell(std::uint64_t key) noexcept;
    [[nodiscard]] std::vector<std::uint64_t> take() noexcept;

    /// A callback that tells.
    struct post {
        std::shared_ptr<loop_waker> to;
        std::uint64_t key;
        void operator()() const noexcept { to->tell(key); }
    };

  private:
    int fd_;
    std::mutex lock_;
    std::vector<std::uint64_t> told_;
};

/// Waits for room for a part, or for a part. Lives until the library has called it.
class part_wait final : public exchange::part_waiter, public std::enable_shared_from_this<part_wait> {
  public:
    explicit part_wait(loop_waker::post its_post) noexcept;
    /// True: it is there. Otherwise it tells, once.
    [[nodiscard]] bool arm(exchange& of, bool room) noexcept;

  private:
    static void called(exchange::part_waiter& self) noexcept;
    loop_waker::post post_;
    std::atomic<bool> armed_{false};
    std::shared_ptr<part_wait> self_;
};

/// The Python object.
struct py_waker {
    std::shared_ptr<loop_waker> own;
};

void add_waker(nb::module_& module);

}  // namespace accel::python
