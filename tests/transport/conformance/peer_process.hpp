// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "patience.hpp"

#include <string>
#include <vector>

#include <sys/types.h>

namespace accel::tests {

/// A second process of this suite (conformance_peer), started with posix_spawn; killed and reaped at the
/// latest when this is destroyed. Lines go in by `tell` and come back by `line`.
class peer_process {
  public:
    explicit peer_process(const std::vector<std::string>& arguments);
    /// Another program; its standard error is `error_fd`, or ours if that is -1.
    peer_process(std::string program, const std::vector<std::string>& arguments, int error_fd = -1);
    peer_process(const peer_process&) = delete;
    peer_process& operator=(const peer_process&) = delete;
    ~peer_process();

    /// The next line it wrote; throws if it is not there within `bound` or the process ended.
    [[nodiscard]] std::string line(nanoseconds bound = patience(10s));
    void tell(const std::string& text);
    [[nodiscard]] pid_t pid() const noexcept { return pid_; }
    void signal(int number) const;
    /// SIGKILL, and waits until it is gone.
    void kill();
    /// Waits for it to end by itself; its exit status, or -1 for a signal. Throws after `bound`.
    [[nodiscard]] int join(nanoseconds bound = patience(10s));

  private:
    void reap(int* status);
    pid_t pid_ = -1;
    int socket_ = -1;
    std::string buffered_;
};

/// A server in a process of its own.
class server_process : public peer_process {
  public:
    /// `mode`: "echo" or "hold" (never answers).
    server_process(const std::string& listen_uri, const std::string& mode, nanoseconds peer_timeout);
    [[nodiscard]] const std::string& uri() const noexcept { return uri_; }
    /// Requests that reached its handler so far.
    [[nodiscard]] unsigned long long requests();

  private:
    std::string uri_;
};

}  // namespace accel::tests
