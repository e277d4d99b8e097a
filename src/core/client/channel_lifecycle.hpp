// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/connect.hpp"
#include "core/client/reconnector.hpp"
#include "core/event_set.hpp"
#include "core/fork_guard.hpp"

#include <accel_transport/channel.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace accel::core {

/// A channel's connection over time: good, in doubt, lost, made anew, closed. It knows nothing of calls.
class channel_lifecycle {
  public:
    channel_lifecycle(const connect_request& request, channel_connection made, event_set& wakeups);

    /// True for a connection that is good, in the process that made it.
    [[nodiscard]] bool connected() const noexcept {
        return connected_in_ == fork_generation.load(std::memory_order_relaxed);
    }
    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept { return stamp_.inherited(); }
    [[nodiscard]] status why_unusable() const noexcept;
    /// Not lost; in whatever process.
    [[nodiscard]] bool has_link() const noexcept { return state_ <= state::leaving; }
    /// Calls in flight end as they would; no other is begun. Then the connection is lost.
    [[nodiscard]] bool leaving() const noexcept { return state_ == state::leaving; }
    [[nodiscard]] bool losing() const noexcept { return state_ == state::losing; }
    [[nodiscard]] bool closed() const noexcept { return state_ == state::closed; }
    /// No call can be answered any more.
    [[nodiscard]] bool over() const noexcept { return !has_link() && !reconnector_; }
    /// The number of the current connection; rises with each reconnect.
    [[nodiscard]] std::uint32_t epoch() const noexcept { return epoch_; }
    [[nodiscard]] link& path() const noexcept { return *connection_.path; }
    [[nodiscard]] poller& events() const noexcept { return *connection_.events; }
    [[nodiscard]] session_watch& watch() const noexcept { return *connection_.session.watch; }
    /// The server's clock minus ours.
    [[nodiscard]] nanoseconds clock_offset() const noexcept {
        return nanoseconds{watch().clock_offset_ns.load(std::memory_order_relaxed)};
    }

    /// Tells the server that nobody waits for the answer of this call.
    void tell_cancelled(call_id which) const noexcept { cancel_call(request_, connection_.session, which); }

    /// The link has failed. `ok`: the control plane may be about to say why, until `doubt_ends`, and calls
    /// that come now wait with it. Else: what the connection is to be lost for.
    [[nodiscard]] status doubt(status why) noexcept;
    [[nodiscard]] bool in_doubt() const noexcept { return doubt_ends_ != never; }
    [[nodiscard]] nanoseconds doubt_ends() const noexcept { return doubt_ends_; }
    /// No other call is begun on this connection, for `why`.
    void leave(status why) noexcept;
    /// False: it has been lost before.
    [[nodiscard]] bool lose(status why) noexcept;
    /// The status of calls on a connection that is left or lost (`loss_for`).
    [[nodiscard]] status loss() const noexcept { return loss_; }
    /// Lost: from `when` on the link no longer waits for the server. The earliest time holds.
    void release_by(nanoseconds when) noexcept { release_by_ = std::min(release_by_, when); }
    /// Lost: closes the link as far as it goes now. True: nothing touches our memory any more.
    [[nodiscard]] bool close_link(nanoseconds at) noexcept;
    /// … and every call has been settled.
    void end_session() noexcept;
    [[nodiscard]] bool can_renew() const noexcept {
        return state_ == state::lost && reconnector_ && reconnector_->ready();
    }
    /// The server of the connection that `renew` took.
    [[nodiscard]] const uri& renewed_peer() const noexcept { return reconnector_->peer(); }
    [[nodiscard]] const std::shared_ptr<const security_identity>& renewed_security() const noexcept {
        return reconnector_->security();
    }
    /// As `channel::take_event`.
    [[nodiscard]] channel_event take_event() noexcept;
    /// Takes the new connection. `kept`: responses still lie in the old one. If memory runs out, the channel stays lost
    /// for now, and a later call tries again.
    void renew(bool kept) noexcept;
    /// A response that lay in the link's memory has been read.
    void consumed(std::uint32_t slot, std::uint32_t epoch) noexcept;
    /// No response lies in that connection any more.
    void forget(std::uint32_t epoch) noexcept;

    /// There will be no other connection.
    void begin_end() noexcept { ending_ = true; }
    [[nodiscard]] bool ending() const noexcept { return ending_; }
    void end() noexcept;
    /// How long lent memory may stay with the transport when a call ends early.
    [[nodiscard]] nanoseconds release_patience() const noexcept {
        return ending_ ? request_.options.close_timeout : request_.options.peer_timeout;
    }

    /// From now on somebody may sleep on `event_set::fd`. Before `arm`. The OS works for each watcher at each
    /// message, so that waits on the channel itself do without.
    void be_watched() noexcept;
    /// Sleeps until the connection has events, `copies` (or -1) is readable, or `until`. With `copies`, only after
    /// `be_watched`.
    void sleep(nanoseconds until, int copies) noexcept;
    /// Before sleeping on `event_set::fd`. False: something is ready.
    [[nodiscard]] bool arm() noexcept;

  private:
    enum class state : std::uint8_t {
        connected,
        leaving,
        losing,  ///< lost, but the transport still touches memory
        lost,
        closed,
    };
    static constexpr std::uint32_t nowhere = ~std::uint32_t{0};
    /// A lost connection whose responses the application still holds.
    struct retired {
        std::uint32_t epoch;
        channel_connection held;
    };

    void adopt(channel_connection made);

    const connect_request& request_;
    event_set& wakeups_;
    channel_connection connection_;
    state state_ = state::connected;
    bool ending_ = false;   ///< `close` was called
    bool watched_ = false;  ///< the event set has the connection's descriptor
    process_stamp stamp_;
    /// The generation of `stamp_` in state `connected`, else `nowhere`: one comparison asks for both.
    std::uint32_t connected_in_ = nowhere;
    std::uint32_t epoch_ = 0;
    std::uint32_t told_epoch_ = 1;  ///< the connection that the application knows of; 0: none
    status loss_ = status::ok;
    nanoseconds release_by_{};
    nanoseconds doubt_ends_ = never;
    std::unique_ptr<reconnector> reconnector_;
    std::vector<retired> retired_;
};

}  // namespace accel::core
