#include "core/server/session.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace accel::core {
session::session(worker& owner, std::uint64_t id, std::string_view scheme, std::string peer,
                 const link_geometry& geometry)
    : owner_(owner),
      id_(id),
      scheme_(scheme),
      peer_(std::move(peer)),
      geometry_(geometry),
      exchanges_(geometry.slots) {
    for (std::uint32_t i = 0; i < geometry.slots; ++i) {
        exchanges_[i].owner = this;
        exchanges_[i].slot = i;
    }
}

void session::set_link(std::unique_ptr<link> made) noexcept {
    path_ = std::move(made);
    answers_ = &path_->send();
}

exchange_state* session::admit(const link_event& event) noexcept {
    const slot_header& header = event.header;
    const bool sane = check_header(header, message_kind::request) == status::ok &&
                      header.slot < exchanges_.size() && header.length <= geometry_.request_bytes &&
                      event.payload.size() == header.length &&
                      header.response_room <= geometry_.response_bytes;
    if (!sane) return nullptr;
    exchange_state& exchange = exchanges_[header.slot];
    // A slot is used again only after its answer, and under another generation.
    if (exchange.phase != exchange_phase::idle || exchange.generation == header.generation) return nullptr;

    exchange.phase = exchange_phase::open;
    exchange.generation = header.generation;
    exchange.trace_id = header.trace_id;
    exchange.deadline = nanoseconds{header.deadline_ns};
    exchange.request = event.payload;
    const std::span<std::byte> room =
        event.response_room.empty() ? answers_->room(header.slot) : event.response_room;
    exchange.response_room = room.first(std::min<std::size_t>(room.size(), header.response_room));
    exchange.code = status::ok;
    exchange.application_code = 0;
    exchange.payload = {};
    exchange.lent = nullptr;
    exchange.stages = {};
    ++open_;
    return &exchange;
}

status session::send(exchange_state& answer, nanoseconds at) noexcept {
    if (answer.lent != nullptr && answer.leases_out != nullptr) return status::again;
    auto& header = *new (answers_->header(answer.slot)) slot_header;
    header.kind = message_kind::response;
    header.slot = answer.slot;
    header.generation = answer.generation;
    header.code = answer.code;
    header.length = answer.payload.size();
    header.trace_id = answer.trace_id;
    header.server_ticks = to_ticks(at - answer.arrival);
    header.application_code = answer.application_code;
    header.arrival_ns = answer.arrival.count();
    header.queue_ticks = to_ticks(answer.handler_start - answer.arrival);
    header.copy_ticks = to_ticks(answer.stages[static_cast<std::size_t>(stage::copy)]);
    header.preprocessing_ticks = to_ticks(answer.stages[static_cast<std::size_t>(stage::preprocessing)]);
    header.inference_ticks = to_ticks(answer.stages[static_cast<std::size_t>(stage::inference)]);

    // Done with the request before the answer leaves: the next one may arrive before deliver returns.
    path_->consumed(answer.slot);
    const outgoing message{answer.slot, answer.payload, answer.lent, {}};
    const status sent = path_->deliver(message);
    if (sent == status::ok && answer.lent != nullptr)
        answer.leases_out = std::exchange(answer.leases, nullptr);
    return sent;
}

status session::drop(exchange_state& answer) noexcept {
    path_->consumed(answer.slot);
    return status::peer_lost;
}

void session::finish(exchange_state& answer) noexcept {
    if (answer.leases != nullptr) {
        std::exchange(answer.leases, nullptr)->fetch_sub(1, std::memory_order_release);
    }
    answer.phase = exchange_phase::idle;
    --open_;
}

void session::let_go(std::uint32_t slot) noexcept {
    if (slot >= exchanges_.size() || exchanges_[slot].leases_out == nullptr) return;
    std::exchange(exchanges_[slot].leases_out, nullptr)->fetch_sub(1, std::memory_order_release);
}

void session::let_go_all() noexcept {
    for (std::uint32_t i = 0; i < exchanges_.size(); ++i) let_go(i);
}

}  // namespace accel::core
