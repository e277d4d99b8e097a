// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/door/grpc_door.hpp"
#include "serving/doors/grpc/door/inference.hpp"
#include "serving/doors/grpc/messages.hpp"
#include "serving/doors/shared_memory/region_table.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

namespace accel::examples::serving::doors {

enum class method : std::uint8_t {
    server_live,
    server_ready,
    model_ready,
    server_metadata,
    model_metadata,
    model_configuration,
    model_statistics,
    infer,
    health,
    system_status,
    system_register,
    system_unregister,
    cuda_status,
    cuda_register,
    cuda_unregister,
};

/// "/inference.GRPCInferenceService/ModelInfer" and the others; nothing: the door has no such method.
[[nodiscard]] std::optional<method> find_method(std::string_view path) noexcept;

/// One call of a client: a message, and an answer or a status. gRPC's threads read its message and find out what it is
/// (`OnReadDone`); all that follows runs in the loop.
class rpc final : public ::grpc::ServerGenericBidiReactor,
                  public inference_owner,
                  public std::enable_shared_from_this<rpc> {
  public:
    /// `context` lives until `OnDone`.
    rpc(grpc_door& door, method what, ::grpc::GenericCallbackServerContext& context);
    /// From here on it keeps itself alive until gRPC is done with it.
    void start();

    /// In the loop: whether the client has been waited for too long, and what follows from that.
    [[nodiscard]] bool is_late(std::chrono::steady_clock::time_point now) const noexcept { return now >= expiry_; }
    void expire();
    /// In the loop: its message is under way since before then.
    [[nodiscard]] bool is_slower_than(std::chrono::steady_clock::time_point then) noexcept {
        return stage_ == stage::message && counted().began() < then;
    }
    [[nodiscard]] std::chrono::steady_clock::time_point began() noexcept { return counted().began(); }
    /// Ends a call whose client does not read. Only before `OnDone`.
    void break_off() { context_.TryCancel(); }

    void on_response(inference& of, const completion& from) override;
    void on_failure(inference& of, int code, const std::string& sentence) override;

  private:
    /// What the call waits for. While it is `message`, a thread of gRPC may write what `OnReadDone` finds.
    enum class stage : std::uint8_t { message, nothing, ended };
    using clock = std::chrono::steady_clock;

    void OnReadDone(bool ok) override;
    void OnCancel() override;
    void OnDone() override;

    [[nodiscard]] result<void> read_message(bool ok);
    [[nodiscard]] result<void> read_names();
    [[nodiscard]] result<void> read_region();

    void begin(const result<void>& read);
    void answer_question();
    [[nodiscard]] bool is_of_regions() const { return what_ >= method::system_status; }
    void answer_regions();
    [[nodiscard]] std::string document(wire::health_state health);

    [[nodiscard]] counted_request& counted() { return inference_ ? inference_->counted() : question_; }
    void expect_within(std::chrono::milliseconds patience);
    void cancelled();

    void refuse(const error& why) { finish(wire::grpc_status_of(why.code), why.message); }
    void finish(int code, const std::string& sentence);
    void reply(::grpc::ByteBuffer message);
    void end(int code);

    grpc_door& door_;
    const std::uint16_t port_;  ///< of the client
    const method what_;
    ::grpc::GenericCallbackServerContext& context_;
    std::shared_ptr<rpc> self_;
    /// Written before the call is the door's, and then in the loop alone.
    clock::time_point expiry_ = clock::time_point::max();

    ::grpc::ByteBuffer message_;
    wire::named_message named_;
    shared_memory::description region_;     ///< of a call for shared memory
    std::shared_ptr<inference> inference_;  ///< null: it is a question, or for shared memory
    served_model* model_ = nullptr;
    counted_request question_;           ///< how it is counted, unless it is an inference
    std::atomic<bool> answered_{false};  ///< the loop counts it no more

    stage stage_ = stage::message;
    ::grpc::ByteBuffer response_;
};

}  // namespace accel::examples::serving::doors
