// SPDX-License-Identifier: Apache-2.0
#include "backends/rdma/link.hpp"
#include "backends/rdma/poller.hpp"
#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "core/region_state.hpp"
#include "verbs/failure.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

/// Making and ending a connection.
namespace accel::rdma {
namespace {

/// How long a server's link goes on sending answers after `close`.
constexpr std::chrono::milliseconds close_grace{250};
/// How often `probe_path` looks for its answer if nothing wakes it.
constexpr std::chrono::microseconds probe_interval{500};
/// Header and a short payload travel in the work request itself.
constexpr std::uint32_t inline_bytes = 128;
constexpr std::uint32_t min_send_depth = 16;
constexpr std::uint32_t max_receives_at_once = 64;
/// A client's send queue has room for the ranges of one request: so long ranges in the longest one, and no more
/// requests than that. A third of them may wait for a completion.
constexpr std::uint64_t usual_range_bytes = 6 << 10;
constexpr std::uint64_t max_gathering_requests = 8'192;

constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) {
    return (a + b - 1) / b;
}

/// Work requests of the longest message.
std::uint32_t requests_of_a_message(std::uint64_t capacity, std::uint64_t longest_write) {
    return static_cast<std::uint32_t>(divide_up(std::max<std::uint64_t>(capacity, 1), longest_write)) + 1;
}

std::uint32_t requests_of_ranges(std::uint64_t capacity, std::uint32_t ranges) {
    return static_cast<std::uint32_t>(
        std::min(divide_up(capacity, usual_range_bytes * ranges), max_gathering_requests));
}

std::span<std::byte> host_part(const core::slot_memory& slots) {
    return {slots.base(), slots.size_bytes()};
}

/// Slots are registered as what they are: in one piece, or headers and payloads.
result<void> register_slots(verbs::domain& within, const core::slot_memory& slots, verbs::access use,
                            verbs::region_handle& all, verbs::region_handle& payloads) {
    auto made = within.register_memory(host_part(slots), use);
    if (!made) return made.error();
    all = std::move(*made);
    if (!slots.split()) return {};
    auto apart = within.register_memory({slots.payloads(), slots.payload_bytes()}, use, slots.device());
    if (!apart) return apart.error();
    payloads = std::move(*apart);
    return {};
}

void await_event(verbs::completion_queue& completions) noexcept {
    std::array<pollfd, 1> fds{{{completions.event_fd(), POLLIN, 0}}};
    core::sleep_on(fds, core::now() + probe_interval);
    completions.take_events();
}

}  // namespace

result<std::unique_ptr<core::link>> rdma_link::create(rdma_poller& owner, const core::link_config& config) {
    auto domain = verbs::domain::create(owner.device());
    if (!domain) return domain.error();
    owner.domains().add(*domain);
    std::unique_ptr<rdma_link> made(new rdma_link(owner, config, std::move(*domain)));
    if (auto ready = made->prepare(); !ready) return ready.error();
    return std::unique_ptr<core::link>(std::move(made));
}

rdma_link::rdma_link(rdma_poller& owner, const core::link_config& config, std::shared_ptr<verbs::domain> domain)
    : poller_(owner), config_(config), domain_(std::move(domain)), slots_(config.geometry.slots) {
    released_.reserve(config.geometry.slots);
}

rdma_link::~rdma_link() {
    end();
    if (completions_ != nullptr) poller_.dismiss(*completions_, completions_admitted_);
}

/// Registers the slots and makes the queue pair, not yet connected.
result<void> rdma_link::prepare() {
    const std::uint64_t max_write_bytes = std::uint64_t{1} << 30;
    longest_write_ = std::min(poller_.device()->port().max_message_bytes, max_write_bytes);
    if (auto sent_from = register_slots(*domain_, *config_.send, verbs::access::send, send_memory_, send_payloads_);
        !sent_from)
        return sent_from;
    if (auto received_into =
            register_slots(*domain_, *config_.receive, verbs::access::peer_writes, receive_memory_, receive_payloads_);
        !received_into)
        return received_into;
    return make_queue_pair();
}

