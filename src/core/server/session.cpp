// SPDX-License-Identifier: Apache-2.0
#include "core/server/session.hpp"

#include "core/server/worker.hpp"

#include <algorithm>
#include <utility>

namespace accel::core {

session::session(worker& owner, std::uint64_t id, std::string_view scheme, client_identity client,
                 const link_geometry& geometry)
    : owner_(owner),
      id_(id),
      scheme_(scheme),
      client_(std::move(client)),
      geometry_(geometry),
      exchanges_(geometry.slots),
      parts_(geometry.slots),
      inboxes_(geometry.slots),
      cancels_(std::make_shared<cancel_board>(geometry.slots, owner.stops())) {
    for (std::uint32_t i = 0; i < geometry.slots; ++i) {
        exchanges_[i].owner = this;
        exchanges_[i].slot = i;
    }
}

/// After the end of its worker nobody else sees that lent answers are given back.
session::~session() {
    if (connection_ != nullptr && connection_->close()) end_leases();
}

void session::set_link(std::unique_ptr<link> made) noexcept {
    path_ = made.get();
    connection_ = std::move(made);
    const slot_memory& answers = path_->send();
    answer_bytes_ = answers.capacity();
    for (exchange_state& each : exchanges_) each.header = answers.header(each.slot);
}

void session::count_in(scheme_series* series) noexcept {
    series_ = series;
    for (exchange_state& each : exchanges_) each.counts = counts();
}

void session::hold_part(exchange_state& part) noexcept {
    part.ends.store(exchange_end::taken, std::memory_order_relaxed);
    held_parts_.fetch_add(1, std::memory_order_relaxed);
    owner_.part_taken();
}

void session::put_on_device(device_session place) {
    device_ = std::make_unique<device_session>(std::move(place));
    device_work_.resize(exchanges_.size());
    for (exchange_state& each : exchanges_) each.device = &device_work_[each.slot];
}

std::size_t session::device_bytes() const noexcept {
    if (device_ == nullptr) return 0;
    if (device_->staged()) return device_->requests->payload_bytes() + device_->responses->payload_bytes();
    return path_->receive().payload_bytes() + path_->send().payload_bytes();
}

void session::end_lease(std::uint32_t slot) noexcept {
    if (slot >= exchanges_.size() || exchanges_[slot].leases_out == nullptr) return;
    std::exchange(exchanges_[slot].leases_out, nullptr)->fetch_sub(1, std::memory_order_release);
}

bool session::close() {
    const bool closed = connection_->close();
    if (path_ == nullptr) return closed;
    // The client waits for its memory, also while it keeps answers that were lent.
    if (const recall how = path_->recalled(); how != recall::none) part_from_client(how);
    if (closed) end_leases();
    return closed;
}

void session::end_leases() noexcept {
    if (path_ == nullptr) return;
    for (exchange_state& each : exchanges_) {
        if (each.leases_out != nullptr && path_->leave_lease(each.slot, *each.leases_out)) each.leases_out = nullptr;
        end_lease(each.slot);
    }
}

/// The client wants its memory back: handlers continue with copies, and their answers go nowhere. Spans that
/// they took before still name the client's memory. A handler on a device has its bytes there anyway; only the
/// stream may still read the client's memory.
void session::part_from_client(recall how) {
    for (exchange_state& each : exchanges_) {
        const bool part = each.phase == exchange_phase::part;
        if (!part && (each.phase != exchange_phase::open || each.device != nullptr)) continue;
        auto made = std::make_unique<own_memory>();
        const std::size_t asked = each.request.size();
        made->bytes.resize(asked + each.response_room.size());
        if (how == recall::readable) std::ranges::copy(each.request, made->bytes.begin());
        made->request = std::span{made->bytes}.first(asked);
        made->response_room = std::span{made->bytes}.subspan(asked);
        each.own.store(made.get(), std::memory_order_release);
        own_.push_back(std::move(made));
        path_->consumed(each.slot);
    }
}

}  // namespace accel::core
