// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"
#include "core/log.hpp"

#include <new>

/// How a channel loses its connection: what becomes of its calls, and of the memory that was lent for them. In the
/// order in which that happens.
namespace accel::core {
namespace {

/// How long a link may take to give back what its server keeps.
constexpr nanoseconds release_grace = std::chrono::milliseconds{1'100};

}  // namespace

/// The link has failed. True: calls that come now wait for the reason. False: the channel is lost.
bool channel_core::doubt(status why) noexcept {
    if (const status loss = life_.doubt(why); loss != status::ok) {
        lose(loss);
        return false;
    }
    detours_ = true;
    return true;
}

/// The same when the link takes no message. Answers that came before the end may not have been read.
bool channel_core::doubt_unsent(status why) noexcept {
    if (life_.watch().ended() != status::ok) (void)leave_session({});
    return life_.has_link() && doubt(why);
}

/// Ends the connection. Calls whose memory nobody touches complete at once, the others when the link has closed.
void channel_core::lose(status why) noexcept {
    if (life_.lose(why)) end_all();
}

void channel_core::end_all() noexcept {
    const nanoseconds at = now();
    const std::uint32_t code = life_.loss() == status::closed && !life_.ending() ? unseen_code : 0;
    for (channel_slot& slot : slots_.all()) {
        if (is_awaited(slot.state)) end_early(slot, life_.loss(), at, code);
        if (slot.state == slot_state::settling) life_.release_by(slot.deadline);
    }
    slots_.set_next_deadline(never);
}

/// Closes the lost link as far as it goes now; once nothing touches our memory, every call is settled. Then takes a new
/// connection if there is one.
void channel_core::settle(nanoseconds at) noexcept {
    if (life_.losing()) {
        if (!life_.close_link(at)) return;
        settle_all();
        life_.end_session();
    }
    if (!life_.can_renew()) return;
    life_.renew(hold_responses(life_.epoch()));
    if (!life_.connected()) return;
    request_.peer.host = life_.renewed_peer().host;
    request_.peer.port = life_.renewed_peer().port;
    request_.security = life_.renewed_security();
    if (metrics_ != nullptr) metrics_->count_reconnect();
}

/// Nothing touches lent memory any more, and no answer will come.
void channel_core::settle_all() noexcept {
    backlog_.clear();
    parts_.settle_all();
    request_parts_.settle_all();
    for (channel_slot& slot : slots_.all()) {
        slot.owed = false;
        const bool copied = slot.staged && staging_.copies(slot);
        if (slot.state == slot_state::settling && !copied) slots_.finish(slot);
        if (slot.state == slot_state::quarantined) slots_.put_free(slot);
    }
    quarantined_.add(~quarantined_.read() + 1);  // 0 again
}

void channel_core::close() noexcept {
    if (life_.closed()) return;
    life_.begin_end();
    lose(status::closed);
    const nanoseconds deadline = deadline_after(request_.options.close_timeout + release_grace);
    close_lost(deadline);
    if (!staging_.finish(deadline)) {
        limited_log(request_.peer.host)
            .warn("{}: a GPU still copies lent memory after close_timeout", request_.peer.text());
    }
    life_.end();
}

void channel_core::end() noexcept {
    close();
    end_interceptions();
    metrics_.reset();
    ended_ = true;
    end_with_last();
}

void channel_core::end_with_last() noexcept {
    if (holders_ == 0 && !inherited()) delete this;
}

void channel_core::close_lost(nanoseconds deadline) noexcept {
    for (; life_.losing(); sleep_on({}, now() + std::chrono::microseconds{200})) {
        const nanoseconds at = now();
        settle(at);
        if (!life_.losing()) return;
        if (at < deadline) continue;
        limited_log(request_.peer.host)
            .warn("{}: the transport still holds lent memory after close_timeout", request_.peer.text());
        settle_all();
        return life_.end_session();
    }
}

/// If memory has run out, nothing is logged.
void channel_core::warn_of_end(std::string_view why) const noexcept {
    try {
        limited_log(request_.peer.host).warn("{}: closing the session, because {}", request_.peer.text(), why);
    } catch (const std::bad_alloc&) {
        return;
    }
}

void channel_end::operator()(channel_core* ended) const noexcept {
    ended->end();
}

}  // namespace accel::core