/// Deep enough for a message from every slot, and for what has not been heard of as completions are asked for now and
/// then only. Where messages take several requests, or the device cannot, `deliver` says `again` at times.
result<void> rdma_link::make_queue_pair() {
    const std::uint32_t slots = config_.geometry.slots;
    const std::uint32_t each = requests_of_a_message(config_.send->capacity(), longest_write_);
    const auto deepest = static_cast<std::uint32_t>(poller_.device()->limits().max_qp_wr);
    const std::uint32_t least = std::max(4 * each, min_send_depth);
    verbs::queue_sizes sizes;
    sizes.inline_bytes = inline_bytes;
    if (is_server()) {
        use_ = &poller_.shared_use();
    } else {
        own_use_.at_once = std::clamp(slots / 2, 1U, max_receives_at_once);
        sizes.receive = static_cast<std::uint32_t>(std::min<std::uint64_t>(slots + own_use_.at_once, deepest));
    }
    // Payloads apart from their headers, at this end or, as a client learns later, at the server's.
    const std::uint32_t in_flight = poller_.fills_devices() || !is_server() ? slots * 2 : slots;
    std::uint32_t of_ranges = 0;
    if (!is_server()) {
        sizes.ranges = verbs::queue_pair::max_ranges;
        of_ranges = requests_of_ranges(config_.send->capacity(), sizes.ranges);
    }
    sizes.send = std::min(std::max({in_flight + in_flight / 2, least, in_flight + of_ranges}), deepest);
    // Also those that nobody asked for complete when the queue pair fails.
    const std::uint32_t completions = sizes.send + sizes.receive;
    auto admitted = poller_.admit(completions);
    if (!admitted) return admitted.error();
    completions_ = *admitted;
    completions_admitted_ = completions;
    while (true) {
        auto made = verbs::queue_pair::create(poller_.device(), domain_->get(), completions_->get(), poller_.receives(),
                                              sizes, this);
        if (made) {
            queue_pair_.emplace(std::move(*made));
            break;
        }
        sizes.send /= 2;
        if (sizes.send < least) return made.error();
    }
    queue_pair_->limit_sends(sizes.send, std::max(in_flight, each) + of_ranges);
    lent_.reserve(sizes.send);
    return {};
}

core::link_description rdma_link::describe() const {
    verbs::endpoint own;
    queue_pair_->describe(own);
    own.slots_address = reinterpret_cast<std::uintptr_t>(config_.receive->base());
    own.slots_stride = config_.receive->stride();
    own.slots_key = receive_memory_->rkey;
    own.slots = config_.receive->count();
    if (config_.receive->split()) {
        own.flags |= verbs::payloads_apart;
        own.payloads_address = reinterpret_cast<std::uintptr_t>(config_.receive->payloads());
        own.payloads_stride = config_.receive->payload_stride();
        own.payloads_key = receive_payloads_->rkey;
    }
    return verbs::to_bytes(own);
}

result<void> rdma_link::attach(const core::link_grant& grant, core::nanoseconds deadline) {
    if (auto done = connect(grant.description); !done) return done;
    if (is_server()) return {};
    own_use_.missing = queue_pair_->sizes().receive;
    refill_receives();
    return probe_path(deadline);
}

result<void> rdma_link::connect(std::span<const std::byte> description) {
    auto peer = verbs::parse_endpoint(description);
    if (!peer) return peer.error();
    if (auto good = verbs::check_slots(*peer, config_.geometry.slots, config_.send->capacity()); !good) return good;
    peer_ = *peer;
    constexpr std::uint64_t in_front = core::extension_room + core::header_bytes;
    const bool in_one_piece = !peer_.apart() && !config_.send->split();
    const std::uint64_t longest = in_one_piece ? std::max(longest_write_, in_front) - in_front : 0;
    announces_ = !peer_.wants_plain();
    plain_end_ = announces_ ? longest + 1 : 0;
    auto done = queue_pair_->connect(*peer, poller_.options());
    if (done) return done;
    return error{done.error().code, done.error().native,
                 fmt::format("rdma: from {}: {}", poller_.device()->describe(), done.error().message)};
}

