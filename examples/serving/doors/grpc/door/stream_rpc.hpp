// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/door/inference.hpp"
#include "serving/doors/grpc/door/open_stream.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/steady_timer.hpp>
#include <grpcpp/generic/async_generic_service.h>

namespace accel::examples::serving::doors {

/// ModelStreamInfer: a client's requests, several in flight, and their answers, maybe in parts. A part is given back
/// when the client has taken it, so that the model's server waits for slow clients. Answers in one piece come in the
/// order of their requests. gRPC's threads read messages (`OnReadDone`); all that follows runs in the loop.
class stream_rpc final : public ::grpc::ServerGenericBidiReactor,
                         public inference_owner,
                         public open_stream,
                         public std::enable_shared_from_this<stream_rpc> {
  public:
    stream_rpc(grpc_door& door, ::grpc::GenericCallbackServerContext& context);
    /// From here on it keeps itself alive until gRPC is done with it.
    void start();

    void drain() override;
    [[nodiscard]] std::chrono::steady_clock::time_point waits_since() const noexcept override { return waits_since_; }
    [[nodiscard]] bool has_sent() const noexcept override { return coded_; }
    void end_waiting() override;

    void on_response(inference& of, const completion& from) override;
    void on_failure(inference& of, int code, const std::string& sentence) override;

  private:
    /// A message to the client. `part`: of its inference's answer, to be given back when it has been written.
    struct answer {
        ::grpc::ByteBuffer message;
        std::shared_ptr<inference> of;
        std::optional<call_id> part;
    };
    /// A request without its last answer.
    struct open_request {
        std::shared_ptr<inference> of;
        bool in_order = true;
        std::optional<answer> held;  ///< until those before it have theirs
    };

    void OnReadDone(bool ok) override;
    void OnWriteDone(bool ok) override;
    void OnCancel() override;
    void OnDone() override;

    void read_next();
    void on_request(const result<void>& read);
    void on_input_end();
    void add_part(inference& of, const ::grpc::ByteBuffer& message, call_id part);
    void end_request(inference& of, int code, std::optional<::grpc::ByteBuffer> message);
    void send_held();
    void write_next();
    void on_written(bool ok);
    void expect(std::chrono::milliseconds patience, void (stream_rpc::*expired)());
    void on_silence();
    void on_slow_client();
    [[nodiscard]] bool is_busy() const { return !open_.empty() || !answers_.empty() || writing_; }
    void look_further();
    void leave();
    void end(const ::grpc::Status& how);

    grpc_door& door_;
    const std::uint16_t port_;  ///< of the client
    ::grpc::GenericCallbackServerContext& context_;
    const client_call client_;
    std::shared_ptr<stream_rpc> self_;
    boost::asio::steady_timer timer_;  ///< of a write; while there is nothing to do, of the next request

    ::grpc::ByteBuffer message_;
    std::shared_ptr<inference> next_;  ///< whose message is being read
    std::deque<open_request> open_;
    std::deque<answer> answers_;
    answer writing_now_;
    bool coded_ = false;  ///< the first message has said how answers are compressed
    std::chrono::steady_clock::time_point waits_since_ = std::chrono::steady_clock::time_point::max();
    bool reading_ = false;
    bool writing_ = false;
    bool input_ended_ = false;
    bool draining_ = false;
    bool ended_ = false;
};

}  // namespace accel::examples::serving::doors
