// SPDX-License-Identifier: Apache-2.0
// What the doorbell registers say. A register names the queue pair or completion queue that rang last. Others may have
// rang before it, and their names are lost: doorbells coalesce. So the named one is looked at at once, and all the
// others some at a time, so that a doorbell costs the same however many queues share its page.
#include "engine/nic.hpp"
#include "transport/requester.hpp"

#include <algorithm>

#include <endian.h>

namespace accel::softnic {
namespace {

/// A doorbell of a queue pair is the first half of its control segment.
std::uint32_t queue_pair_of(std::uint64_t doorbell) {
    return be32toh(static_cast<std::uint32_t>(doorbell >> 32)) >> 8;
}

/// That of a completion queue has the queue's number in its second word.
std::uint32_t completion_queue_of(std::uint64_t doorbell) {
    return static_cast<std::uint32_t>(be64toh(doorbell)) & 0xffffff;
}

}  // namespace

bool nic::look_at_doorbells() const {
    return arms_left_ != 0 || std::any_of(uars_.begin(), uars_.end(),
                                          [](const uar_page& page) { return page.has_users_left() || page.rang(); });
}

bool nic::take_doorbells() {
    bool rang = false;
    for (uar_page& page : uars_) {
        rang |= take_send_doorbells(page);
        rang |= take_arm_doorbell(page);
    }
    const bool more = arms_left_ != 0;
    look_at_some_arms();
    return rang || more;
}

bool nic::take_send_doorbells(uar_page& page) {
    bool rang = false;
    for (const std::uint32_t offset : uar_page::send_offsets) {
        const std::uint64_t doorbell = page.take(offset);
        if (doorbell == 0) continue;
        rang = true;
        look_at_named(page, queue_pair_of(doorbell));
    }
    if (rang) {
        ++state.count.doorbells;
        page.look_at_all();
    }
    const bool more = page.has_users_left();
    for (queue_pair* qp : page.next_users()) look_at(*qp);
    return rang || more;
}

void nic::look_at_named(const uar_page& page, std::uint32_t number) {
    for (const device& one : state.devices) {
        queue_pair* qp = one.find_queue_pair(number);
        if (qp != nullptr && qp->options.uar_page == page.number()) look_at(*qp);
    }
}

void nic::look_at(queue_pair& qp) {
    ++state.count.doorbell_looks;
    requester::on_doorbell(state, qp);
}

bool nic::take_arm_doorbell(uar_page& page) {
    const std::uint64_t doorbell = page.take(uar_page::arm_offset);
    if (doorbell == 0) return false;
    if (const auto named = cqs_.find(completion_queue_of(doorbell)); named != cqs_.end())
        named->second->on_arm_doorbell();
    arms_left_ = cqs_.size();
    return true;
}

void nic::look_at_some_arms() {
    arms_left_ = std::min(arms_left_, cqs_.size());
    for (std::size_t count = 0; arms_left_ != 0 && count < uar_page::users_at_once; ++count, --arms_left_) {
        auto next = cqs_.upper_bound(last_armed_);
        if (next == cqs_.end()) next = cqs_.begin();
        last_armed_ = next->first;
        ++state.count.doorbell_looks;
        next->second->on_arm_doorbell();
    }
}

}  // namespace accel::softnic
