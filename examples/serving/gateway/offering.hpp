// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>

namespace accel::examples::gateway {

/// What becomes of a request that is offered to a server, or to all of them in turn.
enum class offer : std::uint8_t {
    taken,
    full,     ///< it is connected, and has no free slot
    away,     ///< it is not connected, and was not given the request
    lost,     ///< it was lost while it was given the request, before anything was sent
    refused,  ///< no server could take this request
};

/// True of a submission: the server was lost, and nothing was sent.
[[nodiscard]] constexpr bool is_loss(status why) noexcept {
    return why == status::peer_lost || why == status::closed || why == status::device_lost;
}

/// What a request remembers of servers that did not take it.
struct past_offers {
    std::uint32_t losses = 0;  ///< servers that were lost, or gave it back unseen
    std::uint64_t last = 0;    ///< `upstream::serial` of the one that gave it back last, which may be gone; 0: none
    status said = status::ok;  ///< what that one said
};

struct offered {
    offer what = offer::away;
    bool passed_over = false;  ///< a server that was asked before was away or lost
};

/// Offers a request to `servers` servers in turn: `ask(i)` says what the one at `i` did. `losses` are the request's,
/// also those of earlier turns; each server may be lost once, and a server that has taken the place of one. `full`: it
/// may wait, because one of them is connected.
template <typename Ask>
[[nodiscard]] offered offer_in_turn(std::size_t servers, std::uint32_t& losses, Ask ask) {
    offered out{offer::away, losses > 0};
    for (std::size_t i = 0; i < servers; ++i) {
        const offer said = ask(i);
        if (said == offer::taken || said == offer::refused) return {said, out.passed_over};
        if (said == offer::lost && ++losses > servers) return {offer::lost, true};
        if (said == offer::full)
            out.what = offer::full;
        else
            out.passed_over = true;
    }
    return out;
}

}  // namespace accel::examples::gateway
