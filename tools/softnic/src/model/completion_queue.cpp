// SPDX-License-Identifier: Apache-2.0
#include "model/completion_queue.hpp"

#include <utility>

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

namespace accel::softnic {
namespace {

constexpr std::uint32_t never_armed = 0xffffffff;
constexpr std::uint64_t arm_record_offset = 4;  ///< the second word of the doorbell record

bool read_word(const queue_memory& record, std::uint64_t offset, std::uint32_t& value) {
    if (!record.load32(offset, value)) return false;
    value = be32toh(value);
    return true;
}

}  // namespace

completion_queue::completion_queue(std::uint32_t number, completion_queue_options options)
    : number_(number), options_(std::move(options)), armed_record_(never_armed), answered_record_(never_armed) {}

bool completion_queue::has_room() {
    if (options_.ignore_overrun) return true;
    if (((produced_ - consumed_) & index_mask) < options_.entries) return true;
    std::uint32_t consumed = 0;
    if (!read_word(options_.doorbell_record, 0, consumed)) return false;
    consumed_ = consumed & index_mask;
    return ((produced_ - consumed_) & index_mask) < options_.entries;
}

/// The owner bit is in the last 8 bytes, which land last and whole.
bool completion_queue::write(const completion& what, std::uint8_t kind, std::uint64_t timestamp) {
    const bool owner = (produced_ & options_.entries) != 0;
    const auto cqe = encode_cqe(what, kind, owner, timestamp);
    const std::uint32_t place = options_.collapsed ? 0 : produced_ & (options_.entries - 1);
    const std::uint64_t slot = std::uint64_t{place} * options_.entry_bytes + (options_.entry_bytes - cqe_bytes);
    return options_.buffer.write(slot, cqe.data(), cqe.size());
}

completion_queue::outcome completion_queue::put(const completion& what, std::uint8_t kind, std::uint64_t timestamp) {
    if (failed_) return outcome::overrun;
    if (!has_room()) {
        fail();
        return outcome::overrun;
    }
    if (!write(what, kind, timestamp)) {
        fail();
        return outcome::unreachable;
    }
    produced_ = (produced_ + 1) & index_mask;
    if (what.solicited || what.error != syndrome::none) solicited_end_ = produced_;
    notify_if_due();
    return outcome::written;
}

void completion_queue::fail() {
    if (failed_) return;
    failed_ = true;
    if (options_.asynchronous && options_.asynchronous->send(options_.user_handle, IBV_EVENT_CQ_ERR)) ++failures_;
    tell(options_.subscribers, {device_event::completion_queue_error, number_});
}

void completion_queue::on_arm_doorbell() {
    if (!can_notify()) return;
    std::uint32_t record = 0;
    if (!read_word(options_.doorbell_record, arm_record_offset, record)) return;
    armed_record_ = record;
    notify_if_due();
}

/// An arm asks for one event about completions at or behind the index it names, unless one was sent for them
/// already.
void completion_queue::notify_if_due() {
    if (!can_notify() || armed_record_ == never_armed || armed_record_ == answered_record_) return;
    const bool only_solicited = (armed_record_ & MLX5_CQ_DB_REQ_NOT_SOL) != 0;
    const std::uint32_t end = only_solicited ? solicited_end_ : produced_;
    const auto is_behind = [end](std::uint32_t index) {
        const std::uint32_t distance = (end - index) & index_mask;
        return distance != 0 && distance < index_mask / 2;
    };
    if (!is_behind(armed_record_ & index_mask) || !is_behind(notified_)) return;
    answered_record_ = armed_record_;
    notified_ = produced_;
    if (options_.channel && options_.channel->send(options_.user_handle)) ++events_;
    tell(options_.subscribers, {device_event::completion, number_});
}

bool completion_queue::resize(queue_memory buffer, std::uint32_t entries) {
    std::uint32_t consumed = 0;
    if (!read_word(options_.doorbell_record, 0, consumed)) return false;
    const std::uint32_t unread = (produced_ - consumed) & index_mask;
    if (unread >= entries || unread >= options_.entries) return false;
    if (!write(completion{}, MLX5_CQE_RESIZE_CQ, 0)) return false;
    produced_ = (produced_ + 1) & index_mask;
    options_.buffer = std::move(buffer);
    options_.entries = entries;
    return true;
}

unsigned completion_queue::completion_events_reported() {
    if (options_.channel) events_ -= options_.channel->take_back(options_.user_handle);
    return events_;
}

unsigned completion_queue::asynchronous_events_reported() {
    if (options_.asynchronous) failures_ -= options_.asynchronous->take_back(options_.user_handle);
    return failures_;
}

void completion_queue::forget_channel(const event_pipe* channel) {
    if (options_.channel.get() == channel) options_.channel.reset();
}

}  // namespace accel::softnic
