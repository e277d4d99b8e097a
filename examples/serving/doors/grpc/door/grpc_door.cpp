// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/grpc_door.hpp"

#include "serving/doors/grpc/door/rpc.hpp"
#include "serving/doors/grpc/door/stream_rpc.hpp"
#include "serving/doors/oip/body_plan.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

namespace accel::examples::serving::doors {
namespace {

constexpr std::size_t message_frame_bytes = 64 << 10;  // names, shapes, parameters
constexpr std::size_t longest_number_bytes = 10;       // of a varint
constexpr int streams_of_a_connection = 256;
/// How exact the deadlines of clients are.
constexpr std::chrono::milliseconds tick_time{100};
constexpr std::string_view stream_infer = "/inference.GRPCInferenceService/ModelStreamInfer";

/// Answers without a look at the call's message.
class refusing_call final : public ::grpc::ServerGenericBidiReactor {
  public:
    refusing_call(::grpc::StatusCode code, const char* sentence) { Finish({code, sentence}); }
    void OnDone() override { delete this; }
};

std::size_t message_bytes(const served_model& model, const door_settings& settings) {
    const auto& inputs = model.description.inputs;
    std::size_t numbers = 0;
    for (const auto& [name, what, text] : inputs) numbers += size_bytes(what) * 8 / what.type.bits;
    const std::size_t typed = std::min(settings.max_json_bytes, numbers * longest_number_bytes);
    return message_frame_bytes + std::max<std::size_t>(binary_input_bytes(model.description), typed);
}

}  // namespace

std::size_t largest_message(const model_table& models, const door_settings& settings) {
    std::size_t out = message_frame_bytes;
    for (const auto& [name, each] : models) out = std::max(out, message_bytes(each, settings));
    return out;
}

result<std::unique_ptr<grpc_door>> grpc_door::open(boost::asio::io_context& loop, const std::string& address,
                                                   model_table& models, const door_settings& settings) {
    auto out = std::make_unique<grpc_door>(loop, models, settings);
    if (out->listen(address)) return out;
    return error{.code = status::system_error, .native = 0, .message = "cannot listen at " + address + " for gRPC"};
}

grpc_door::grpc_door(boost::asio::io_context& loop, model_table& models, const door_settings& settings)
    : loop_(loop),
      work_(loop.get_executor()),
      models_(models),
      settings_(settings),
      message_limit_(largest_message(models, settings)),
      timer_(loop) {
    tick();
}

grpc_door::~grpc_door() {
    if (stopper_.joinable()) stopper_.join();
}

bool grpc_door::listen(const std::string& address) {
    ::grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, ::grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(this);
    builder.SetMaxReceiveMessageSize(static_cast<int>(message_limit_));
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);  // coded_message.hpp says why
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, streams_of_a_connection);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, static_cast<int>(settings_.idle_timeout.count()));
    server_ = builder.BuildAndStart();
    endpoint_ = address.substr(0, address.rfind(':') + 1) + std::to_string(port);
    return server_ != nullptr && port > 0;
}

void grpc_door::call_began(rpc& one) {
    const std::lock_guard lock{open_lock_};
    open_.insert(&one);
}

void grpc_door::call_ended(rpc& one) {
    const std::lock_guard lock{open_lock_};
    open_.erase(&one);
    --calls_;
}

void grpc_door::break_off(rpc& one) {
    const std::lock_guard lock{open_lock_};
    if (open_.contains(&one)) one.break_off();
}

void grpc_door::tick() {
    timer_.expires_after(tick_time);
    timer_.async_wait([this](const boost::system::error_code& failed) {
        if (failed) return;
        expire();
        tick();
    });
}

void grpc_door::expire() {
    const auto now = std::chrono::steady_clock::now();
    std::vector<std::shared_ptr<rpc>> late;
    {
        const std::lock_guard lock{open_lock_};
        for (rpc* each : open_)
            if (each->is_late(now)) late.push_back(each->shared_from_this());
    }
    for (const auto& each : late) each->expire();
}

/// The loop goes on meanwhile: calls need it to end.
void grpc_door::stop() {
    if (stopper_.joinable()) return;
    for (const auto& [key, each] : std::exchange(streams_, {}))
        if (const auto one = each.lock()) one->drain();
    stopper_ = std::thread([this] {
        server_->Shutdown(std::chrono::system_clock::now() + settings_.drain_timeout);
        loop_.stop();
    });
}

void grpc_door::add_stream(const std::shared_ptr<stream_rpc>& one) {
    if (stopper_.joinable()) return one->drain();
    streams_.emplace(one.get(), one);
}

::grpc::ServerGenericBidiReactor* grpc_door::CreateReactor(::grpc::GenericCallbackServerContext* context) {
    const auto what = find_method(context->method());
    const bool stream = context->method() == stream_infer;
    if (!what && !stream) return new refusing_call(::grpc::StatusCode::UNIMPLEMENTED, "this door has no such method");
    if (++calls_ > settings_.max_connections) {
        --calls_;
        return new refusing_call(::grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls are open: try again");
    }
    if (stream) {
        const auto made = std::make_shared<stream_rpc>(*this, *context);
        made->start();
        return made.get();
    }
    const auto made = std::make_shared<rpc>(*this, *what, *context);
    made->start();
    return made.get();
}

}  // namespace accel::examples::serving::doors
