// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/link.hpp"
#include "backends/shm/poller.hpp"
#include "core/log.hpp"

#include <cstring>
#include <new>
#include <utility>

#include <sys/socket.h>

/// Making and ending a session in shared memory.
namespace accel::shm {

using core::link_role;

result<std::unique_ptr<core::link>> shm_link::create(shm_poller& owner, const core::link_config& config) {
    std::unique_ptr<shm_link> made(new shm_link(owner, config));
    if (made->is_server()) {
        made->released_.reserve(config.geometry.slots);
        if (auto ready = made->make_segments(); !ready) return ready.error();
    } else {
        made->targets_.resize(config.geometry.slots);
    }
    return std::unique_ptr<core::link>(std::move(made));
}

shm_link::~shm_link() {
    (void)close();
}

segment_layout shm_link::layout_of(link_role filled_by) const noexcept {
    const core::link_geometry& agreed = config_.geometry;
    return {agreed.slots, filled_by == link_role::client ? agreed.request_bytes : agreed.response_bytes};
}

direction shm_link::direction_of(link_role filled_by, segment mapped) const {
    const core::link_geometry& agreed = config_.geometry;
    const std::size_t capacity = filled_by == link_role::client ? agreed.request_bytes : agreed.response_bytes;
    return {std::move(mapped), layout_of(filled_by), agreed.slots, capacity};
}

/// The server owns both directions, so that no client can take memory away from it or write where it should not.
result<void> shm_link::make_segments() {
    auto requests = segment::create(layout_of(link_role::client).bytes, peer_access::write);
    if (!requests) return requests.error();
    auto responses = segment::create(layout_of(link_role::server).bytes, peer_access::read);
    if (!responses) return responses.error();
    incoming_ = direction_of(link_role::client, std::move(*requests));
    outgoing_ = direction_of(link_role::server, std::move(*responses));
    peer_sleep_ = &incoming_.head().sleep;
    find_lanes();
    return {};
}

result<void> shm_link::map_segments(opened& made) {
    const auto own = [&](passed which) { return std::move(made.descriptors[which]); };
    auto requests = segment::map(own(requests_segment), layout_of(link_role::client).bytes, peer_access::write);
    if (!requests) return requests.error();
    auto responses = segment::map(own(responses_segment), layout_of(link_role::server).bytes, peer_access::read);
    if (!responses) return responses.error();
    auto page = segment::map(own(sleep_page), page_bytes, peer_access::read);
    if (!page) return page.error();
    outgoing_ = direction_of(link_role::client, std::move(*requests));
    incoming_ = direction_of(link_role::server, std::move(*responses));
    page_ = std::move(*page);
    peer_sleep_ = &reinterpret_cast<const poller_page*>(page_.base())->sleep;
    find_lanes();
    return {};
}

void shm_link::share_device_slots(const std::shared_ptr<core::slot_memory>& requests,
                                  const std::shared_ptr<core::slot_memory>& responses) noexcept {
    auto first = requests->device()->share(requests->payloads());
    auto second = first ? responses->device()->share(responses->payloads()) : result<core::unique_fd>(first.error());
    if (!second)
        return core::limited_log().info("shm: clients cannot reach memory of {} directly: {}",
                                        requests->device()->name(), second.error().message);
    shared_ = {requests, responses, std::move(*first), std::move(*second)};
}

/// Without them payloads take the way over the host.
void shm_link::map_gpu_slots(const passed_descriptors& passed) {
    if (!passed[gpu_requests].open() || poller_.gpus() == nullptr) return;
    auto made = gpu_copies::map(poller_.gpus(), passed, config_.geometry, *config_.send);
    auto wakes = poller_.make_waker();
    if (made && wakes) {
        copies_ = std::move(*made);
        released_.reserve(config_.geometry.slots);
        return;
    }
    core::limited_log().warn("shm: payloads go over the host, because the server's slots on its GPU cannot be used: {}",
                             made ? wakes.error().message : made.error().message);
}

void shm_link::find_lanes() noexcept {
    const std::uint32_t entries = layout_of(link_role::client).entries;
    writer_ = lane_writer(outgoing_.memory.base() + segment_layout::lane_at, entries);
    reader_ = lane_reader(incoming_.memory.base() + segment_layout::lane_at, entries);
    last_left_ = entries;
}

core::link_description shm_link::describe() const {
    if (is_server()) return {};
    client_wish wish;
    // A program that has used no GPU yet asks for no slots there, so that its server reserves none in vain.
    wish.maps_gpu_slots = poller_.gpus() != nullptr && !poller_.gpus()->opened().empty() ? 1 : 0;
    core::link_description out(sizeof wish);
    std::memcpy(out.data(), &wish, sizeof wish);
    return out;
}

result<void> shm_link::attach(const core::link_grant& grant, core::nanoseconds deadline) {
    if (!is_server()) {
        auto made = open_data_connection(grant, deadline);
        if (!made) return made.error();
        if (auto mapped = map_segments(*made); !mapped) return mapped;
        map_gpu_slots(made->descriptors);
        socket_ = std::move(made->socket);
        return {};
    }
    client_wish wish;
    if (grant.description.size() != sizeof wish)
        return error{status::protocol_error, 0, "shm: the client's description of its data path is malformed"};
    std::memcpy(&wish, grant.description.data(), sizeof wish);
    wants_gpu_slots_ = wish.maps_gpu_slots == 1;
    if (wish.format == client_wish{}.format) return {};
    return error{status::version_mismatch, 0, "shm: the client's description of its data path has an unknown form"};
}

void shm_link::activate() {
    if (!is_server()) return adopt(std::move(socket_));
    state_ = state::expected;
    poller_.door().expect(*this, config_.session_id, config_.token,
                          {incoming_.memory.release_fd(), outgoing_.memory.release_fd(), std::move(shared_.requests_fd),
                           std::move(shared_.responses_fd)});
}

/// Without memory for it the connection ends, and with it the session at the client.
void shm_link::adopt_arrival(core::unique_fd socket) noexcept {
    try {
        adopt(std::move(socket));
    } catch (const std::bad_alloc&) {
        core::limited_log("memory").error("no memory is left for the connection of session {}", config_.session_id);
    }
}

void shm_link::adopt(core::unique_fd socket) {
    poller_.make_room();
    socket_ = std::move(socket);
    state_ = shared_.requests != nullptr || copies_ != nullptr ? state::open_to_gpu : state::open;
    if (!poller_.add(*this)) lose(status::system_error);
}

/// Reported by the next `take`. A server does not serve what a client sent before its death.
void shm_link::lose(status why) noexcept {
    if (!is_open()) return;
    state_ = state::losing;
    reason_ = why;
    if (is_server() || why != status::peer_lost) last_left_ = 0;
    poller_.unwatch(*this);
}

/// Copies were made of all that was lent, or are made by a GPU. The slots go with the link.
bool shm_link::close() noexcept {
    if (state_ != state::closed) end();
    return copies_ == nullptr || copies_->settle();
}

void shm_link::end() noexcept {
    // A link that was never activated belongs to another thread than its poller.
    if (polled()) poller_.remove(*this);
    // A server's client asks the control plane why its session ends.
    const bool orderly = !is_server() && (state_ == state::idle || is_open());
    if (orderly && outgoing_.memory.base() != nullptr) outgoing_.head().closed.store(1, std::memory_order_release);
    // A child of fork() may hold the socket, too.
    if (socket_.open()) ::shutdown(socket_.get(), SHUT_RDWR);
    socket_.reset();
    state_ = state::closed;
}

}  // namespace accel::shm
