// SPDX-License-Identifier: Apache-2.0
#include "kernels/service/service_link.hpp"

#include "core/log.hpp"
#include "kernels/layout.hpp"

#include <utility>

#include <fmt/format.h>

namespace accel::gpu {
namespace {

/// How long the last posted answers have to leave when a service ends.
constexpr std::chrono::milliseconds flush_grace{20};
/// How long the control plane has to tell a client that the GPU is lost, before its queue pair breaks: kernels that
/// call would take that for the end of the server.
constexpr std::chrono::milliseconds goodbye_grace{100};

}  // namespace

result<std::unique_ptr<core::connection>> service_link::create(service_poller& owner, const core::link_config& config) {
    const core::link_geometry& limits = owner.limits();
    const core::link_geometry& wanted = config.geometry;
    if (wanted.slots > limits.slots || wanted.request_bytes > limits.request_bytes ||
        wanted.response_bytes > limits.response_bytes) {
        return error{status::message_too_large, 0,
                     fmt::format("the client asks for {} slots of {} and {} bytes; this service has {} of {} and {}",
                                 wanted.slots, wanted.request_bytes, wanted.response_bytes, limits.slots,
                                 limits.request_bytes, limits.response_bytes)};
    }
    auto index = owner.take_place();
    if (!index) return index.error();
    if (auto opened = owner.queues().open(owner.connection_at(*index)); !opened) {
        owner.give_connection_back(*index);
        return opened.error();
    }
    return std::unique_ptr<core::connection>(new service_link(owner, config, *index));
}

service_link::service_link(service_poller& owner, const core::link_config& config, std::uint32_t index) noexcept
    : poller_(owner), config_(config), index_(index) {
    const service_sizes& sizes = owner.sizes();
    const core::link_geometry& geometry = config.geometry;
    receive_ = core::slot_memory::over(owner.memory().requests(index).data(), geometry.slots, geometry.request_bytes,
                                       sizes.request_stride);
    send_ = core::slot_memory::over(owner.memory().responses(index).data(), geometry.slots, geometry.response_bytes,
                                    sizes.response_stride);
}

/// A session that kernels still use keeps its place for good, because they may write there.
service_link::~service_link() {
    poller_.remove(*this);
    if (!close() && !poller_.have_kernels_ended())
        core::limited_log().error("gpu: a session ended while kernels hold its requests; its slots are never reused");
}

core::link_description service_link::describe() const {
    gpu::connection& mine = poller_.connection_at(index_);
    verbs::endpoint own;
    mine.end().describe(own);
    const bool exclusive = poller_.sizes().exclusive;
    if (exclusive) own.flags |= verbs::plain_arrivals;
    describe_slots(*receive_, mine.requests->rkey, exclusive || poller_.slots_on() != nullptr, own);
    return verbs::to_bytes(own);
}

result<void> service_link::attach(const core::link_grant& grant, core::nanoseconds /*deadline*/) {
    auto peer = verbs::parse_endpoint(grant.description);
    if (!peer) return peer.error();
    const core::link_geometry& agreed = config_.geometry;
    if (auto good = verbs::check_slots(*peer, agreed.slots, agreed.response_bytes); !good) return good;
    if (auto done = poller_.connection_at(index_).end().connect(*peer, poller_.options()); !done) {
        return error{done.error().code, done.error().native,
                     fmt::format("gpu: from {}: {}", poller_.device()->describe(), done.error().message)};
    }
    offer(*peer);
    return {};
}

/// Kernels know the session before its client does.
void service_link::offer(const verbs::endpoint& peer) noexcept {
    gpu::connection& mine = poller_.connection_at(index_);
    device::detail::session_offer& out = poller_.memory().offer(index_);
    out = {};
    out.id = config_.session_id;
    out.slots = config_.geometry.slots;
    out.requests = {receive_->header(0), receive_->stride(), config_.geometry.request_bytes, mine.requests->lkey};
    out.responses = {send_->header(0), send_->stride(), config_.geometry.response_bytes, mine.responses->lkey};
    out.peer = slots_of(peer);
    out.peer.plain = peer.wants_plain() ? 1 : 0;
    mine.answers = device::detail::answer_way_of(out);
    device::detail::session_report& report = poller_.memory().report_of(index_);
    report.closed = report.failure = 0;
    poller_.connection_at(index_).failed.store(false, std::memory_order_relaxed);
    for (std::uint32_t& each : poller_.memory().cancels(index_)) each = 0;
    (void)poller_.command(device::detail::command_kind::open, index_);
    offered_ = true;
}

void service_link::activate() {
    phase_ = phase::open;
    poller_.add(*this);
}

bool service_link::take_loss(core::link_event& out) noexcept {
    if (phase_ != phase::open) return false;
    const std::uint32_t told = __atomic_load_n(&poller_.memory().report_of(index_).failure, __ATOMIC_RELAXED);
    const bool failed = poller_.connection_at(index_).failed.load(std::memory_order_acquire) || poller_.has_failed();
    if (told == 0 && failed && !blame_.settled(poller_.gpu())) return false;
    const bool gpu_lost = poller_.gpu_lost();
    if (told == 0 && !failed && !gpu_lost) return false;
    phase_ = phase::lost;
    if (gpu_lost) quiet_from_ = core::now() + goodbye_grace;
    const status otherwise = gpu_lost ? status::device_lost : status::peer_lost;
    const auto why = told != 0 ? static_cast<status>(told & 0xffffU) : otherwise;
    out = core::lost_event(config_.owner, why);
    if (const std::uint32_t syndrome = told >> 16; syndrome != 0) {
        core::limited_log().warn("gpu: session {} ends: a work request failed with syndrome {:#04x}",
                                 config_.session_id, syndrome);
    }
    return true;
}

/// Slots that the session does not have are ignored.
void service_link::tell_cancelled(call_id which) noexcept {
    if (which.slot >= config_.geometry.slots) return;
    __atomic_store_n(&poller_.memory().cancels(index_)[which.slot], which.generation, __ATOMIC_RELAXED);
}

/// Kernels may stop their work for it; they still end its exchanges.
void service_link::tell_left() noexcept {
    __atomic_store_n(&poller_.memory().cancels(index_).back(), 1U, __ATOMIC_RELAXED);
}

bool service_link::flushed() noexcept {
    if (phase_ != phase::open) return true;
    if (flushed_at_ == core::nanoseconds{}) flushed_at_ = core::now() + flush_grace;
    return core::now() >= flushed_at_;
}

bool service_link::close() noexcept {
    if (phase_ == phase::closed) return true;
    if (core::now() < quiet_from_) return false;
    if (phase_ != phase::closing) {
        poller_.remove(*this);
        phase_ = phase::closing;
        tell_left();
    }
    if (!quiet_) {
        if (auto done = poller_.queues().close(poller_.connection_at(index_)); !done) {
            if (!std::exchange(failure_logged_, true)) core::limited_log().error("gpu: {}", done.error().message);
            return false;
        }
        quiet_ = true;
        if (offered_) closing_number_ = poller_.command(device::detail::command_kind::close, index_);
    }
    const auto& report = poller_.memory().report_of(index_);
    const bool released = !offered_ || __atomic_load_n(&report.closed, __ATOMIC_ACQUIRE) == closing_number_ ||
                          poller_.have_kernels_ended();
    if (!released) return false;
    phase_ = phase::closed;
    poller_.give_connection_back(index_);
    return true;
}

}  // namespace accel::gpu
