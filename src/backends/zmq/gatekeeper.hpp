// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/credentials.hpp"
#include "backends/zmq/socket.hpp"
#include "core/backend.hpp"
#include "core/event_signal.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>

namespace accel::zmq {

struct zap_request;

/// A client's credential while it connects: with CURVE its public key, with PLAIN a user name (the
/// index of its session) and a password (the session's token).
struct credential {
    std::span<const std::byte> name;
    core::session_token password{};  ///< zeros with CURVE, where the key's owner proves itself
};

/// Decides who may connect (ZAP, rfc.zeromq.org/spec/27) for all servers of one context, on one thread. A
/// credential is good once, from `expect` to `forget`. Thread-safe; the locks are short.
class gatekeeper {
  public:
    /// Under which a credential is remembered.
    using entry = std::string;

    explicit gatekeeper(void* zmq_context);
    ~gatekeeper();
    gatekeeper(const gatekeeper&) = delete;
    gatekeeper& operator=(const gatekeeper&) = delete;

    /// False: it could not start, and every client will be refused.
    [[nodiscard]] bool running() const noexcept { return thread_.joinable(); }
    /// Why not, as errno.
    [[nodiscard]] int failure() const noexcept { return failure_; }
    /// A new ZAP domain's name, for one server socket.
    [[nodiscard]] std::string open_domain();
    /// Empty: this credential is expected already.
    [[nodiscard]] entry expect(const std::string& domain, bool keyed, const credential& client);
    /// From now on the credential is refused. Unknown entries are ignored.
    void forget(const entry& which) noexcept;

  private:
    using expected_map = std::unordered_map<entry, core::session_token>;

    void serve() noexcept;
    void answer(zap_request& request) noexcept;
    /// A credential is used up the first time that it is right.
    [[nodiscard]] bool allowed(zap_request& request) noexcept;
    void erase(expected_map::iterator which) noexcept;

    std::mutex mutex_;
    expected_map expected_;
    std::atomic<std::uint64_t> last_domain_{0};
    core::wake_signal wake_;
    int failure_ = 0;
    owned_socket socket_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace accel::zmq
