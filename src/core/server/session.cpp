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
      cancels_(std::make_shared<cancel_board>(geometry.slots, owner.stops())) {
    for (std::uint32_t i = 0; i < geometry.slots; ++i) {
        exchanges_[i].owner = this;
        exchanges_[i].slot = i;
    }
}

void session::set_link(std::unique_ptr<link> made) noexcept {
    path_ = made.get();
    connection_ = std::move(made);
    const slot_memory& answers = path_->send();
    answer_bytes_ = answers.capacity();
    for (exchange_state& each : exchanges_) each.header = answers.header(each.slot);
}

void session::count_in(server_series* series) noexcept {
    counts_ = series;
    for (exchange_state& each : exchanges_) each.counts = series;
}

void session::put_on_device(device_session place) {
    device_ = std::make_unique<device_session>(std::move(place));
    device_work_.resize(exchanges_.size());
    for (exchange_state& each : exchanges_) each.device = &device_work_[each.slot];
}

std::size_t session::gpu_memory_bytes() const noexcept {
    if (device_ == nullptr) return 0;
    if (device_->staged()) return device_->requests->payload_bytes() + device_->responses->payload_bytes();
    return path_->receive().payload_bytes() + path_->send().payload_bytes();
}

/// An answer with lent memory, tensors or parts before it, or to a request that the link lent.
[[gnu::noinline]] status session::send_with_extras(exchange_state& answered, nanoseconds at) noexcept {
    const region_state* const lent = answered.answer.lent;
    if (lent != nullptr && answered.leases_out != nullptr) return status::again;
    write_header(answered, at);
    // Release the request before the answer leaves: the next request may arrive before `deliver` returns.
    if ((answered.extras & exchange_extra::borrowed) != 0) path_->consumed(answered.slot);
    // A failure has no tensors.
    const bool described = (answered.extras & exchange_extra::described) != 0 && answered.answer.code == status::ok;
    const std::uint16_t bytes = described ? answered.extension_bytes : std::uint16_t{0};
    auto& header = *reinterpret_cast<slot_header*>(answered.header);
    header.extension_bytes = bytes;
    if ((answered.extras & exchange_extra::in_parts) != 0) header.parts_before = parts_of(answered).sent();
    const status sent = path_->deliver({answered.slot, answered.payload, lent, {}, bytes});
    if (sent == status::ok && lent != nullptr) answered.leases_out = std::exchange(answered.leases, nullptr);
    return sent;
}

status session::drop(const exchange_state& answered) noexcept {
    path_->consumed(answered.slot);
    return status::peer_lost;
}

/// For a lent answer that did not leave, and for an exchange whose handler asked to be stopped.
[[gnu::noinline]] void session::end_extras(exchange_state& answered) noexcept {
    if (answered.leases != nullptr) std::exchange(answered.leases, nullptr)->fetch_sub(1, std::memory_order_release);
    const std::uint8_t ends = answered.ends.exchange(0, std::memory_order_relaxed);
    if ((ends & exchange_end::watched) != 0) cancels_->forget(answered.slot);
    if ((ends & exchange_end::in_parts) != 0) end_parts(answered);
}

// Responses in parts.

/// The room of a call may arrive before it. False: there is room of another one, which never came.
bool session::start_parts(std::uint32_t slot, std::uint32_t generation) noexcept {
    part_credits& parts = parts_[slot];
    if (generation == 0) return false;
    if (parts.generation() == generation) return true;
    if (!parts.empty()) return false;
    parts.start(generation);
    return true;
}

exchange_state* session::admit_in_parts(const link_event& event) noexcept {
    const slot_header& header = event.header;
    const bool sane = is_of_parts(header, message_kind::request) && header.slot < geometry_.slots &&
                      exchanges_[header.slot].phase == exchange_phase::idle &&
                      start_parts(header.slot, header.generation);
    if (!sane) return nullptr;
    link_event plain = event;
    plain.header = without_parts(header);
    exchange_state* const admitted = admit(plain);
    if (admitted == nullptr) return nullptr;
    admitted->extras |= exchange_extra::in_parts;
    admitted->ends.store(exchange_end::in_parts, std::memory_order_relaxed);
    return admitted;
}

