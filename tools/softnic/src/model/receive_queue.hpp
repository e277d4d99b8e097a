// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/queue_memory.hpp"
#include "model/event_pipe.hpp"
#include "model/event_subscribers.hpp"
#include "wqe/send_request.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace accel::softnic {

/// One receive WQE, taken off its queue. Reused, as a send_request is.
struct receive_request {
    std::uint16_t index = 0;
    std::vector<segment> segments;
};

enum class take_status : std::uint8_t { taken, empty, unreachable, overflow };

/// Where receive WQEs come from: a queue pair's own ring, or an SRQ. Addresses are the program's.
struct receive_queue_options {
    queue_memory buffer;
    queue_memory doorbell_record;    ///< one big-endian word that counts posted WQEs
    std::uint32_t entries = 0;       ///< power of two, or 0 for none
    std::uint32_t stride_shift = 0;  ///< log2 of bytes a WQE
    bool cyclic = false;             ///< of a shared one: its WQEs are taken in turn, whatever their links say
};

/// The receive ring of one queue pair.
class receive_ring {
  public:
    explicit receive_ring(receive_queue_options options) : options_(std::move(options)) {}

    [[nodiscard]] const receive_queue_options& options() const { return options_; }
    /// Reads the doorbell record; there is no doorbell for receives.
    [[nodiscard]] take_status take(receive_request& out);
    void reset() { consumed_ = 0; }

  private:
    receive_queue_options options_;
    std::uint16_t consumed_ = 0;
};

/// A shared receive queue: a linked list through the WQEs' first segments, or a ring of WQEs with such a segment.
class shared_receive_queue {
  public:
    struct identity {
        std::uint32_t number = 0;
        std::uint32_t pd = 0;
        std::uint64_t user_handle = 0;
        std::uint32_t max_segments = 0;
        std::shared_ptr<event_pipe> asynchronous;
        std::shared_ptr<event_subscribers> subscribers = nullptr;  ///< of a queue made by DevX
    };

    shared_receive_queue(identity who, receive_queue_options options)
        : identity_(std::move(who)), options_(std::move(options)) {}

    [[nodiscard]] const identity& who() const { return identity_; }
    [[nodiscard]] const receive_queue_options& options() const { return options_; }
    [[nodiscard]] take_status take(receive_request& out);

    /// One event when fewer than `limit` WQEs are left; then the limit is off.
    void arm_limit(std::uint32_t limit);
    [[nodiscard]] std::uint32_t limit() const { return limit_; }
    [[nodiscard]] unsigned events_reported();

  private:
    [[nodiscard]] take_status take_next(receive_request& out);
    void check_limit(std::uint32_t left);
    void report_failure();

    identity identity_;
    receive_queue_options options_;
    std::uint16_t head_ = 0;      ///< index of the next WQE in the list
    std::uint16_t consumed_ = 0;  ///< how many were taken, to compare with the doorbell record
    std::uint32_t limit_ = 0;
    bool failed_ = false;
    unsigned events_ = 0;
};

}  // namespace accel::softnic
