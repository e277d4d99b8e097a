// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/door/grpc_door.hpp"
#include "serving/doors/grpc/messages.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>

namespace accel::examples::serving::doors {

/// A grpc.health.v1.Health/Watch: tells how a service is, at once and whenever that changes. Several changes while one
/// is being written are one. gRPC's threads read the question; all else runs in the loop.
class health_watch final : public ::grpc::ServerGenericBidiReactor, public std::enable_shared_from_this<health_watch> {
  public:
    health_watch(grpc_door& door, ::grpc::GenericCallbackServerContext& context)
        : door_(door), port_(port_of(context.peer())), context_(context) {}
    /// From here on it keeps itself alive until gRPC is done with it.
    void start();
    /// The door looks at all of them now and then: tells a change, and ends what has waited for the client too long.
    void look(std::chrono::steady_clock::time_point now);
    /// Tells that nothing is served any more, and ends.
    void drain();

  private:
    void OnReadDone(bool ok) override;
    void OnWriteDone(bool ok) override;
    void OnCancel() override;
    void OnDone() override;

    void begin(const result<wire::named_message>& read);
    void on_written(bool ok);
    void tell();
    void end(::grpc::StatusCode code, const std::string& sentence);

    grpc_door& door_;
    const std::uint16_t port_;  ///< of the client
    ::grpc::GenericCallbackServerContext& context_;
    std::shared_ptr<health_watch> self_;
    std::chrono::steady_clock::time_point expiry_;  ///< of the question, and then of each write
    ::grpc::ByteBuffer message_;
    ::grpc::ByteBuffer answer_;
    std::optional<std::string> service_;  ///< nothing: its name has not arrived
    std::optional<wire::health_state> told_;
    bool writing_ = false;
    bool draining_ = false;
    std::optional<::grpc::Status> end_;  ///< of one that has ended, maybe while it writes
};

}  // namespace accel::examples::serving::doors