/// Room for a part is a request that is answered by the part, or given back when its call has its answer.
bool session::take_room(const link_event& event, nanoseconds at) noexcept {
    const slot_header& header = event.header;
    const bool sane = is_of_parts(header, message_kind::request) && header.slot < geometry_.slots &&
                      event.payload.empty() && header.response_room <= geometry_.response_bytes;
    const auto slot = static_cast<std::uint32_t>(header.parts_call);
    const auto generation = static_cast<std::uint32_t>(header.parts_call >> 32);
    if (!sane || slot >= geometry_.slots || slot == header.slot || generation == 0) return false;
    exchange_state& room = exchanges_[header.slot];
    if (room.phase != exchange_phase::idle || room.generation == header.generation) return false;
    const exchange_state& call = exchanges_[slot];
    const bool open = call.phase == exchange_phase::open && call.generation == generation;
    const bool ended = call.phase == exchange_phase::idle && call.generation == generation;
    const bool early = call.phase == exchange_phase::idle && !ended;
    // Room that came before its request may have named one without parts.
    const bool takes = (call.ends.load(std::memory_order_relaxed) & exchange_end::in_parts) != 0;
    const bool wanted =
        open ? takes && parts_[slot].generation() == generation : ended || (early && start_parts(slot, generation));
    if (!wanted) return false;

    room.phase = exchange_phase::room;
    room.extras = static_cast<std::uint8_t>(exchange_extra::room | static_cast<std::uint8_t>(event.borrowed));
    room.generation = header.generation;
    room.trace_id = 0;
    room.arrival = room.handler_start = at;
    room.response_room = part_room(header.slot).first(std::min<std::size_t>(answer_bytes_, header.response_room));
    room.payload = {};
    room.answer = {};
    if (!ended) {
        parts_[slot].add(room);
    } else {
        room.extras |= exchange_extra::returned;
        owner_.exchanges().send_part(room);
    }
    return true;
}

/// Where the transport takes a part from.
std::span<std::byte> session::part_room(std::uint32_t slot) const noexcept {
    const slot_memory& answers = path_->send();
    return answers.split() ? answers.room(slot) : std::span{answers.header(slot) + header_bytes, answer_bytes_};
}

status session::send_part(exchange_state& part, nanoseconds at) noexcept {
    if ((part.extras & exchange_extra::borrowed) != 0) path_->consumed(part.slot);
    const bool returned = (part.extras & exchange_extra::returned) != 0;
    part.answer.code = returned ? status::cancelled : status::ok;
    write_header(part, at);
    if (!returned) reinterpret_cast<slot_header*>(part.header)->flags = header_flag::more;
    return path_->deliver_plain(part.slot, part.payload);
}

void session::finish_part(exchange_state& part) noexcept {
    if ((part.extras & exchange_extra::queued) != 0) --open_;
    part.phase = exchange_phase::idle;
}

/// The call has its answer. Room that no part has used goes back to the client.
void session::end_parts(exchange_state& answered) noexcept {
    part_credits& parts = parts_of(answered);
    while (parts.next() != nullptr) {
        exchange_state& room = parts.take();
        room.extras |= exchange_extra::returned;
        room.payload = {};
        owner_.exchanges().send_part(room);
    }
    parts.end();
}

void session::end_lease(std::uint32_t slot) noexcept {
    if (slot >= exchanges_.size() || exchanges_[slot].leases_out == nullptr) return;
    std::exchange(exchanges_[slot].leases_out, nullptr)->fetch_sub(1, std::memory_order_release);
}

bool session::close() {
    if (!connection_->close()) return false;
    if (path_ == nullptr) return true;
    for (std::uint32_t i = 0; i < exchanges_.size(); ++i) end_lease(i);
    if (const recall how = path_->recalled(); how != recall::none) part_from_client(how);
    return true;
}

/// The client wants its memory back: handlers continue with copies, and their answers go nowhere. Spans that
/// they took before still name the client's memory. A handler on a GPU has its bytes there anyway; only the
/// stream may still read the client's memory.
void session::part_from_client(recall how) {
    for (exchange_state& each : exchanges_) {
        if (each.phase != exchange_phase::open || each.device != nullptr) continue;
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