/// Client: finds out whether packets reach the server and come back, rather than leave that to the first call.
result<void> rdma_link::probe_path(core::nanoseconds deadline) {
    if (!post_marker()) return error{status::system_error, 0, "rdma: the queue pair accepts no work requests"};
    bool armed = false;
    while (core::now() < deadline) {
        mlx5::completion completion;
        const int got = completions_->poll(completion);
        if (got < 0) return error{status::system_error, 0, "rdma: the completion queue has failed"};
        if (got == 0) {
            if (armed) await_event(*completions_);
            armed = completions_->request_event();
            continue;
        }
        if (completion.queue_pair != number()) continue;  // of one before, that is gone
        if (armed) completions_->take_events();
        if (!verbs::has_failed(completion)) {
            on_other_completion(completion);
            return {};
        }
        const ibv_wc_status native = verbs::native_of(completion.failure);
        ibv_gid gid{};
        std::memcpy(gid.raw, peer_.gid.data(), peer_.gid.size());
        return error{verbs::meaning(completion.failure), native,
                     fmt::format("rdma: {} cannot reach the server's port at {} ({}); are both on one network? "
                                 "device=NAME:PORT and gid_index choose another port",
                                 poller_.device()->describe(), verbs::to_text(gid), ibv_wc_status_str(native))};
    }
    return error{
        status::timed_out, 0,
        fmt::format("rdma: {} got no answer from the server's port before the deadline", poller_.device()->describe())};
}

/// Not on the way of a call but its first with this region: takes a lock, and the device's time.
const verbs::memory_keys* rdma_link::acquire_keys(const core::region_state& region, verbs::access use) noexcept {
    auto keys = domain_->acquire(region.id(), {region.data(), region.size()}, use, region.device());
    if (!keys) {
        core::limited_log().warn("rdma: lent memory is copied instead: {}", keys.error().message);
        return nullptr;
    }
    keys_.put({region.id(), use, *keys});
    return keys_.find(region.id(), use);
}

void rdma_link::activate() {
    polled_ = true;
    state_ = state::open;
    poller_.add(*this);
}

void rdma_link::fail(status reason) noexcept {
    if (state_ != state::open) return;
    state_ = state::losing;
    reason_ = reason;
    poller_.mark_pending(*this);
}

void rdma_link::on_async_event(ibv_event_type type) noexcept {
    const bool peer_is_at_fault = type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_QP_REQ_ERR;
    async_reason_.store(peer_is_at_fault ? status::protocol_error : status::system_error, std::memory_order_relaxed);
    poller_.report(*this);
}

bool rdma_link::flushed() noexcept {
    if (state_ != state::open) return state_ == state::idle;
    if (queue_pair_->credits().idle()) return true;
    if (!queue_pair_->credits().all_signalled()) (void)post_marker();  // without room it is tried again
    return false;
}

bool rdma_link::close() noexcept {
    if (state_ == state::closed) return true;
    const bool answers_first = state_ == state::open && is_server() && !peer_left_;
    if (answers_first && !flushed()) {
        if (!closing_) close_by_ = core::now() + close_grace;
        closing_ = true;
        if (core::now() < close_by_) return false;
    }
    end();
    return true;
}

/// After this neither end touches any slot or lent memory.
void rdma_link::end() noexcept {
    if (state_ == state::closed) return;
    state_ = state::closed;
    if (!queue_pair_) return;
    const std::uint32_t number = queue_pair_->number();
    queue_pair_.reset();
    poller_.remove(*this, number, polled_);
    polled_ = false;
}

}  // namespace accel::rdma
