// SPDX-License-Identifier: Apache-2.0
// A call from its message to the slot. Its answers are in grpc_answer.cpp.
#include "serving/doors/grpc/door/rpc.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/servers/region_submit.hpp"

#include <algorithm>
#include <functional>
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

constexpr std::chrono::microseconds longest_timeout{oip::longest_timeout_us};

/// Of a call whose client waits until `deadline`; 0: the channel's own. Nothing: it is over.
std::optional<std::chrono::nanoseconds> time_left(std::chrono::system_clock::time_point deadline,
                                                  std::chrono::nanoseconds asked) {
    const auto now = std::chrono::system_clock::now();
    if (deadline <= now) return std::nullopt;
    if (deadline == std::chrono::system_clock::time_point::max()) return asked;
    const auto left = std::min<std::chrono::nanoseconds>(deadline - now, longest_timeout);
    return asked.count() > 0 ? std::min(asked, left) : left;
}

}  // namespace

std::optional<method> find_method(std::string_view path) noexcept {
    const auto* found = std::ranges::find(methods, path, &named_method::path);
    if (found == std::end(methods)) return std::nullopt;
    return found->what;
}

rpc::rpc(grpc_door& door, method what, ::grpc::GenericCallbackServerContext& context)
    : door_(door),
      what_(what),
      context_(context),
      deadline_(context.deadline()),
      peer_(std::hash<std::string>{}(context.peer())) {}

void rpc::start() {
    self_ = shared_from_this();
    expect_within(door_.settings().body_timeout);
    door_.call_began(*this);
    StartRead(&message_);
}

void rpc::OnReadDone(bool ok) {
    auto read = read_message(ok);
    asio::post(door_.loop(), [self = shared_from_this(), found = std::move(read)] { self->begin(found); });
}

void rpc::OnCancel() {
    asio::post(door_.loop(), [self = shared_from_this()] { self->cancelled(); });
}

void rpc::OnDone() {
    door_.call_ended(*this);
    self_.reset();
}

result<void> rpc::read_message(bool ok) {
    if (!ok) return oip::refusal(status::invalid_argument, "there is no message, or it did not arrive whole");
    if (!message_.Dump(&kept_).ok()) return wire::malformed_message();
    for (const ::grpc::Slice& each : kept_) slices_.push_back(std::as_bytes(std::span{each.begin(), each.size()}));
    if (is_of_regions()) return read_region();
    return what_ == method::infer ? read_infer() : read_names();
}

result<void> rpc::read_infer() {
    auto read = wire::read_infer_message(slices_);
    if (!read) return read.error();
    if (auto found = find_model(read->model); !found) return found.error();
    auto fit = wire::fit_to_model(read.value(), model_->description);
    if (!fit) return fit.error();
    id_ = std::move(read->id);
    request_ = std::move(fit).value();
    return {};
}

result<void> rpc::read_names() {
    auto read = wire::read_named_message(slices_);
    if (!read) return read.error();
    named_ = std::move(read).value();
    const bool of_model = what_ == method::model_ready || what_ == method::model_metadata ||
                          what_ == method::model_configuration ||
                          (what_ == method::model_statistics && !named_.name.empty());
    if (!of_model) return {};
    if (auto found = find_model(named_.name); !found) return found.error();
    return oip::check_version(named_.name, named_.version);
}

result<void> rpc::find_model(std::string_view name) {
    const auto found = door_.models().find(name);
    if (found == door_.models().end()) return oip::no_model(name);
    model_ = &found->second;
    return {};
}

void rpc::begin(const result<void>& read) {
    if (stage_ != stage::message) return;
    stage_ = stage::nothing;
    if (!read) return refuse(read.error());
    if (what_ == method::infer) return begin_infer();
    if (is_of_regions()) return answer_regions();
    answer_question();
}

void rpc::begin_infer() {
    auto regions =
        shared_memory::call_regions::open(door_.regions(), request_.regions, request_.outputs, model_->description);
    if (!regions) return refuse(regions.error());
    regions_ = std::move(regions).value();
    stage_ = stage::slot;
    expect_within(door_.settings().slot_timeout);
    model_->to->ask_slot(shared_from_this());
}

void rpc::on_slot(status got, const call_slot& slot) {
    const bool waits = stage_ == stage::slot;
    if (got == status::ok) slot_ = slot;
    if (!waits) return abandon();
    if (got != status::ok) return finish(wire::grpc_status_of(got), "the model's server is out of reach");
    const std::size_t bytes = model_->description.input_bytes;
    if (slot.request.size() < bytes) {
        abandon();
        return refuse(oip::refusal(status::protocol_error,
                                   "the model's server takes shorter requests than the model's description says"));
    }
    wire::write_inputs(request_, model_->description, slot.request.first(bytes));
    forget_message();
    submit();
}

void rpc::submit() {
    const auto left = time_left(deadline_, request_.timeout);
    expiry_ = clock::time_point::max();
    stage_ = stage::call;
    const auto sent = left ? submit_request(*model_, *slot_, *left, regions_, shared_from_this())
                           : result<void>{oip::refusal(status::timed_out, "the deadline has passed")};
    if (sent) return;
    abandon();
    refuse(sent.error());
}

void rpc::expect_within(std::chrono::milliseconds patience) {
    expiry_ = clock::now() + patience;
}

void rpc::expire() {
    expiry_ = clock::time_point::max();
    if (stage_ == stage::ended) return door_.break_off(*this);
    if (stage_ == stage::message) refuse(oip::refusal(status::timed_out, "the message did not arrive in time"));
    if (stage_ != stage::slot) return;
    model_->to->forget(*this);
    refuse(oip::refusal(status::overloaded, "no call to this model became free in time"));
}

/// A client that leaves takes its call with it.
void rpc::cancelled() {
    if (stage_ == stage::ended) return;
    ++door_.counts().cancelled;
    if (stage_ == stage::slot) model_->to->forget(*this);
    if (stage_ == stage::call && !regions_.answers_in_place()) slot_->on->cancel(slot_->id);
    finish(::grpc::StatusCode::CANCELLED, "the client has left");
}

void rpc::abandon() {
    if (slot_) {
        const call_slot slot = *std::exchange(slot_, std::nullopt);
        slot.on->release(slot.id);
    }
    regions_.clear();
}

/// Its memory is gRPC's, and large.
void rpc::forget_message() {
    request_.inputs.clear();
    slices_.clear();
    kept_.clear();
    message_.Clear();
}

}  // namespace accel::examples::serving::doors
