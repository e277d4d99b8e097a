// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/queue_memory.hpp"
#include "model/event_pipe.hpp"
#include "model/event_subscribers.hpp"
#include "wqe/completion.hpp"

#include <cstdint>
#include <memory>

namespace accel::softnic {

/// What the driver says when it creates a CQ. Addresses are the program's.
struct completion_queue_options {
    queue_memory buffer;
    queue_memory doorbell_record;    ///< two big-endian words: consumer index, arm
    std::uint32_t entries = 0;       ///< power of two
    std::uint32_t entry_bytes = 64;  ///< 64 or 128
    bool collapsed = false;          ///< all elements go to the first place
    bool ignore_overrun = false;     ///< elements that nobody has read are overwritten
    std::uint64_t user_handle = 0;
    std::shared_ptr<event_pipe> channel;             ///< may be null
    std::shared_ptr<event_pipe> asynchronous;        ///< where CQ errors go
    std::shared_ptr<event_subscribers> subscribers;  ///< of a queue made by DevX
};

class completion_queue {
  public:
    enum class outcome : std::uint8_t { written, overrun, unreachable };

    completion_queue(std::uint32_t number, completion_queue_options options);

    [[nodiscard]] std::uint32_t number() const { return number_; }
    [[nodiscard]] std::uint64_t user_handle() const { return options_.user_handle; }
    [[nodiscard]] const completion_queue_options& options() const { return options_; }
    [[nodiscard]] bool failed() const { return failed_; }
    /// Counters of 24 bits. The consumer's is as the device last read it.
    [[nodiscard]] std::uint32_t produced() const { return produced_; }
    [[nodiscard]] std::uint32_t consumed() const { return consumed_; }

    /// Writes one CQE, and notifies if the CQ is armed for it. An overrun puts the CQ into error: it takes no
    /// more.
    outcome put(const completion& what, std::uint8_t kind, std::uint64_t timestamp);
    /// The error state of an overrun, with its asynchronous event.
    void fail();

    /// The arm doorbell rang somewhere: read the record again.
    void on_arm_doorbell();
    /// Marks the end of the old buffer with a RESIZE CQE, and goes on in the new one. False if the unread
    /// completions do not fit.
    [[nodiscard]] bool resize(queue_memory buffer, std::uint32_t entries);

    /// For DESTROY_CQ: events that the program has read (or will have to acknowledge).
    [[nodiscard]] unsigned completion_events_reported();
    [[nodiscard]] unsigned asynchronous_events_reported();
    /// For close() of a channel that CQs still use.
    void forget_channel(const event_pipe* channel);

  private:
    static constexpr std::uint32_t index_mask = 0xffffff;

    [[nodiscard]] bool can_notify() const { return options_.channel || options_.subscribers; }
    [[nodiscard]] bool has_room();
    [[nodiscard]] bool write(const completion& what, std::uint8_t kind, std::uint64_t timestamp);
    void notify_if_due();

    std::uint32_t number_;
    completion_queue_options options_;
    std::uint32_t produced_ = 0;
    std::uint32_t consumed_ = 0;  ///< as last read from the doorbell record
    bool failed_ = false;
    std::uint32_t armed_record_;       ///< the arm word as last rung; all ones: never armed
    std::uint32_t answered_record_;    ///< the arm word that the last event answered
    std::uint32_t notified_ = 0;       ///< everything before this index has been notified
    std::uint32_t solicited_end_ = 0;  ///< index behind the last solicited (or error) completion
    unsigned events_ = 0;
    unsigned failures_ = 0;
};

}  // namespace accel::softnic
