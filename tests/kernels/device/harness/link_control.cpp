// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"
#include "core/region_state.hpp"
#include "device/harness/link.hpp"
#include "device/harness/poller.hpp"
#include "kernels/layout.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

/// Making and ending a connection.
namespace accel::tests {
namespace {

/// How long a link goes on sending answers after `close`.
constexpr std::chrono::milliseconds close_grace{250};
constexpr std::uint32_t min_sends = 16;

std::span<std::byte> bytes_of(const core::slot_memory& slots) noexcept {
    return {slots.base(), slots.size_bytes()};
}

device::detail::slots_layout layout_of(const core::slot_memory& slots, std::uint32_t key) noexcept {
    return {slots.header(0), slots.stride(), slots.capacity(), key};
}

}  // namespace

result<std::unique_ptr<core::link>> harness_link::create(harness_poller& owner, const core::link_config& config) {
    const auto longest = owner.device()->port().max_message_bytes;
    if (core::header_bytes + config.geometry.response_bytes > longest) {
        return error{status::message_too_large, 0,
                     fmt::format("gpu: a response must fit into one message: at most {} bytes on {}",
                                 longest - core::header_bytes, owner.device()->describe())};
    }
    auto domain = verbs::domain::create(owner.device());
    if (!domain) return domain.error();
    owner.domains().add(*domain);
    if (auto admitted = owner.admit(); !admitted) return admitted.error();
    std::unique_ptr<harness_link> made(new harness_link(owner, config, std::move(*domain)));
    if (auto ready = made->prepare(); !ready) return ready.error();
    return std::unique_ptr<core::link>(std::move(made));
}

harness_link::harness_link(harness_poller& owner, const core::link_config& config,
                           std::shared_ptr<verbs::domain> domain)
    : poller_(owner),
      config_(config),
      domain_(std::move(domain)),
      generations_(config.geometry.slots),
      busy_(config.geometry.slots),
      parts_(config.geometry.slots),
      exchanges_(config.geometry.slots) {
    lent_.reserve(config.geometry.slots);
}

harness_link::~harness_link() {
    end();
    poller_.dismiss();
}

/// Registers the slots and makes the queue pair, not yet connected.
result<void> harness_link::prepare() {
    auto requests = domain_->register_memory(bytes_of(*config_.receive), verbs::access::peer_writes);
    if (!requests) return requests.error();
    requests_ = std::move(*requests);
    auto responses = domain_->register_memory(bytes_of(*config_.send), verbs::access::send);
    if (!responses) return responses.error();
    responses_ = std::move(*responses);
    auto place = poller_.sessions().take_place();
    if (!place) return place.error();
    place_ = *place;
    return make_queue();
}

result<void> harness_link::make_queue() {
    queue_.index = *place_;
    // A response may take two requests and a marker; requests whose completions have not been taken take room
    // too.
    queue_.sends = std::max(config_.geometry.slots * 4, min_sends);
    queue_.listener = this;
    queue_.domain = domain_;
    if (auto prepared = poller_.queues().prepare(queue_, memory_); !prepared) return prepared;
    whole_.resize(queue_.port.direct.queue.wqebbs);
    queue_.port.direct.state = &direct_state_;
    queue_.port.direct.ready_requests = whole_.data();
    queue_.port.proxied.state = &proxied_state_;
    return poller_.queues().open(queue_);
}

core::link_description harness_link::describe() const {
    verbs::endpoint own;
    queue_.queue_pair->describe(own);
    gpu::describe_slots(*config_.receive, requests_->rkey, false, own);
    return verbs::to_bytes(own);
}

result<void> harness_link::attach(const core::link_grant& grant, core::nanoseconds /*deadline*/) {
    auto peer = verbs::parse_endpoint(grant.description);
    if (!peer) return peer.error();
    const core::link_geometry& agreed = config_.geometry;
    if (auto good = verbs::check_slots(*peer, agreed.slots, agreed.response_bytes); !good) return good;
    peer_ = *peer;
    if (auto done = queue_.queue_pair->connect(*peer, poller_.options()); !done) {
        return error{done.error().code, done.error().native,
                     fmt::format("gpu: from {}: {}", poller_.device()->describe(), done.error().message)};
    }
    return {};
}

device::detail::session_offer harness_link::offer() const noexcept {
    device::detail::session_offer out;
    out.id = config_.session_id;
    out.slots = config_.geometry.slots;
    out.requests = layout_of(*config_.receive, requests_->lkey);
    out.requests.capacity = config_.geometry.request_bytes;
    out.responses = layout_of(*config_.send, responses_->lkey);
    out.responses.capacity = config_.geometry.response_bytes;
    out.peer = gpu::slots_of(peer_);
    out.peer.plain = peer_.wants_plain() ? 1 : 0;
    return out;
}

void harness_link::activate() {
    device::detail::session_entry entry;
    entry.sends = queue_.port;
    entry.generations = generations_.data();
    entry.busy = busy_.data();
    entry.parts = parts_.data();
    state_ = state::open;
    opened_ = true;
    queue_.answers = device::detail::answer_way_of(offer());
    poller_.open(*this, entry, offer());
}

// How it ends.

void harness_link::fail(status reason) noexcept {
    if (state_ != state::open) return;
    state_ = state::losing;
    reason_ = reason;
    poller_.mark_pending(*this);
}

void harness_link::note_failure() noexcept {
    const std::uint32_t told = poller_.sessions().failure(*place_);
    if (told == 0 || state_ != state::open) return;
    if (const std::uint32_t syndrome = told >> 16; syndrome != 0) {
        core::limited_log().warn("gpu: session {} ends: a work request failed with syndrome {:#04x}",
                                 config_.session_id, syndrome);
    }
    if (closing_) close_by_ = {};  // nothing more will leave
    fail(static_cast<status>(told & 0xffffU));
}

void harness_link::on_async_event(ibv_event_type type) noexcept {
    const bool peer_is_at_fault = type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_QP_REQ_ERR;
    async_reason_.store(peer_is_at_fault ? status::protocol_error : status::system_error, std::memory_order_relaxed);
    poller_.report(*this);
}

bool harness_link::flushed() noexcept {
    if (state_ != state::open) return true;
    const std::uint32_t posted = device::detail::posted_by(queue_.port);
    if (has_been_sent(posted)) return true;
    if (flushing_to_ != posted && post_marker() == status::ok) flushing_to_ = device::detail::posted_by(queue_.port);
    return false;
}

bool harness_link::close() noexcept {
    if (state_ == state::closed) return true;
    if (state_ == state::open && !peer_left_ && !flushed()) {
        if (!closing_) close_by_ = core::now() + close_grace;
        closing_ = true;
        if (core::now() < close_by_) return false;
    }
    end();
    return true;
}

/// Handlers may go on reading requests and writing responses: their slots stay until the session goes.
void harness_link::let_exchanges_go() noexcept {
    device::detail::session_entry& session = poller_.sessions().entry(*place_);
    for (device::exchange_ref& each : exchanges_) {
        if (each.request != nullptr) device::detail::finish_exchange(session);
        each.request = nullptr;
    }
}

/// After this neither end touches any slot or lent memory.
void harness_link::end() noexcept {
    if (state_ == state::closed) return;
    state_ = state::closed;
    bool free = place_.has_value();
    if (queue_.queue_pair) {
        if (auto done = poller_.queues().close(queue_); !done)
            core::limited_log().error("gpu: {}", done.error().message);
    }
    if (opened_) {
        let_exchanges_go();
        free = poller_.sessions().close(*place_);
        if (!free) core::limited_log().error("gpu: a session has ended with a request that nobody took");
    }
    if (!poller_.queues().discard(queue_)) core::limited_log().error("gpu: a session's queues are still in use");
    poller_.remove(*this, opened_);
    if (free) poller_.sessions().give_place_back(*place_);
}

/// The first use of a region registers it; all others find its keys.
const verbs::memory_keys* harness_link::keys_of(const core::region_state& region, verbs::access use) noexcept {
    if (const auto* known = keys_.find(region.id(), use); known != nullptr) return known;
    auto keys = domain_->acquire(region.id(), {region.data(), region.size()}, use, region.device());
    if (!keys) {
        core::limited_log().warn("gpu: lent memory is copied instead: {}", keys.error().message);
        return nullptr;
    }
    keys_.put({region.id(), use, *keys});
    return keys_.find(region.id(), use);
}

}  // namespace accel::tests
