// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/exchange_server.hpp"
#include "core/server/stream_pool.hpp"

#include <memory>

namespace accel::core {

/// The part of a request's way that leads over a GPU: a stream for it, its bytes there, the handler, its
/// answer back once the stream has come that far. Belongs to the worker's thread. Nothing allocates, locks or
/// logs, but for the loss of the device.
class gpu_exchanges {
  public:
    gpu_exchanges(exchange_server& server, std::unique_ptr<stream_pool> streams) noexcept
        : server_(server), streams_(std::move(streams)) {}

    /// Its control path is any thread's.
    [[nodiscard]] stream_pool& streams() const noexcept { return *streams_; }
    [[nodiscard]] bool working() const noexcept { return streams_->working() > 0; }
    void serve(exchange_state& request) noexcept;
    /// An answer of the handler's: what it gave the stream runs, or is yet to run. The rest of the way
    /// follows it.
    void send(exchange_state& answered) noexcept;
    /// Answers whose streams have come to their end; requests that waited for a stream, in their place. True:
    /// there were some.
    [[nodiscard]] bool poll() noexcept;

  private:
    void work_on(exchange_state& request, stream_lane& lane) noexcept;
    void brought(stream_lane& lane) noexcept;
    void finish(stream_lane& lane) noexcept;
    [[nodiscard]] bool feed(stream_lane& lane) noexcept;
    void arrive(stream_lane& lane, bool done) noexcept;
    void expire_waiting() noexcept;
    void tell_device_lost() noexcept;

    exchange_server& server_;
    std::unique_ptr<stream_pool> streams_;
    nanoseconds next_expiry_{};  ///< when to look again for requests that have waited too long for a stream
    bool device_loss_logged_ = false;
};

}  // namespace accel::core
