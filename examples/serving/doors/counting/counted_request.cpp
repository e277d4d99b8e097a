// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/counting/counted_request.hpp"

#include <utility>

namespace accel::examples::serving::doors {
namespace {

constexpr std::uint8_t bit_of(request_stage one) noexcept {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(one));
}

}  // namespace

void counted_request::begin(door_metrics& of, clock::time_point at) {
    drop();
    of_ = &of;
    row_ = door_metrics::no_model;
    counts_ = in_flight_ = true;
    stage_ = request_stage::receive;
    reached_ = bit_of(stage_);
    began_ = entered_ = at;
    spent_.fill({});
    door_metrics::add(row().in_flight, 1);
}

void counted_request::set_model(std::size_t row_number) noexcept {
    if (in_flight_) door_metrics::drop(row().in_flight);
    row_ = row_number;
    if (in_flight_) door_metrics::add(row().in_flight, 1);
}

/// A body may be received while its request holds a slot already.
void counted_request::enter(request_stage next, clock::time_point now) noexcept {
    spent_[static_cast<std::size_t>(stage_)] += now - entered_;
    stage_ = next;
    reached_ |= bit_of(next);
    entered_ = now;
}

void counted_request::received(std::uint64_t bytes) noexcept {
    door_metrics::add(row().received_bytes, bytes);
}

void counted_request::sent(std::uint64_t bytes) noexcept {
    door_metrics::add(row().sent_bytes, bytes);
}

void counted_request::answered(int status) noexcept {
    door_metrics::add(row().answers[of_->index_of(status)], 1);
}

void counted_request::cancelled() noexcept {
    door_metrics::add(row().cancelled, 1);
}

void counted_request::end(clock::time_point now) noexcept {
    if (!counts_) return;
    enter(stage_, now);
    row().whole.add(now - began_);
    const bool of_inference = (reached_ & bit_of(request_stage::slot)) != 0;
    for (std::size_t i = 0; i < request_stages && of_inference; ++i)
        if ((reached_ & bit_of(static_cast<request_stage>(i))) != 0) row().stages[i].add(spent_[i]);
    drop();
}

void counted_request::leave() noexcept {
    if (std::exchange(in_flight_, false)) door_metrics::drop(row().in_flight);
}

void counted_request::drop() noexcept {
    leave();
    counts_ = false;
}

}  // namespace accel::examples::serving::doors
