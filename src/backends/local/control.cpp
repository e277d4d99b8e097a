// SPDX-License-Identifier: Apache-2.0
#include "backends/local/link.hpp"
#include "core/event_signal.hpp"

#include <algorithm>
#include <cstring>

/// Making and ending local links.
namespace accel::local {
namespace {

/// How long a client waits for a worker to notice that it wants lent memory back. Long, because nothing
/// protects the memory after that.
constexpr std::chrono::seconds recall_grace{1};

}  // namespace

local_link::local_link(local_poller& owner, const core::link_config& config)
    : owner_(owner), role_(config.role), events_owner_(config.owner) {
    if (role_ == core::link_role::server) return;
    pair_ = std::make_shared<pair>(config.geometry.slots, config.send, config.receive);
    enter(pair_->client, pair_->server);
    key_ = offer_pair(pair_);
}

void local_link::enter(side& mine, side& peer) noexcept {
    mine.owner = owner_.waker();
    mine_ = &mine;
    peer_ = &peer;
    incoming_slots_ = peer.outgoing.get();
}

local_link::~local_link() {
    (void)close();
    if (!pair_) return;
    mine_->gone.store(true, std::memory_order_seq_cst);
    for (std::uint32_t slot = 0; slot < peer_->left_leases.size(); ++slot) peer_->end_left_lease(slot);
    if (peer_->owner) peer_->owner->notify();
}

core::link_description local_link::describe() const {
    core::link_description out(sizeof key_);
    std::memcpy(out.data(), &key_, sizeof key_);
    return out;
}

result<void> local_link::attach(const core::link_grant& grant, core::nanoseconds) {
    if (role_ == core::link_role::client) return {};
    std::uint64_t key = 0;
    if (grant.description.size() != sizeof key)
        return error{status::protocol_error, 0,
                     "the local link description is "
                     "malformed"};
    std::memcpy(&key, grant.description.data(), sizeof key);
    pair_ = take_pair(key);
    if (!pair_) return error{status::peer_lost, 0, "the client has disconnected"};
    enter(pair_->server, pair_->client);
    return {};
}

void local_link::activate() {
    activated_ = true;
    owner_.add(*this);
}

bool local_link::close() noexcept {
    if (!pair_) return true;
    if (!mine_->closed.exchange(true, std::memory_order_seq_cst)) {
        if (peer_->owner) peer_->owner->notify();
        if (activated_) owner_.remove(*this);  // no events follow
    }
    // `consumed` gives back what was borrowed. This gives back what nobody will read any more.
    while (const entry* unread = mine_->inbox.front()) {
        consumed(unread->slot);
        mine_->inbox.drop();
    }
    if (role_ == core::link_role::server) return true;  // a client that keeps lent answers has their leases
    const bool unused = mine_->lent.load(std::memory_order_acquire) == 0 || peer_->gone.load(std::memory_order_acquire);
    return unused || waits_no_longer();
}

/// The client looks for the lease after it has released the answer, and this end for the release after it has left the
/// lease: so at least one of them finds both.
bool local_link::leave_lease(std::uint32_t slot, std::atomic<std::uint32_t>& leases) noexcept {
    mine_->left_leases[slot].store(&leases, std::memory_order_seq_cst);
    const bool kept = mine_->lent_slots[slot].load(std::memory_order_seq_cst);
    if (!kept || peer_->gone.load(std::memory_order_seq_cst)) mine_->end_left_lease(slot);
    return true;
}

/// Client: the server's worker copies what its handlers still use, unless the worker does not get to it.
void local_link::peer_left() noexcept {
    if (role_ == core::link_role::server || give_up_at_ != core::never) return;
    give_up_at_ = core::now() + recall_grace;
    mine_->recalled.store(recalling::wanted, std::memory_order_release);
    if (peer_->owner) peer_->owner->notify();
}

/// False: the worker is inside a handler, or its server has stopped.
bool local_link::waits_no_longer() noexcept {
    if (mine_->recalled.load(std::memory_order_acquire) == recalling::heard) return true;
    if (core::now() < give_up_at_) return false;
    recalling expected = recalling::wanted;
    mine_->recalled.compare_exchange_strong(expected, recalling::gone, std::memory_order_acq_rel);
    return expected != recalling::reading;
}

core::recall local_link::recalled() noexcept {
    recalling expected = recalling::wanted;
    if (peer_->recalled.compare_exchange_strong(expected, recalling::reading, std::memory_order_acq_rel))
        return core::recall::readable;
    const bool ends = expected == recalling::reading || expected == recalling::gone;
    if (ends) peer_->recalled.store(recalling::heard, std::memory_order_release);
    return expected == recalling::gone ? core::recall::gone : core::recall::none;
}

result<std::unique_ptr<core::link>> local_poller::open_link(const core::link_config& config) {
    return std::unique_ptr<core::link>(std::make_unique<local_link>(*this, config));
}

void local_poller::add(local_link& made) {
    {
        const std::lock_guard lock(added_mutex_);
        room_.reserve(links_.size() + added_.size() + 1);
        added_.push_back(&made);
        only_.store(nullptr, std::memory_order_relaxed);
        added_pending_.store(true, std::memory_order_seq_cst);
    }
    wakeup_->notify();
}

void local_poller::take_added() noexcept {
    const std::lock_guard lock(added_mutex_);
    room_.assign(links_.begin(), links_.end());
    room_.insert(room_.end(), added_.begin(), added_.end());
    links_.swap(room_);
    room_.clear();
    added_.clear();
    added_pending_.store(false, std::memory_order_relaxed);
    find_only();
}

/// With `added_mutex_`.
void local_poller::find_only() noexcept {
    only_.store(links_.size() == 1 && added_.empty() ? links_.front() : nullptr, std::memory_order_relaxed);
}

void local_poller::remove(local_link& gone) noexcept {
    if (added_pending_.load(std::memory_order_acquire)) take_added();
    const std::lock_guard lock(added_mutex_);
    std::erase(links_, &gone);
    find_only();
    next_ = 0;
}

bool local_poller::arm() noexcept {
    wakeup_->asleep.store(true, std::memory_order_seq_cst);
    const bool quiet =
        !added_pending_.load(std::memory_order_seq_cst) &&
        std::none_of(links_.begin(), links_.end(), [](const local_link* each) { return each->something_to_take(); });
    if (!quiet) wakeup_->asleep.store(false, std::memory_order_relaxed);
    return quiet;
}

void local_poller::disarm() noexcept {
    if (!wakeup_->asleep.exchange(false, std::memory_order_seq_cst)) wakeup_->signal.clear();
}

}  // namespace accel::local
