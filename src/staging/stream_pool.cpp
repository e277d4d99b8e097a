// SPDX-License-Identifier: Apache-2.0
#include "staging/stream_pool.hpp"

#include "core/event_signal.hpp"
#include "core/server/session.hpp"
#include "staging/device_work.hpp"

#include <algorithm>
#include <utility>

namespace accel::core {

void exchange_queue::push(exchange_state& added) noexcept {
    added.next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = &added;
    last_ = &added;
}

exchange_state* exchange_queue::pop() noexcept {
    exchange_state* const taken = first_;
    if (taken == nullptr) return nullptr;
    first_ = std::exchange(taken->next, nullptr);
    if (first_ == nullptr) last_ = nullptr;
    return taken;
}

exchange_state* exchange_queue::pop_expired(nanoseconds when) noexcept {
    exchange_state* before = nullptr;
    for (exchange_state* each = first_; each != nullptr; before = each, each = each->next) {
        if (each->deadline > when) continue;
        (before == nullptr ? first_ : before->next) = each->next;
        if (last_ == each) last_ = before;
        each->next = nullptr;
        return each;
    }
    return nullptr;
}

result<std::unique_ptr<stream_pool>> stream_pool::create(accelerator_device& on, const server_options& options,
                                                         int wake_fd) {
    std::unique_ptr<stream_pool> made(new stream_pool(on, options.stream_per_session));
    if (options.poll != poll_mode::busy) made->waker_ = std::make_unique<stream_waker>(wake_fd);
    made->lanes_.resize(options.streams + options.priority_streams);
    for (std::uint32_t i = 0; i < made->lanes_.size(); ++i) {
        stream_lane& lane = made->lanes_[i];
        lane.priority = i < options.streams ? stream_priority::normal : stream_priority::high;
        auto stream = on.open_stream(lane.priority);
        if (!stream) return stream.error();
        lane.stream = std::move(*stream);
    }
    return made;
}

bool stream_pool::end(nanoseconds deadline) noexcept {
    bool all = true;
    for (stream_lane& lane : lanes_) {
        if (lane.working == nullptr) continue;
        // It was answered after its client had gone.
        if (lane.phase != lane_phase::finishing) lane.stream->finish(nullptr, nullptr);
        while (lane.stream->poll() == stream_progress::running && now() < deadline)
            sleep_on({}, now() + std::chrono::milliseconds{1});
        if (lane.stream->poll() != stream_progress::running) continue;
        all = false;
        (void)lane.stream.release();
    }
    if (!all) (void)waker_.release();
    return all;
}

bool stream_pool::feed(stream_lane& lane) noexcept {
    const unsigned share =
        lane.priority == stream_priority::high ? 1U : std::clamp(copying_, 1U, device_stream::max_pieces);
    return lane.copy.feed(*lane.stream, device_stream::max_pieces / share);
}

stream_lane* stream_pool::assign(stream_priority priority) noexcept {
    if (!one_for_each_session_) return nullptr;
    const auto of_priority = [priority](const stream_lane& lane) { return lane.priority == priority; };
    const auto count = static_cast<std::uint32_t>(std::count_if(lanes_.begin(), lanes_.end(), of_priority));
    std::uint32_t skip = assigned_[static_cast<std::size_t>(priority)]++ % count;
    for (stream_lane& lane : lanes_)
        if (of_priority(lane) && skip-- == 0) return &lane;
    return nullptr;
}

stream_lane* stream_pool::free_lane(stream_priority priority) noexcept {
    const auto found = std::find_if(lanes_.begin(), lanes_.end(), [priority](const stream_lane& lane) {
        return lane.priority == priority && lane.working == nullptr;
    });
    return found == lanes_.end() ? nullptr : &*found;
}

stream_lane* stream_pool::take(exchange_state& wanted) noexcept {
    const device_session& session = *wanted.owner->on_device();
    stream_lane* lane = session.lane;
    if (lane == nullptr) lane = free_lane(session.priority);
    if (lane != nullptr && lane->working == nullptr) {
        lane->working = &wanted;
        ++working_;
        return lane;
    }
    exchange_queue& queue =
        session.lane != nullptr ? session.lane->queue : queues_[static_cast<std::size_t>(session.priority)];
    queue.push(wanted);
    ++waiting_;
    return nullptr;
}

exchange_state* stream_pool::next(stream_lane& free) noexcept {
    exchange_state* waited = free.queue.pop();
    if (waited == nullptr) waited = queues_[static_cast<std::size_t>(free.priority)].pop();
    free.working = waited;
    if (waited == nullptr)
        --working_;
    else
        --waiting_;
    return waited;
}

exchange_state* stream_pool::take_overdue(nanoseconds when) noexcept {
    exchange_state* found = nullptr;
    for (exchange_queue& queue : queues_)
        if (found == nullptr) found = queue.pop_expired(when);
    for (stream_lane& lane : lanes_)
        if (found == nullptr) found = lane.queue.pop_expired(when);
    if (found != nullptr) --waiting_;
    return found;
}

}  // namespace accel::core
