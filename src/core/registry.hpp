// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <accel_transport/status.hpp>

#include <memory>
#include <string_view>
#include <vector>

namespace accel::core {

class context_state;

/// Every backend of this build, best first: the order in which `auto://` tries them.
[[nodiscard]] std::vector<std::unique_ptr<backend>> make_backends(context_state& context);

/// A scheme of some build, or `auto`.
[[nodiscard]] bool is_scheme_name(std::string_view scheme) noexcept;
/// "unknown scheme 'http'; the schemes are …"
[[nodiscard]] error unknown_scheme(std::string_view scheme);

}  // namespace accel::core

// Each backend is made in a file of its own.
namespace accel::local {
/// `local://name`: client and server in one process. No bytes move: the server works in the client's slots. Other
/// transports are measured against this lower bound.
[[nodiscard]] std::unique_ptr<core::backend> make_backend();
}  // namespace accel::local
namespace accel::shm {
/// `shm://name`: processes of one user on one host. Slots lie in memory that both have mapped.
[[nodiscard]] std::unique_ptr<core::backend> make_backend(core::context_state& context);
}  // namespace accel::shm
namespace accel::tcp {
/// Kernel sockets, bytes received straight into their slots.
[[nodiscard]] std::unique_ptr<core::backend> make_backend();
}  // namespace accel::tcp
namespace accel::zmq {
/// ZeroMQ DEALER (client) and ROUTER (server, one a worker) over TCP.
[[nodiscard]] std::unique_ptr<core::backend> make_backend();
}  // namespace accel::zmq
namespace accel::rdma {
/// A scheme over verbs, beyond its name.
struct scheme_traits {
    std::string_view name;       ///< static storage
    bool fills_devices = false;  ///< a server's payloads lie on a GPU
};
/// Writes between registered memory over reliable connections, posted by the CPU. All such schemes are one wire: a
/// client of one talks to a server of another.
[[nodiscard]] std::unique_ptr<core::backend> make_backend(core::context_state& context, const scheme_traits& scheme);
}  // namespace accel::rdma
namespace accel::gpu {
/// On the wire as `rdma`. Kernels take the requests of a `gpu_service` and post its responses, or make the calls of a
/// `gpu_channel`. `rdma` serves any other client, and a server with a handler.
[[nodiscard]] std::unique_ptr<core::backend> make_backend(core::context_state& context,
                                                          std::unique_ptr<core::backend> rdma);
}  // namespace accel::gpu
