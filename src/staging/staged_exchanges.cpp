// SPDX-License-Identifier: Apache-2.0
#include "staging/staged_exchanges.hpp"

#include "core/log.hpp"
#include "core/region_state.hpp"
#include "core/server/worker.hpp"
#include "staging/device_work.hpp"

#include <algorithm>
#include <utility>

namespace accel::core {
namespace {

std::span<const std::byte> within(std::span<const std::byte> room, std::size_t length) noexcept {
    return room.first(length);
}

void add_stages(exchange_state& answered, device_stream& stream) noexcept {
    const auto add = [&](stage what, stream_mark from, stream_mark to) {
        answered.answer.record(what, stream.between(from, to));
    };
    add(stage::copy, stream_mark::start, stream_mark::copied_in);
    add(stage::preprocessing, stream_mark::preprocessing, stream_mark::inference);
    add(stage::inference, stream_mark::inference, stream_mark::answered);
    if (answered.device->copied_out.data() != nullptr) add(stage::copy, stream_mark::answered, stream_mark::finished);
}

}  // namespace

void staged_exchanges::serve(exchange_state& request) noexcept {
    if (!streams_->device().alive()) [[unlikely]]
        return worker_.refuse(request, status::device_lost);
    session& from = *request.owner;
    device_work& work = *request.device;
    const device_session& place = *from.on_device();
    work.arrived = request.request;
    work.departure = request.response_room;
    work.copied_out = {};
    const slot_memory& responses = place.staged() ? *place.responses : from.path().send();
    request.response_room = responses.room(request.slot).first(work.departure.size());
    if (place.staged())
        request.request = within(place.requests->room(request.slot), request.request.size());
    else
        work.departure = request.response_room;
    work.text = work.departure;
    // The transport takes the response from the GPU, or it goes into memory that its client may take back at any time.
    if (work.departure.data() == request.response_room.data() || request.is_wanted_in(work.departure))
        work.text = {request.header + header_bytes, std::min(slot_memory::text_room, work.departure.size())};
    stream_lane* lane = streams_->take(request);
    if (lane != nullptr) work_on(request, *lane);
}

/// Gives the stream the copies that come before the handler, then gives the handler its exchange.
void staged_exchanges::work_on(exchange_state& request, stream_lane& lane) noexcept {
    device_work& work = *request.device;
    device_stream& stream = *lane.stream;
    work.lane = &lane;
    worker_.end_queueing(request);
    stream.begin();
    const bool written_by_device = !request.owner->on_device()->staged();
    if (written_by_device || work.arrived.data() == request.request.data()) {
        if (written_by_device) streams_->device().make_inbound_visible();
        stream.make_current();
        return worker_.serve_brought(request);
    }
    stream.mark(stream_mark::start);
    lane.copy = {const_cast<std::byte*>(request.request.data()), work.arrived.data(), work.arrived.size()};
    if (streams_->feed(lane)) return brought(lane);
    streams_->set_copying(lane, lane_phase::bringing);
}

/// The stream has been given the whole request. The handler's work comes behind it.
void staged_exchanges::brought(stream_lane& lane) noexcept {
    lane.stream->mark(stream_mark::copied_in);
    lane.stream->make_current();
    worker_.serve_brought(*lane.working);
}

void staged_exchanges::send(exchange_state& answered) noexcept {
    device_work& work = *answered.device;
    device_stream& stream = *work.lane->stream;
    stream.mark(stream_mark::answered);
    const region_state* lent = answered.answer.lent;
    const bool staged = work.departure.data() != answered.response_room.data();
    const bool own = answered.payload.data() == answered.response_room.data();
    // Lent memory goes as it is. Exceptions: GPU memory that the transport does not reach, for slots on a GPU any
    // memory that it does not reach, and responses that nobody else puts where their client wants them.
    const auto must_be_copied = [&] {
        const bool out_of_reach =
            (!staged || lent->device() != nullptr) && !answered.owner->path().reaches(*lent, false);
        return out_of_reach || (staged && answered.is_wanted_in(work.departure));
    };
    const bool copied = lent == nullptr ? staged && own : must_be_copied();
    // Memory that a lost client had lent may be gone too.
    stream_lane& lane = *work.lane;
    if (copied && !answered.payload.empty() && !answered.owner->gone()) {
        lane.copy = {work.departure.data(), answered.payload.data(), answered.payload.size()};
        work.copied_out = answered.payload;
        answered.payload = within(work.departure, answered.payload.size());
        // The copy reads the lent memory; its lease ends with the exchange.
        answered.answer.lent = nullptr;
        if (!streams_->feed(lane)) return streams_->set_copying(lane, lane_phase::leaving);
    }
    finish(lane);
}

/// The stream has been given all of its work for this exchange.
void staged_exchanges::finish(stream_lane& lane) noexcept {
    stream_waker* waker = streams_->waker();
    lane.stream->finish(waker == nullptr ? nullptr : &stream_waker::wake, waker);
    streams_->set_finishing(lane);
}

bool staged_exchanges::poll() noexcept {
    bool progress = false;
    for (stream_lane& lane : streams_->lanes()) {
        if (lane.phase == lane_phase::working) continue;
        if (lane.phase != lane_phase::finishing) {
            progress = feed(lane) || progress;
            continue;
        }
        const stream_progress state = lane.stream->poll();
        if (state == stream_progress::running) continue;
        progress = true;
        arrive(lane, state == stream_progress::done);
    }
    if (streams_->waiting() > 0) expire_waiting();
    return progress;
}

/// Continues a long copy. True: the stream has been given the last piece.
bool staged_exchanges::feed(stream_lane& lane) noexcept {
    if (!streams_->feed(lane)) return false;
    const bool bringing = lane.phase == lane_phase::bringing;
    streams_->end_copying(lane);
    bringing ? brought(lane) : finish(lane);
    return true;
}

void staged_exchanges::arrive(stream_lane& lane, bool done) noexcept {
    exchange_state& answered = *lane.working;
    streams_->end_finishing(lane);
    answered.device->lane = nullptr;
    if (done) {
        add_stages(answered, *lane.stream);
    } else {
        const bool alive = streams_->device().alive();
        answered.answer = {};
        answered.answer.fail(alive ? status::system_error : status::device_lost);
        answered.payload = {};
        if (!alive) {
            tell_device_lost();
            expire_waiting();
        }
    }
    exchange_state* waited = streams_->next(lane);
    worker_.send(answered);
    while (waited != nullptr && waited->owner->gone()) {
        worker_.refuse(*waited, status::peer_lost);
        waited = streams_->next(lane);
    }
    if (waited != nullptr) work_on(*waited, lane);
}

/// Fails requests that have waited for a stream past their deadline; all of them once the device is lost.
void staged_exchanges::expire_waiting() noexcept {
    const bool alive = streams_->device().alive();
    if (alive && worker_.last_time() < next_expiry_) return;
    next_expiry_ = worker_.last_time() + std::chrono::milliseconds{1};
    const nanoseconds when = alive ? worker_.last_time() : never;
    while (exchange_state* late = streams_->take_overdue(when))
        if (alive)
            worker_.refuse_late_or_too_many(*late, false);
        else
            worker_.refuse(*late, status::device_lost);
}

void staged_exchanges::tell_device_lost() noexcept {
    if (std::exchange(device_loss_logged_, true)) return;
    log().error(
        "{} has failed (a kernel faulted, or the GPU is gone): requests are refused with device_lost until this "
        "process is restarted",
        streams_->device().name());
}

}  // namespace accel::core
