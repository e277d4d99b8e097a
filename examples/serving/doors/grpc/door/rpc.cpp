// SPDX-License-Identifier: Apache-2.0
// A call and its message. Its answers are in rpc_answer.cpp.
#include "serving/doors/grpc/door/rpc.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/servers/body_pace.hpp"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

namespace accel::examples::serving::doors {

namespace asio = boost::asio;

namespace {

struct named_method {
    std::string_view path;
    method what;
};

constexpr named_method methods[] = {
    {"/inference.GRPCInferenceService/ServerLive", method::server_live},
    {"/inference.GRPCInferenceService/ServerReady", method::server_ready},
    {"/inference.GRPCInferenceService/ModelReady", method::model_ready},
    {"/inference.GRPCInferenceService/ServerMetadata", method::server_metadata},
    {"/inference.GRPCInferenceService/ModelMetadata", method::model_metadata},
    {"/inference.GRPCInferenceService/ModelConfig", method::model_configuration},
    {"/inference.GRPCInferenceService/ModelStatistics", method::model_statistics},
    {"/inference.GRPCInferenceService/ModelInfer", method::infer},
    {"/grpc.health.v1.Health/Check", method::health},
    {"/inference.GRPCInferenceService/SystemSharedMemoryStatus", method::system_status},
    {"/inference.GRPCInferenceService/SystemSharedMemoryRegister", method::system_register},
    {"/inference.GRPCInferenceService/SystemSharedMemoryUnregister", method::system_unregister},
    {"/inference.GRPCInferenceService/CudaSharedMemoryStatus", method::cuda_status},
    {"/inference.GRPCInferenceService/CudaSharedMemoryRegister", method::cuda_register},
    {"/inference.GRPCInferenceService/CudaSharedMemoryUnregister", method::cuda_unregister},
};

}  // namespace

std::optional<method> find_method(std::string_view path) noexcept {
    const auto* found = std::ranges::find(methods, path, &named_method::path);
    if (found == std::end(methods)) return std::nullopt;
    return found->what;
}

rpc::rpc(grpc_door& door, method what, ::grpc::GenericCallbackServerContext& context)
    : door_(door), port_(port_of(context.peer())), what_(what), context_(context) {}

void rpc::start() {
    self_ = shared_from_this();
    door_.calls().begin(port_);
    if (what_ == method::infer)
        inference_ = std::make_shared<inference>(door_, client_of(context_, door_.settings().passed_headers), self_);
    if (inference_) say_trace(context_, inference_->client());
    counted().begin(door_.metrics());
    expect_within(body_patience(door_.message_limit(), door_.settings()));
    door_.call_began(*this);
    if (!inference_ || inference_->client().metadata) return StartRead(&message_);
    asio::post(door_.loop(), [self = self_] { self->begin(self->inference_->client().metadata.error()); });
}

void rpc::OnReadDone(bool ok) {
    auto read = read_message(ok);
    asio::post(door_.loop(), [self = shared_from_this(), found = std::move(read)] { self->begin(found); });
}

void rpc::OnCancel() {
    asio::post(door_.loop(), [self = shared_from_this()] { self->cancelled(); });
}

void rpc::OnDone() {
    if (answered_.load(std::memory_order_acquire)) counted().end();
    door_.calls().end(port_);
    door_.call_ended(*this);
    self_.reset();
}

result<void> rpc::read_message(bool ok) {
    if (!ok) return oip::refusal(status::invalid_argument, "the message is missing, or did not arrive completely");
    if (!inference_ && message_.Length() > longest_question)
        return oip::refusal(status::message_too_large, "the message is longer than this method needs");
    if (is_of_regions()) return read_region();
    return inference_ ? inference_->read(message_) : read_names();
}

result<void> rpc::read_names() {
    auto read = doors::read_names(message_, door_.message_limit(), door_.metrics().memory);
    if (!read) return read.error();
    named_ = std::move(read).value();
    const bool of_model = what_ == method::model_ready || what_ == method::model_metadata ||
                          what_ == method::model_configuration ||
                          (what_ == method::model_statistics && !named_.name.empty());
    if (!of_model) return {};
    model_ = find_model(door_.models(), named_.name);
    if (model_ == nullptr) return oip::no_model(named_.name);
    return oip::check_version(named_.name, named_.version);
}

void rpc::begin(const result<void>& read) {
    if (stage_ != stage::message) return;
    stage_ = stage::nothing;
    expiry_ = clock::time_point::max();
    counted().set_model(row_of(inference_ ? inference_->model() : model_, read.code()));
    counted().received(message_.Length());
    message_.Clear();
    if (!read) return refuse(read.error());
    if (inference_ && counted().of_its_model() > door_.settings().max_model_requests)
        return refuse(oip::refusal(status::overloaded, "too many requests for this model are open"));
    if (inference_ && inference_->model()->description.decoupled)
        return refuse(oip::answers_in_parts(inference_->model()->description.name));
    if (inference_) return inference_->begin(0);
    if (is_of_regions()) return answer_regions();
    answer_question();
}

void rpc::expect_within(std::chrono::milliseconds patience) {
    expiry_ = clock::now() + patience;
}

void rpc::expire() {
    expiry_ = clock::time_point::max();
    if (stage_ == stage::ended) return door_.break_off(*this);
    if (stage_ == stage::message) refuse(oip::refusal(status::timed_out, "the message did not arrive in time"));
}

/// A client that leaves takes its call with it.
void rpc::cancelled() {
    if (stage_ == stage::ended) return;
    ++door_.counts().cancelled;
    counted().cancelled();
    finish(::grpc::StatusCode::CANCELLED, "the client has disconnected");
}

}  // namespace accel::examples::serving::doors
