// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/credentials.hpp"
#include "core/backend.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace accel::zmq {

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
    [[nodiscard]] bool running() const noexcept;
    /// A new ZAP domain's name, for one server socket.
    [[nodiscard]] std::string open_domain();
    /// Empty: this credential is expected already.
    [[nodiscard]] entry expect(const std::string& domain, bool keyed, const credential& client);
    /// From now on the credential is refused. Unknown entries are ignored.
    void forget(const entry& which) noexcept;

  private:
    class impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace accel::zmq
