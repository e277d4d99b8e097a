// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace accel::bench {

/// The client's end of one echo: every request comes back, or an answer of its length.
class echo {
  public:
    virtual ~echo() = default;
    /// One request and its answer, or with several in flight the next answer, and another request on its way;
    /// false where the connection broke.
    [[nodiscard]] virtual bool round_trip() = 0;
};

struct comparison;
struct effort;

/// One way to echo. Its server runs in a process of its own: this program, started with `server_arguments`,
/// which prints "serving ENDPOINT".
struct side {
    std::string name;
    std::vector<std::string> server_arguments;
    std::function<result<std::unique_ptr<echo>>(const std::string& endpoint, std::size_t size_bytes)> connect;
    /// In place of both: programs that measure themselves say how many microseconds a call takes (median).
    std::function<result<double>(const comparison& what, const effort& how)> measure{};
};

/// Serves until the client goes or SIGTERM comes; returns the exit status. `arguments` are a side's.
[[nodiscard]] int serve_side(const std::vector<std::string>& arguments);

/// A bare blocking TCP socket with TCP_NODELAY.
[[nodiscard]] side bare_socket(std::size_t size_bytes);
[[nodiscard]] int serve_bare_socket(std::size_t size_bytes);

/// The same through TLS 1.3 by OpenSSL.
[[nodiscard]] side bare_tls(std::size_t size_bytes);
[[nodiscard]] int serve_bare_tls(std::size_t size_bytes);

/// A bare ZeroMQ DEALER against a ROUTER, over TCP.
[[nodiscard]] side bare_zmq(bool curve);
[[nodiscard]] int serve_bare_zmq(bool curve);

/// UCX's active messages through shared memory: two processes of its own `ucx_perftest`, by both of their medians.
[[nodiscard]] side ucx_shared_memory();
/// False: there is no such program here.
[[nodiscard]] bool has_ucx_perftest();

/// Bare verbs: an RC queue pair each, and the operations of `rdma`.
[[nodiscard]] side bare_verbs(std::size_t size_bytes, std::uint32_t in_flight, bool blocks);
[[nodiscard]] int serve_bare_verbs(std::size_t size_bytes, std::uint32_t in_flight, bool blocks);

/// This library. Options ("?key=value…") are those of each end's URI. Over `shm` the handler copies the request to the
/// response, as UCX's other end does.
[[nodiscard]] side ours(const std::string& name, const std::string& scheme, const std::string& server_options,
                        const std::string& client_options, std::uint32_t in_flight = 1);
[[nodiscard]] int serve_ours(const std::string& uri);

/// What every server prints once it can be reached.
void announce(const std::string& endpoint);

}  // namespace accel::bench
