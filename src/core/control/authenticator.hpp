#pragma once

#include <memory>
#include <string>
#include <vector>

namespace accel::core {

/// Answers ZeroMQ's question whether a client's CURVE key may connect (ZAP, rfc.zeromq.org/spec/27), for all
/// servers of one ZeroMQ context: one thread. Has to live as long as a server socket of that context.
/// Thread-safe.
class authenticator {
  public:
    explicit authenticator(void* zmq_context);
    ~authenticator();
    authenticator(const authenticator&) = delete;
    authenticator& operator=(const authenticator&) = delete;

    /// False: it could not start, and every client with a key will be refused.
    [[nodiscard]] bool running() const noexcept;
    /// Lets clients with these public keys (Z85) in to the sockets of a new ZAP domain, and returns its name.
    [[nodiscard]] std::string authorize(const std::vector<std::string>& public_keys);
    /// From now on nobody gets in there. Unknown domains are ignored.
    void revoke(const std::string& domain) noexcept;

  private:
    class impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace accel::core
