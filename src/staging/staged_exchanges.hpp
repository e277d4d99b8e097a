// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging/stream_pool.hpp"

#include <memory>

namespace accel::core {

class worker;

/// A request's way over a GPU: takes a stream, copies the bytes there, calls the handler, and copies the
/// answer back once the stream has reached it. Belongs to the worker's thread. Allocates, locks and logs
/// nothing, except when the device is lost.
class staged_exchanges {
  public:
    staged_exchanges(worker& serving, std::unique_ptr<stream_pool> streams) noexcept
        : worker_(serving), streams_(std::move(streams)) {}

    /// Its control path may run on any thread.
    [[nodiscard]] stream_pool& streams() const noexcept { return *streams_; }
    [[nodiscard]] bool working() const noexcept { return streams_->working() > 0; }
    void serve(exchange_state& request) noexcept;
    /// The handler has answered: its work in the stream runs, or is still to run. The answer follows it.
    void send(exchange_state& answered) noexcept;
    /// Sends answers whose streams have finished, and starts requests that waited for a stream. True: there were some.
    [[nodiscard]] bool poll() noexcept;

  private:
    void work_on(exchange_state& request, stream_lane& lane) noexcept;
    void brought(stream_lane& lane) noexcept;
    void finish(stream_lane& lane) noexcept;
    [[nodiscard]] bool feed(stream_lane& lane) noexcept;
    void arrive(stream_lane& lane, bool done) noexcept;
    void expire_waiting() noexcept;
    void tell_device_lost() noexcept;

    worker& worker_;
    std::unique_ptr<stream_pool> streams_;
    nanoseconds next_expiry_{};  ///< when to look again for requests that have waited too long for a stream
    bool device_loss_logged_ = false;
};

}  // namespace accel::core
