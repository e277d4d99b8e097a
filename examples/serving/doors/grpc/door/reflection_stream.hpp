// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/counting/counted_request.hpp"
#include "serving/doors/grpc/door/grpc_door.hpp"
#include "serving/doors/grpc/door/open_stream.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/steady_timer.hpp>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>

namespace accel::examples::serving::doors {

/// ServerReflectionInfo of grpc.reflection.v1 and v1alpha.
[[nodiscard]] bool is_reflection(std::string_view path) noexcept;

/// A ServerReflectionInfo: one request and its answer at a time. gRPC's threads read requests and make the answers
/// (`OnReadDone`); all else runs in the loop.
class reflection_stream final : public ::grpc::ServerGenericBidiReactor,
                                public open_stream,
                                public std::enable_shared_from_this<reflection_stream> {
  public:
    reflection_stream(grpc_door& door, ::grpc::GenericCallbackServerContext& context)
        : door_(door), port_(port_of(context.peer())), context_(context), timer_(door.loop()) {}
    /// From here on it keeps itself alive until gRPC is done with it.
    void start();

    void drain() override;
    [[nodiscard]] std::chrono::steady_clock::time_point waits_since() const noexcept override { return waits_since_; }
    [[nodiscard]] bool has_sent() const noexcept override { return has_sent_; }
    void end_waiting() override;

  private:
    void OnReadDone(bool ok) override;
    void OnWriteDone(bool ok) override;
    void OnCancel() override;
    void OnDone() override;

    [[nodiscard]] result<std::string> answer_request() const;
    void read_next();
    void on_request(const result<std::string>& answer);
    void on_written(bool ok);
    void expect(std::chrono::milliseconds patience, void (reflection_stream::*expired)());
    void on_silence();
    void on_slow_client();
    void leave();
    void end(::grpc::StatusCode code, const std::string& sentence = {});

    grpc_door& door_;
    const std::uint16_t port_;  ///< of the client
    ::grpc::GenericCallbackServerContext& context_;
    std::shared_ptr<reflection_stream> self_;
    boost::asio::steady_timer timer_;  ///< of a write, else of the next request
    ::grpc::ByteBuffer message_;
    ::grpc::ByteBuffer answer_;
    counted_request counted_;
    std::chrono::steady_clock::time_point waits_since_ = std::chrono::steady_clock::time_point::max();
    bool has_sent_ = false;
    bool writing_ = false;
    bool draining_ = false;
    bool ended_ = false;
};

}  // namespace accel::examples::serving::doors
