// SPDX-License-Identifier: Apache-2.0
// A call's answer. It is copied, so that no client holds a slot, however slowly it reads.
#include "serving/doors/grpc/door/rpc.hpp"
#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/infer_answer.hpp"

#include <accel_transport/config.hpp>

#include <algorithm>
#include <utility>

namespace accel::examples::serving::doors {
namespace {

constexpr std::size_t longest_sentence = 1024;  // clients refuse long headers

std::string door_version() {
    return std::to_string(ACCEL_VERSION_MAJOR) + '.' + std::to_string(ACCEL_VERSION_MINOR) + '.' +
           std::to_string(ACCEL_VERSION_PATCH);
}

std::string backend_failure(const completion& from) {
    std::string out = "the model's server answered " + std::string{to_string(from.status)};
    const auto text = from.response;
    if (!text.empty()) out += ": " + std::string(reinterpret_cast<const char*>(text.data()), text.size());
    return out;
}

std::vector<::grpc::Slice> slices_of(const wire::infer_response& from) {
    std::vector<::grpc::Slice> out;
    for (std::size_t i = 0; i < from.heads.size(); ++i) {
        out.emplace_back(from.heads[i]);
        out.emplace_back(from.tensors[i].data(), from.tensors[i].size());
    }
    return out;
}

}  // namespace

bool rpc::all_connected() const {
    return std::ranges::all_of(door_.models(), [](const auto& each) { return each.second.to->connected(); });
}

void rpc::answer_question() {
    const bool health_of_model =
        what_ == method::health && !named_.name.empty() && named_.name != "inference.GRPCInferenceService";
    if (health_of_model)
        if (auto found = find_model(named_.name); !found) return refuse(found.error());
    const ::grpc::Slice answer{document()};
    reply({&answer, 1});
}

std::string rpc::document() {
    const bool ready = model_ == nullptr ? all_connected() : model_->to->connected();
    switch (what_) {
        case method::server_live:
            return wire::yes_or_no(true);
        case method::server_ready:
        case method::model_ready:
            return wire::yes_or_no(ready);
        case method::health:
            return wire::health(ready);
        case method::server_metadata:
            return wire::server_metadata_message(door_version());
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

void rpc::on_answer(door_channel& on, const completion& from) {
    slot_ = call_slot{&on, from.id, {}};
    if (stage_ == stage::call) answer(on, from);
    abandon();
}

void rpc::answer(door_channel& on, const completion& from) {
    if (from.status != status::ok) return finish(wire::grpc_status_of(from.status), backend_failure(from));
    const auto& model = model_->description;
    const auto outputs = oip::answered_tensors(model, on.tensors(from), from.response.size());
    if (!outputs) return refuse(outputs.error());
    if (auto kept = regions_.check_kept(); !kept) return refuse(kept.error());
    if (auto copied = regions_.copy_out(model, outputs.value(), from.response); !copied) return refuse(copied.error());
    const auto made = wire::make_response(model, id_, request_.outputs, outputs.value(), from.response);
    count_success(model_->counts, clock::now() - began_, from.timeline);
    reply(slices_of(made));
}

void rpc::reply(std::span<const ::grpc::Slice> parts) {
    response_ = ::grpc::ByteBuffer{parts.data(), parts.size()};
    end();
    StartWriteAndFinish(&response_, {}, ::grpc::Status::OK);
}

void rpc::finish(int code, const std::string& sentence) {
    const bool inference = stage_ != stage::message && what_ == method::infer && model_ != nullptr;
    if (inference) count_failure(model_->counts, clock::now() - began_);
    ++door_.counts().errors;
    end();
    Finish({static_cast<::grpc::StatusCode>(code), sentence.substr(0, longest_sentence)});
}

void rpc::end() {
    stage_ = stage::ended;
    ++door_.counts().requests;
    expect_within(door_.settings().write_timeout);
}

}  // namespace accel::examples::serving::doors
