// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/poller.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace accel::core {

/// Takes what it is given, as long as it has room, and tells of what the test has put into its queue.
class scripted_link final : public link {
  public:
    explicit scripted_link(std::shared_ptr<slot_memory> requests, std::shared_ptr<slot_memory> responses)
        : send_(std::move(requests)), receive_(std::move(responses)) {}
    link_description describe() const override { return {}; }
    result<void> attach(const link_grant&, nanoseconds) override { return {}; }
    void activate() override {}
    bool close() noexcept override { return true; }
    status deliver(const outgoing& message) noexcept override {
        if (room == 0) return status::again;
        --room;
        sent.push_back(read_header(send_->header(message.slot)));
        ranges = message.ranges.size();
        response_ranges = message.response_ranges.size();
        return status::ok;
    }
    status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override {
        return deliver({slot, payload, nullptr, {}});
    }
    bool retract(std::uint32_t) noexcept override {
        ++retracted;
        return true;
    }
    void consumed(std::uint32_t) noexcept override { ++consumed_count; }
    slot_memory& send() const noexcept override { return *send_; }
    slot_memory& receive() const noexcept override { return *receive_; }

    bool gathers() const noexcept override { return reaches_memory; }
    bool scatters() const noexcept override { return takes_apart; }
    bool reaches(const region_state& region, bool) noexcept override {
        return reaches_memory && &region != out_of_reach;
    }

    int room = 1000;
    int retracted = 0;
    std::uint64_t consumed_count = 0;
    bool reaches_memory = false;                 ///< of any kind, and gathers
    const region_state* out_of_reach = nullptr;  ///< but for this
    bool takes_apart = false;                    ///< responses
    std::size_t ranges = 0;                      ///< of the last message
    std::size_t response_ranges = 0;             ///< likewise
    std::vector<slot_header> sent;
    const std::shared_ptr<std::deque<link_event>> queue = std::make_shared<std::deque<link_event>>();
    std::deque<link_event>& events = *queue;
    const std::shared_ptr<int> watchers = std::make_shared<int>(0);  ///< times that its poller's descriptor was taken

  private:
    std::shared_ptr<slot_memory> send_;
    std::shared_ptr<slot_memory> receive_;
};

/// Outlives the link.
class scripted_poller final : public poller {
  public:
    explicit scripted_poller(const scripted_link& of) : events_(of.queue), watchers_(of.watchers) {}
    result<std::unique_ptr<link>> open_link(const link_config&) override {
        return error{status::unsupported, 0, "there is one link"};
    }
    std::size_t poll(std::span<link_event> out) noexcept override {
        std::size_t count = 0;
        for (; count < out.size() && !events_->empty(); ++count) {
            out[count] = events_->front();
            events_->pop_front();
        }
        return count;
    }
    int event_fd() const noexcept override {
        ++*watchers_;
        return -1;
    }
    bool arm() noexcept override { return true; }

  private:
    const std::shared_ptr<std::deque<link_event>> events_;
    const std::shared_ptr<int> watchers_;
};

}  // namespace accel::core
