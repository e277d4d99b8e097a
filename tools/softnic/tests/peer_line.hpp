// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <unistd.h>

/// For test programs of two processes.
namespace accel::softnic::testing {

/// Says what is wrong, and ends the process. The other end then sees its socket closed.
inline void require(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

/// One word each way, in the order of the program.
class line {
  public:
    explicit line(int socket) : socket_(socket) {}
    template <class T>
    void say(const T& what) const {
        require(::write(socket_, &what, sizeof what) == static_cast<ssize_t>(sizeof what), "the other end has gone");
    }
    template <class T>
    [[nodiscard]] T hear() const {
        T what{};
        require(::recv(socket_, &what, sizeof what, MSG_WAITALL) == static_cast<ssize_t>(sizeof what),
                "the other end has gone");
        return what;
    }

  private:
    int socket_;
};

inline ibv_wc wait_for(ibv_cq* on) {
    ibv_wc out{};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (ibv_poll_cq(on, 1, &out) == 0) require(std::chrono::steady_clock::now() < deadline, "no completion");
    return out;
}

}  // namespace accel::softnic::testing
