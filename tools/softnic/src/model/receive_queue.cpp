// SPDX-License-Identifier: Apache-2.0
#include "model/receive_queue.hpp"

#include "wqe/bytes.hpp"

#include <array>
#include <utility>

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

namespace accel::softnic {
namespace {

constexpr std::size_t max_receive_wqe_bytes = 4096;
using wqe_buffer = std::array<std::byte, max_receive_wqe_bytes>;

/// How many posted WQEs have not been taken.
take_status count_posted(const receive_queue_options& queue, std::uint16_t consumed, std::uint16_t& left) {
    if (queue.entries == 0) return take_status::empty;
    std::uint32_t produced = 0;
    if (!queue.doorbell_record.load32(0, produced)) return take_status::unreachable;
    left = static_cast<std::uint16_t>(be32toh(produced) - consumed);
    if (left == 0) return take_status::empty;
    return left > queue.entries ? take_status::overflow : take_status::taken;
}

bool fetch(const receive_queue_options& queue, std::uint32_t index, std::span<std::byte> out) {
    const std::uint64_t slot = std::uint64_t{index & (queue.entries - 1)} << queue.stride_shift;
    return queue.buffer.read(slot, out.data(), out.size());
}

}  // namespace

take_status receive_ring::take(receive_request& out) {
    std::uint16_t left = 0;
    const take_status status = count_posted(options_, consumed_, left);
    if (status != take_status::taken) return status;
    wqe_buffer bytes;
    const auto wqe = std::span(bytes).first(std::size_t{1} << options_.stride_shift);
    if (!fetch(options_, consumed_, wqe)) return take_status::unreachable;
    out.index = consumed_++;
    decode_receive(wqe, out.segments);
    return take_status::taken;
}

take_status shared_receive_queue::take(receive_request& out) {
    const take_status status = take_next(out);
    if (status == take_status::unreachable || status == take_status::overflow) report_failure();
    return status;
}

take_status shared_receive_queue::take_next(receive_request& out) {
    std::uint16_t left = 0;
    const take_status status = count_posted(options_, consumed_, left);
    if (status != take_status::taken) return status;
    wqe_buffer bytes;
    const auto wqe = std::span(bytes).first(std::size_t{1} << options_.stride_shift);
    if (!fetch(options_, head_, wqe)) return take_status::unreachable;
    out.index = head_;
    decode_receive(wqe.subspan(sizeof(mlx5_wqe_srq_next_seg)), out.segments);
    if (out.segments.size() > identity_.max_segments) out.segments.resize(identity_.max_segments);
    ++consumed_;
    head_ = options_.cyclic ? consumed_ : be16toh(load_as<mlx5_wqe_srq_next_seg>(wqe).next_wqe_index);
    check_limit(static_cast<std::uint32_t>(left) - 1);
    return take_status::taken;
}

void shared_receive_queue::arm_limit(std::uint32_t limit) {
    limit_ = limit;
    std::uint16_t left = 0;
    const take_status status = count_posted(options_, consumed_, left);
    if (status == take_status::taken || status == take_status::empty) check_limit(left);
}

void shared_receive_queue::check_limit(std::uint32_t left) {
    if (limit_ == 0 || left >= limit_) return;
    limit_ = 0;
    if (identity_.asynchronous && identity_.asynchronous->send(identity_.user_handle, IBV_EVENT_SRQ_LIMIT_REACHED))
        ++events_;
    tell(identity_.subscribers, {device_event::receive_limit_reached, identity_.number});
}

/// Told once, however many queue pairs meet it.
void shared_receive_queue::report_failure() {
    if (std::exchange(failed_, true)) return;
    if (identity_.asynchronous && identity_.asynchronous->send(identity_.user_handle, IBV_EVENT_SRQ_ERR)) ++events_;
    tell(identity_.subscribers, {device_event::receive_queue_error, identity_.number});
}

unsigned shared_receive_queue::events_reported() {
    if (identity_.asynchronous) events_ -= identity_.asynchronous->take_back(identity_.user_handle);
    return events_;
}

}  // namespace accel::softnic
