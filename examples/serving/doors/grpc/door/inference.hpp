// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/counting/counted_request.hpp"
#include "serving/doors/grpc/door/coded_message.hpp"
#include "serving/doors/grpc/door/grpc_door.hpp"
#include "serving/doors/grpc/infer_inputs.hpp"
#include "serving/doors/servers/backend.hpp"
#include "serving/doors/servers/passed_metadata.hpp"
#include "serving/doors/servers/returned_request.hpp"
#include "serving/doors/servers/served_model.hpp"
#include "serving/doors/shared_memory/call_regions.hpp"

#include <accel_transport/trace.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/steady_timer.hpp>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

namespace accel::examples::serving::doors {

class inference;

/// Of a client's call.
struct client_call {
    std::chrono::system_clock::time_point deadline;
    std::uint64_t peer = 0;  ///< the client's connection
    trace_context trace{};
    std::string baggage;
    /// An error: the call ends with it, before its message is read.
    result<shared_metadata> metadata{shared_metadata{}};
};
/// Tells the client which trace its call was in, and with what baggage, before its first answer.
void say_trace(::grpc::GenericCallbackServerContext& context, const client_call& of);
/// `passed`: names of the client's metadata that is metadata of its calls.
[[nodiscard]] client_call client_of(const ::grpc::GenericCallbackServerContext& context,
                                    const std::vector<std::string>& passed);

/// Whoever asks for inferences. Hears of each in the loop's thread, until it has ended or is left.
class inference_owner {
  public:
    inference_owner() = default;
    inference_owner(const inference_owner&) = delete;
    inference_owner& operator=(const inference_owner&) = delete;
    virtual ~inference_owner() = default;
    /// An answer of the model's server, which has to be given back by `inference::release`. The inference has ended,
    /// unless it says `more`.
    virtual void on_response(inference& of, const completion& from) = 0;
    /// The inference has ended without an answer: a code of gRPC, and a sentence.
    virtual void on_failure(inference& of, int code, const std::string& sentence) = 0;
};

/// One ModelInferRequest: reads it, waits for a slot of its model's channel, and calls. Belongs to the loop's thread,
/// but for `read`.
class inference final : public caller, public std::enable_shared_from_this<inference> {
  public:
    inference(grpc_door& door, client_call of, std::shared_ptr<inference_owner> owner);

    /// On any thread, once, before the rest: finds out what the message asks for.
    [[nodiscard]] result<void> read(const ::grpc::ByteBuffer& message);
    /// `parts`: how many unread ones the answer may have; 0: it comes in one piece.
    void begin(std::uint32_t parts);
    /// Nobody waits for it any more, and its owner hears nothing of it.
    void leave();
    void release(call_id answer) { slot_.on->release(answer); }
    /// Of an answer, until the next call.
    [[nodiscard]] std::span<const tensor> tensors(const completion& from) { return slot_.on->tensors(from); }

    [[nodiscard]] served_model* model() const { return model_; }           ///< null: none was found
    [[nodiscard]] coding::content_coding coded() const { return coded_; }  ///< of its message
    [[nodiscard]] std::string_view id() const { return id_; }
    [[nodiscard]] const client_call& client() const { return client_; }
    [[nodiscard]] const wire::wire_request& asked() const { return request_; }
    [[nodiscard]] shared_memory::call_regions& regions() { return regions_; }
    /// How its owner counts it.
    [[nodiscard]] counted_request& counted() { return counted_; }
    [[nodiscard]] std::chrono::nanoseconds age() const { return clock::now() - began_; }

    void on_slot(status got, const call_slot& slot) override;
    void on_answer(door_channel& on, const completion& from) override;
    [[nodiscard]] std::uint64_t sticky_key() const override { return client_.peer; }
    [[nodiscard]] std::span<const metadata_entry> metadata() const override { return entries_of(*client_.metadata); }

  private:
    enum class stage : std::uint8_t { nothing, slot, call, ended };
    using clock = std::chrono::steady_clock;

    [[nodiscard]] result<void> open_regions();
    void submit();
    /// At another server, if the request was taken back from one.
    void ask_slot();
    void take(const completion& from);
    void expect_slot(std::chrono::nanoseconds patience);
    void expire();
    void fail(const error& why);
    void fail(int code, const std::string& sentence);
    std::shared_ptr<inference_owner> end();
    void forget_message();

    grpc_door& door_;
    const client_call client_;
    const clock::time_point began_ = clock::now();
    counted_request counted_;
    std::shared_ptr<inference_owner> owner_;
    boost::asio::steady_timer timer_;

    coding::content_coding coded_ = coding::content_coding::identity;
    memory_share inflated_;            ///< before what it is for
    std::vector<::grpc::Slice> kept_;  ///< of the message
    std::vector<wire::slice> places_;  ///< where they lie
    std::string id_;
    wire::wire_request request_;
    served_model* model_ = nullptr;

    std::uint32_t parts_ = 0;
    stage stage_ = stage::nothing;
    call_slot slot_;
    returned_request returned_;
    bool has_part_ = false;  ///< the model's answer has begun
    shared_memory::call_regions regions_;
};

/// Of the door's metrics, for a message that was `read`.
[[nodiscard]] std::size_t row_of(const served_model* model, status read) noexcept;

/// Null: there is no such model.
[[nodiscard]] served_model* find_model(model_table& in, std::string_view name);

}  // namespace accel::examples::serving::doors
