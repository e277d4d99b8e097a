// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/inference.hpp"

#include "serving/doors/grpc/infer_message.hpp"
#include "serving/doors/grpc/messages.hpp"
#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace accel::examples::serving::doors {
namespace {

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

std::vector<wire::slice> places_of(std::span<const ::grpc::Slice> slices) {
    std::vector<wire::slice> out;
    for (const ::grpc::Slice& each : slices) out.push_back(std::as_bytes(std::span{each.begin(), each.size()}));
    return out;
}

served_model* find_model(model_table& in, std::string_view name) {
    const auto found = in.find(name);
    return found == in.end() ? nullptr : &found->second;
}

inference::inference(grpc_door& door, std::chrono::system_clock::time_point deadline,
                     std::shared_ptr<inference_owner> owner)
    : door_(door), deadline_(deadline), owner_(std::move(owner)), timer_(door.loop()) {}

result<void> inference::read(const ::grpc::ByteBuffer& message) {
    auto slices = slices_of(message, door_.message_limit());
    if (!slices) return slices.error();
    coded_ = slices->coded;
    kept_ = std::move(slices->slices);
    places_ = places_of(kept_);
    auto said = wire::read_infer_message(places_);
    if (!said) return said.error();
    id_ = std::move(said->id);
    model_ = find_model(door_.models(), said->model);
    if (model_ == nullptr) return oip::no_model(said->model);
    auto fit = wire::fit_to_model(said.value(), model_->description);
    if (!fit) return fit.error();
    request_ = std::move(fit).value();
    return {};
}

void inference::begin(std::uint32_t parts) {
    parts_ = parts;
    stage_ = stage::slot;
    model_->to->ask_slot(shared_from_this(), parts);
    if (stage_ == stage::slot) expect_slot();
}

void inference::on_slot(status got, const call_view& call) {
    if (stage_ != stage::slot) {
        if (got == status::ok) release(call.id);
        return;
    }
    timer_.cancel();
    if (got != status::ok) return fail(wire::grpc_status_of(got), "the model's server is out of reach");
    const std::size_t bytes = model_->description.input_bytes;
    if (call.request.size() < bytes) {
        release(call.id);
        return fail(oip::refusal(status::protocol_error,
                                 "the model's server takes shorter requests than the model's description says"));
    }
    wire::write_inputs(request_, model_->description, call.request.first(bytes));
    forget_message();
    submit(call.id);
}

void inference::submit(call_id slot) {
    const auto left = time_left(deadline_, request_.timeout);
    std::array<tensor, max_tensors> inputs;
    const auto& declared = model_->description.inputs;
    std::ranges::transform(declared, inputs.begin(), &oip::named_tensor::what);
    submit_options options;
    options.target = model_->target;
    options.timeout = left.value_or(std::chrono::nanoseconds{});
    options.tensors = std::span{inputs}.first(declared.size());
    options.parts = parts_;
    options.part_timeout = door_.settings().part_timeout;
    if (parts_ > 0 && options.timeout.count() == 0) options.timeout = door_.settings().stream_timeout;
    stage_ = stage::call;
    call_ = slot;
    const status sent = left ? model_->to->submit(slot, model_->description.input_bytes, options, shared_from_this())
                             : status::timed_out;
    if (sent == status::ok) return;
    release(slot);
    fail(wire::grpc_status_of(sent), "the call failed: " + std::string{to_string(sent)});
}

void inference::on_answer(const completion& from) {
    if (stage_ != stage::call) return release(from.id);
    const auto owner = from.more ? owner_ : end();
    if (from.status == status::ok) return owner->on_response(*this, from);
    const std::string why = failure_text(from);
    release(from.id);
    owner->on_failure(*this, wire::grpc_status_of(from.status), why);
}

void inference::leave() {
    if (stage_ == stage::slot) model_->to->forget(*this);
    if (stage_ == stage::call) model_->to->cancel(call_);
    end();
}

void inference::expect_slot() {
    timer_.expires_after(door_.settings().slot_timeout);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& failed) {
        if (!failed && self->stage_ == stage::slot) self->expire();
    });
}

void inference::expire() {
    model_->to->forget(*this);
    fail(oip::refusal(status::overloaded, "no call to this model became free in time"));
}

void inference::fail(const error& why) {
    fail(wire::grpc_status_of(why.code), why.message);
}

void inference::fail(int code, const std::string& sentence) {
    end()->on_failure(*this, code, sentence);
}

std::shared_ptr<inference_owner> inference::end() {
    stage_ = stage::ended;
    timer_.cancel();
    return std::exchange(owner_, nullptr);
}

/// Its memory is gRPC's, and large.
void inference::forget_message() {
    request_.inputs.clear();
    places_.clear();
    kept_.clear();
}

}  // namespace accel::examples::serving::doors
