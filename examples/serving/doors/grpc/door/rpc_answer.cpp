// SPDX-License-Identifier: Apache-2.0
// A call's answer. It is copied, so that no client holds a slot, however slowly it reads.
#include "serving/doors/grpc/door/health.hpp"
#include "serving/doors/grpc/door/response.hpp"
#include "serving/doors/grpc/door/rpc.hpp"
#include "serving/doors/oip/checks.hpp"

#include <accel_transport/config.hpp>

#include <utility>

namespace accel::examples::serving::doors {
namespace {

constexpr std::size_t longest_sentence = 1024;  // clients refuse long headers

std::string door_version() {
    return std::to_string(ACCEL_VERSION_MAJOR) + '.' + std::to_string(ACCEL_VERSION_MINOR) + '.' +
           std::to_string(ACCEL_VERSION_PATCH);
}

}  // namespace

void rpc::answer_question() {
    const auto health = health_of(door_.models(), what_ == method::server_ready ? "" : named_.name, door_.leaving());
    if (what_ == method::health && health == wire::health_state::unknown_service)
        return refuse(oip::no_model(named_.name));
    const ::grpc::Slice answer{document(health)};
    reply(::grpc::ByteBuffer{&answer, 1});
}

std::string rpc::document(wire::health_state health) {
    switch (what_) {
        case method::server_live:
            return wire::yes_or_no(true);
        case method::server_ready:
        case method::model_ready:
            return wire::yes_or_no(health == wire::health_state::serving);
        case method::health:
            return wire::health(health);
        case method::server_metadata:
            return wire::server_metadata_message(door_version(), shared_memory::allowed_by(door_.regions().get()));
        case method::model_metadata:
            return wire::model_metadata_message(model_->description);
        case method::model_configuration:
            return wire::model_configuration_message(model_->description);
        default:
            break;
    }
    std::vector<oip::counted_model> counted;
    for (const auto& [name, each] : door_.models())
        if (model_ == nullptr || model_ == &each) counted.push_back({&each.description, &each.counts});
    return wire::model_statistics_message(counted);
}

void rpc::on_response(inference& of, const completion& from) {
    auto message = response_message(of, from);
    const auto add = [this](std::string_view key, std::string_view value) {
        context_.AddInitialMetadata(std::string{key}, std::string{value});
    };
    if (message)
        if (auto passed = pass_back(from, door_.settings().passed_headers, add); !passed) message = passed.error();
    of.release(from.id);
    if (!message) return on_failure(of, wire::grpc_status_of(message.code()), message.error().message);
    count_success(of.model()->counts, of.age(), from.timeline);
    reply(std::move(message).value());
}

void rpc::on_failure(inference& /*of*/, int code, const std::string& sentence) {
    finish(code, sentence);
}

void rpc::reply(::grpc::ByteBuffer message) {
    if (inference_) compress_answers(context_, inference_->coded());
    response_.Swap(&message);
    counted().sent(response_.Length());
    end(::grpc::StatusCode::OK);
    StartWriteAndFinish(&response_, {}, ::grpc::Status::OK);
}

void rpc::finish(int code, const std::string& sentence) {
    const bool of_model = inference_ && stage_ != stage::message && inference_->model() != nullptr;
    if (of_model) count_failure(inference_->model()->counts, inference_->age());
    ++door_.counts().errors;
    end(code);
    Finish({static_cast<::grpc::StatusCode>(code), sentence.substr(0, longest_sentence)});
}

void rpc::end(int code) {
    stage_ = stage::ended;
    counted().answered(code);
    counted().leave();  // a client may ask again before gRPC says that it has its answer
    ++door_.counts().requests;
    expect_within(door_.settings().write_timeout);
    if (inference_) inference_->leave();
    answered_.store(true, std::memory_order_release);
}

}  // namespace accel::examples::serving::doors
