// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/clock.hpp"
#include "core/control/cancel_outbox.hpp"
#include "core/event_signal.hpp"
#include "core/protocol.hpp"

#include <accel_transport/completion.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/target.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The agreement of the two ends of the control plane when a session opens (docs/protocol.md, section 4).
namespace accel::core {

class cancel_board;
class session_watch;

/// Client → server.
struct session_request {
    std::uint16_t version = protocol_version;
    std::string scheme;
    link_geometry wanted;
    nanoseconds peer_timeout{};
    stream_priority priority = stream_priority::normal;
    link_description description;
    std::shared_ptr<session_watch> watch{};  ///< in process: the channel's, which the server tells by itself
};

/// Server → client.
struct session_grant {
    std::uint64_t session_id = 0;
    session_token token{};
    link_geometry granted;
    nanoseconds peer_timeout{};
    link_description description;
    std::string address;                    ///< of the server, where its client has reached it; not sent
    std::shared_ptr<cancel_board> cancels;  ///< in process: where the client says that it has cancelled calls
};

/// The identity of a client.
struct client_identity {
    std::string name;          ///< its key, or its certificate's name; empty if it is anonymous or there are no keys
    std::string address;       ///< without a port
    std::string network = {};  ///< of an IPv6 address: `network_of`

    /// Strangers count as one where they have the same place.
    [[nodiscard]] const std::string& place() const noexcept { return network.empty() ? address : network; }
    /// The account that limits count for.
    [[nodiscard]] const std::string& account() const noexcept { return name.empty() ? place() : name; }
    /// For the log.
    [[nodiscard]] std::string text() const {
        return name.empty() ? "a client at " + address : "the client " + name + " at " + address;
    }
};

/// Some of a server's targets, sorted by name.
struct target_page {
    static constexpr std::size_t max_bytes = 1536;  ///< of the names, each with its length
    std::vector<std::string> names;
    bool more = false;  ///< the server has targets with later names
};

/// A server as its control planes see it. Thread-safe.
class session_host {
  public:
    virtual ~session_host() = default;
    /// Opens a session. May block; refusals are typed.
    [[nodiscard]] virtual result<session_grant> open_session(const session_request& request,
                                                             const client_identity& client) = 0;
    /// The peer closed (`closed`) or died (`peer_lost`). Idempotent; returns at once.
    virtual void close_session(std::uint64_t session_id, status why) noexcept = 0;
    /// Nobody waits for the answers of these calls. Unknown ones are ignored; returns at once.
    virtual void cancel(std::uint64_t session_id, std::span<const call_id> calls) noexcept = 0;
    /// The token of the session's data connections. Empty: no such session is open.
    [[nodiscard]] virtual std::optional<session_token> token_of(std::uint64_t session_id) const = 0;
    /// The number of this target, or `not_found`. Returns at once.
    [[nodiscard]] virtual result<std::uint32_t> find_target(std::string_view name) const = 0;
    /// The targets with names after this one. Returns at once.
    [[nodiscard]] virtual target_page list_targets(std::string_view after) const = 0;
    /// Whether this target serves; the server, if the name is empty. Returns at once.
    [[nodiscard]] virtual health_state check_health(std::string_view name) const noexcept = 0;
    /// Schemes this server listens for, best first.
    [[nodiscard]] virtual std::vector<std::string> offers() const = 0;
    /// A client has made a data connection for a session: answers it and passes it to the session's worker,
    /// or leaves it unchanged. `peer_lost`: it did not take the answer, and its client makes another. Returns at once.
    [[nodiscard]] virtual result<void> take_connection(data_connection& made, const client_identity& client) = 0;
};

/// The only endings of a lost session's calls: an orderly stop, the end of the server's device, or its death.
[[nodiscard]] constexpr status loss_for(status why) noexcept {
    return why == status::closed || why == status::device_lost ? why : status::peer_lost;
}

/// Shared by a channel and the control plane: how the channel learns of its session's end. The control plane
/// writes, the channel reads.
class session_watch {
  public:
    explicit session_watch(std::uint32_t slots = 0) : cancels(slots) {}

    /// Control plane: first reason wins; makes `event_fd` readable.
    void end(status why) noexcept {
        status before = news_.load(std::memory_order_relaxed);
        while (before == status::ok || before == draining) {
            if (!news_.compare_exchange_weak(before, why, std::memory_order_acq_rel)) continue;
            return signal_.set();
        }
    }
    /// Control plane: the server drains, so it takes no more calls. Makes `event_fd` readable.
    void drain() noexcept {
        status before = status::ok;
        if (news_.compare_exchange_strong(before, draining, std::memory_order_acq_rel)) signal_.set();
    }
    /// True: the session lives, and its server takes calls.
    [[nodiscard]] bool good() const noexcept { return news_.load(std::memory_order_acquire) == status::ok; }
    /// True: the session lives, and its server drains.
    [[nodiscard]] bool drains() const noexcept { return news_.load(std::memory_order_acquire) == draining; }
    /// `ok` while the session lives.
    [[nodiscard]] status ended() const noexcept {
        const status told = news_.load(std::memory_order_acquire);
        return told == draining ? status::ok : told;
    }
    /// Channel: it knows that the server drains. `event_fd` now tells of the session's end alone.
    void heard() noexcept {
        signal_.clear();
        if (ended() != status::ok) signal_.set();
    }
    [[nodiscard]] int event_fd() const noexcept { return signal_.fd(); }

    /// Server's monotonic clock minus ours, in ns; 0 on the same host. Kept up to date by the control plane.
    std::atomic<std::int64_t> clock_offset_ns{0};
    /// Channel → control plane.
    cancel_outbox cancels;

    /// For `control_client`: once the channel has left the session, which that is, and the next one that was left.
    std::uint64_t left_session = 0;
    std::shared_ptr<session_watch> next_left;

  private:
    static constexpr auto draining = static_cast<status>(status_count);

    std::atomic<status> news_{status::ok};  ///< or `draining`, or why the session has ended
    wake_signal signal_;
};

}  // namespace accel::core
