// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/net/unique_fd.hpp"
#include "core/slot_memory.hpp"

#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace accel::core {

class tls_stream;

enum class link_role : std::uint8_t { client, server };

/// Agreed at the handshake; the same numbers at both ends.
struct link_geometry {
    std::uint32_t slots = 0;
    std::uint64_t request_bytes = 0;   ///< payload capacity of a request slot
    std::uint64_t response_bytes = 0;  ///< payload capacity of a response slot
};

/// Shown once by the client on a data path of its own, to prove which session it belongs to.
using session_token = std::array<std::byte, 16>;

/// One end's description of its link for the other, opaque to the core: a port, queue-pair number, keys.
/// At most 512 bytes. Travels only on the control plane.
using link_description = std::vector<std::byte>;

/// A connection that a client has made to the server's port for the data path of a session. Nothing behind
/// its preamble was read, and the preamble is not answered yet.
struct data_connection {
    unique_fd socket;
    std::shared_ptr<tls_stream> tls;  ///< null: plain bytes
    std::uint64_t session_id = 0;
    session_token token{};
};

struct link_config {
    link_role role = link_role::client;
    link_geometry geometry;
    /// Handed back in every event of this link.
    void* owner = nullptr;
    /// Slots that this end writes and delivers from, and slots that arrive. A server's are null where the
    /// backend shares the client's memory (`backend::shares_memory`); the link then names them after attach.
    std::shared_ptr<slot_memory> send;
    std::shared_ptr<slot_memory> receive;
    bool zerocopy = false;
    bit_rate pacing{};
    /// Server: the session this link is for. A client learns both from the grant.
    std::uint64_t session_id = 0;
    session_token token{};
};

/// The server's grants, as far as a link needs them.
struct link_grant {
    std::uint64_t session_id = 0;
    session_token token{};
    std::string host;  ///< of the control plane, as the URI names it
    link_description description;
    std::uint16_t port = 0;  ///< of the control plane
    /// Where the client reached the control plane: a name may have several addresses, of different servers.
    std::string address{};
};

/// The control path of a session at one end: made, attached to its peer, ended. Up to and including
/// `activate` it may be called from any thread; everything else belongs to the polling thread.
class connection {
  public:
    virtual ~connection() = default;

    /// The description by which the peer reaches this end. Server: valid after attach.
    [[nodiscard]] virtual link_description describe() const = 0;
    /// Client: makes the data connection, by `deadline`. Server: takes the client's description
    /// (`grant.description`), does not wait for it.
    [[nodiscard]] virtual result<void> attach(const link_grant& grant, nanoseconds deadline) = 0;
    /// Enables events. Client: on the polling thread. Server: from *any* thread while the poller polls,
    /// before the grant is sent; polling meets its short lock only when a new peer attaches.
    virtual void activate() = 0;
    /// On the polling thread: nothing need reach the peer any more. Server: the control plane says that it is
    /// gone. Client: it has kept lent memory for too long, and `close` must not wait for it.
    virtual void peer_left() noexcept {}
    /// True when everything delivered has left this process (for a graceful stop). Asks the transport for a
    /// completion if there would be none.
    [[nodiscard]] virtual bool flushed() noexcept { return true; }
    /// On the polling thread, idempotent: ends the connection and tells the peer where the transport can. No events
    /// follow. Returns true when nothing touches any slot or lent memory any more; else call again, until it does.
    [[nodiscard]] virtual bool close() noexcept = 0;
};

}  // namespace accel::core
