#include "core/client/channel_core.hpp"

/// Calls that the link had no room for when they were submitted: on a network that loses much the device
/// knows late what has arrived. They wait here, within their deadlines, and leave in their order.
namespace accel::core {

[[gnu::noinline]] status channel_core::hold_back(client_slot& slot, const outgoing& message,
                                                 const submit_options& options) noexcept {
    slot.owed = false;
    slot.lent = false;
    slot.staged = false;
    detours_ = true;
    backlog_.push_back(message);  // within reserved capacity
    accept_later(slot, options);
    return status::ok;
}

[[gnu::noinline]] void channel_core::send_backlog() noexcept {
    while (!backlog_.empty()) {
        const outgoing& oldest = backlog_.front();
        const bool lends = oldest.region != nullptr || !oldest.response_into.empty();
        const status sent = connection_.path->deliver(oldest);
        if (sent == status::again) return;
        if (sent != status::ok) return static_cast<void>(doubt(sent));
        client_slot& slot = slots_[oldest.slot];
        slot.owed = true;
        slot.lent = lends;
        slot.epoch = epoch_;
        backlog_.erase(backlog_.begin());
    }
}

void channel_core::leave_backlog(std::uint32_t index) noexcept {
    std::erase_if(backlog_, [index](const outgoing& each) { return each.slot == index; });
}

}  // namespace accel::core
