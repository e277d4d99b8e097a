// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/cancel_board.hpp"
#include "core/client/channel_core.hpp"
#include "unit/scripted_link.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace accel::core {

/// A channel, and its server in the test's hands.
struct scripted_client {
    scripted_client(std::uint32_t slots, std::size_t slot_bytes)
        : board(std::make_shared<cancel_board>(slots, std::make_shared<stop_notifier>())) {
        connect_request request;
        request.options.slots = slots;
        request.options.request_bytes = request.options.response_bytes = slot_bytes;
        request.options.poll = poll_mode::busy;
        request.requests = slot_memory::create(slots, slot_bytes).value();
        request.responses = slot_memory::create(slots, slot_bytes).value();
        request.peer.scheme = "tcp";
        channel_connection made;
        auto path = std::make_unique<scripted_link>(request.requests, request.responses);
        server = path.get();
        made.events = std::make_unique<scripted_poller>(*path);
        made.path = std::move(path);
        made.session.watch = std::make_shared<session_watch>(slots);
        made.session.cancels = board;
        watch = made.session.watch;
        request.security = nullptr;
        client = std::make_unique<channel_core>(std::move(request), std::move(made));
    }

    scripted_link* server = nullptr;
    /// What the server hears of cancelled calls, as in one process.
    std::shared_ptr<cancel_board> board;
    std::shared_ptr<session_watch> watch;
    std::unique_ptr<channel_core> client;
};

}  // namespace accel::core
