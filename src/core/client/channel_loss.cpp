// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_loss.hpp"

#include "core/event_signal.hpp"
#include "core/log.hpp"

namespace accel::core {
namespace {

/// How long a link may take to give back what its server keeps.
constexpr nanoseconds release_grace = std::chrono::milliseconds{1'100};

}  // namespace

channel_loss::channel_loss(connect_request& request, channel_lifecycle& life, channel_calls& calls)
    : request_(request), life_(life), calls_(calls) {}

bool channel_loss::doubt(status why) noexcept {
    if (const status loss = life_.doubt(why); loss != status::ok) {
        lose(loss);
        return false;
    }
    calls_.set_detours(true);
    return true;
}

void channel_loss::lose(status why) noexcept {
    if (!life_.lose(why)) return;
    calls_.end_all(now(), life_);
}

void channel_loss::settle(nanoseconds at) noexcept {
    if (life_.losing()) {
        if (!life_.close_link(at)) return;
        calls_.settle_all();
        life_.end_session();
    }
    if (!life_.can_renew()) return;
    life_.renew(calls_.hold_responses(life_.epoch()));
    if (!life_.connected()) return;
    request_.peer.host = life_.renewed_peer().host;
    request_.peer.port = life_.renewed_peer().port;
    request_.security = life_.renewed_security();
    calls_.count_reconnect();
}

void channel_loss::close() noexcept {
    if (life_.closed()) return;
    life_.begin_end();
    lose(status::closed);
    const nanoseconds deadline = deadline_after(request_.options.close_timeout + release_grace);
    close_lost(deadline);
    if (!calls_.staging().finish(deadline)) {
        limited_log(request_.peer.host)
            .warn("{}: a GPU still copies lent memory after close_timeout", request_.peer.text());
    }
    life_.end();
}

void channel_loss::close_lost(nanoseconds deadline) noexcept {
    for (; life_.losing(); sleep_on({}, now() + std::chrono::microseconds{200})) {
        const nanoseconds at = now();
        settle(at);
        if (!life_.losing()) return;
        if (at < deadline) continue;
        limited_log(request_.peer.host)
            .warn("{}: the transport still holds lent memory after close_timeout", request_.peer.text());
        calls_.settle_all();
        return life_.end_session();
    }
}

}  // namespace accel::core
