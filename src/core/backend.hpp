// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/poller.hpp"

#include <accel_transport/status.hpp>

#include <memory>
#include <string>
#include <string_view>

/// The internal contract: what a backend implements. One data-path primitive, `link::deliver`: put header and
/// payload into slot i of the peer and tell the peer. Everything else is control path.
///
/// Threads: a poller and its links belong to one thread (a worker, or a channel's owner). `backend` methods,
/// `poller::open_link`, `connection::attach` and `connection::describe` are control path and may be called
/// from another thread up to and including `connection::activate`. There are no callbacks upwards:
/// `event_source::poll` returns events.
namespace accel::core {

struct probe_result {
    bool usable = false;
    std::string reason;  ///< one sentence: what it will use, or what is missing and how to get it
};

/// One scheme. Made once per context; stateless but for devices it opened.
class backend {
  public:
    virtual ~backend() = default;
    [[nodiscard]] virtual std::string_view scheme() const noexcept = 0;
    /// Schemes with the same wire talk to each other. Each end chooses its memory and who posts.
    [[nodiscard]] virtual std::string_view wire() const noexcept { return scheme(); }
    /// Why this build cannot; empty: it may be able to, see `probe`.
    [[nodiscard]] virtual std::string left_out() const { return {}; }
    /// Whether this machine can use the scheme. May block briefly.
    [[nodiscard]] virtual probe_result probe() = 0;
    /// The same in detail, for people. Call it while no kernel of a service runs.
    [[nodiscard]] virtual probe_result examine() { return probe(); }
    /// True: peers are in one process and the server uses the client's slots; no network control plane.
    [[nodiscard]] virtual bool shares_memory() const noexcept { return false; }
    /// The most descriptors that a server keeps for one session.
    [[nodiscard]] virtual std::uint32_t session_descriptors() const noexcept { return 0; }
    /// True: with keys, nobody on the network can read or change payloads, unless `encryption::off` is asked
    /// for. `poller_options::security` tells its pollers.
    [[nodiscard]] virtual bool encrypts() const noexcept { return false; }
    /// True: its data connections can be paced (`bit_rate`).
    [[nodiscard]] virtual bool paces() const noexcept { return false; }
    /// True: a server's pollers listen on ports of their own; else all connections use the URI's port.
    [[nodiscard]] virtual bool has_data_port() const noexcept { return false; }
    /// True: a server's slots may have their payloads on a device, and messages arrive there.
    [[nodiscard]] virtual bool fills_devices() const noexcept { return false; }
    /// True: the server itself writes responses into memory that a client lends. Only the end of the session stops it.
    [[nodiscard]] virtual bool writes_lent_memory() const noexcept { return false; }
    /// Prepares a region for this backend's links, once, before its first use.
    [[nodiscard]] virtual result<void> register_region(const region_state&) { return {}; }
    virtual void unregister_region(const region_state&) noexcept {}
    [[nodiscard]] virtual result<std::unique_ptr<poller>> open_poller(const poller_options& options) = 0;
};

}  // namespace accel::core
