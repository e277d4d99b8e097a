// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/inference.hpp"

#include "serving/doors/grpc/infer_message.hpp"
#include "serving/doors/grpc/messages.hpp"
#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/servers/passed_baggage.hpp"
#include "serving/doors/servers/region_submit.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace accel::examples::serving::doors {
namespace {

constexpr const char* trace_key = "traceparent";
constexpr const char* baggage_key = "baggage";
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

/// Empty: none, or several.
std::string_view only_value(const ::grpc::GenericCallbackServerContext& context, const char* key) {
    const auto [first, end] = context.client_metadata().equal_range(key);
    if (first == end || std::next(first) != end) return {};
    return {first->second.data(), first->second.size()};
}

}  // namespace

void say_trace(::grpc::GenericCallbackServerContext& context, const client_call& of) {
    if (of.trace.valid()) context.AddInitialMetadata(trace_key, of.trace.format());
    if (!of.baggage.empty()) context.AddInitialMetadata(baggage_key, of.baggage);
}

served_model* find_model(model_table& in, std::string_view name) {
    const auto found = in.find(name);
    return found == in.end() ? nullptr : &found->second;
}

std::size_t row_of(const served_model* model, status read) noexcept {
    if (model != nullptr) return model->row;
    return read == status::not_found ? door_metrics::unknown_model : door_metrics::no_model;
}

client_call client_of(const ::grpc::GenericCallbackServerContext& context, const std::vector<std::string>& passed) {
    const auto fields = [&](const std::string& name) { return context.client_metadata().equal_range(name); };
    const auto value_of = [](const std::string& /*name*/, const auto& field) -> result<std::string> {
        return std::string{field.second.data(), field.second.size()};
    };
    return {context.deadline(), std::hash<std::string>{}(context.peer()),
            trace_context::parse(only_value(context, trace_key)).value_or(trace_context{}),
            std::string{passed_baggage(only_value(context, baggage_key))}, read_passed(passed, fields, value_of)};
}

inference::inference(grpc_door& door, client_call of, std::shared_ptr<inference_owner> owner)
    : door_(door), client_(std::move(of)), owner_(std::move(owner)), timer_(door.loop()) {}

result<void> inference::read(const ::grpc::ByteBuffer& message) {
    auto slices = slices_of(message, door_.message_limit(), door_.metrics().memory);
    if (!slices) return slices.error();
    coded_ = slices->coded;
    inflated_ = std::move(slices->inflated);
    kept_ = std::move(slices->slices);
    places_ = places_of(kept_);
    const std::uint64_t length = wire::cursor{places_}.size();
    auto said = wire::read_infer_message(places_);
    if (!said) return said.error();
    id_ = std::move(said->id);
    model_ = find_model(door_.models(), said->model);
    if (model_ == nullptr) return oip::no_model(said->model);
    auto fit = wire::fit_to_model(said.value(), model_->description);
    if (!fit) return fit.error();  // of a long message this says what is wrong
    if (length > longest_message(*model_, door_.settings()))
        return oip::refusal(status::message_too_large, "the message is longer than this model needs");
    request_ = std::move(fit).value();
    return {};
}

void inference::begin(std::uint32_t parts) {
    parts_ = parts;
    if (auto opened = open_regions(); !opened) return fail(opened.error());
    ask_slot();
}

void inference::ask_slot() {
    stage_ = stage::slot;
    counted_.enter(request_stage::slot);
    const auto patience = returned_.time().begin_wait(door_.settings().slot_timeout);
    model_->to->ask_slot(shared_from_this(), {.parts = parts_, .past = returned_.past()});
    if (stage_ == stage::slot) expect_slot(patience);
}

result<void> inference::open_regions() {
    auto opened =
        shared_memory::call_regions::open(door_.regions(), request_.regions, request_.outputs, model_->description);
    if (!opened) return opened.error();
    regions_ = std::move(opened).value();
    if (parts_ == 0 || !regions_.has_outputs()) return {};
    // A part would overwrite the one before it while the client reads that.
    return oip::refusal(status::unsupported,
                        "an answer in parts cannot go into shared memory: ask for its outputs without a "
                        "shared_memory_region");
}

void inference::on_slot(status got, const call_slot& slot) {
    if (stage_ != stage::slot) {
        if (got == status::ok) slot.on->release(slot.id);
        return;
    }
    timer_.cancel();
    returned_.time().end_wait();
    if (got != status::ok) return fail(wire::grpc_status_of(got), "the model's server cannot be reached");
    slot_ = slot;
    const std::size_t bytes = request_.payload.bytes();
    if (slot.request.size() < bytes) {
        release(slot.id);
        return fail(oip::refusal(status::protocol_error,
                                 "the model's server accepts only shorter requests than the model's description says"));
    }
    if (returned_.is_kept()) {
        returned_.move_to(slot);
    } else {
        wire::write_inputs(request_, model_->description, slot.request.first(bytes));
        forget_message();
    }
    submit();
}

void inference::submit() {
    auto left = time_left(client_.deadline, request_.timeout);
    stage_ = stage::call;
    counted_.enter(request_stage::call);
    auto options = options_of(left.value_or(std::chrono::nanoseconds{}), slot_.parts, door_.settings());
    if (left) left = returned_.time().begin_call(options.timeout);
    options.timeout = left.value_or(options.timeout);
    options.trace = client_.trace;
    options.baggage = client_.baggage;
    options.metadata = metadata();
    const auto sent = left ? submit_request(*model_, request_.payload, slot_, options, regions_, shared_from_this())
                           : result<void>{deadline_passed()};
    if (sent) return;
    if (model_->to->take_back_unsent(sent.code(), slot_, request_.payload.bytes(), returned_)) return ask_slot();
    release(slot_.id);
    fail(sent.error());
}

void inference::on_answer(door_channel& on, const completion& from) {
    model_->to->heard(on, from);
    const bool unseen = stage_ == stage::call && !has_part_;
    if (unseen && model_->to->take_back(from, slot_, request_.payload.bytes(), returned_)) return ask_slot();
    has_part_ = from.more;
    if (stage_ == stage::call)
        take(from);
    else
        on.release(from.id);
    if (!from.more) regions_.clear();
}

void inference::take(const completion& from) {
    counted_.enter(request_stage::answer);
    const auto owner = from.more ? owner_ : end();
    if (from.status == status::ok) return owner->on_response(*this, from);
    const error why = failure_of(*model_, from);
    release(from.id);
    owner->on_failure(*this, wire::grpc_status_of(why.code), why.message);
}

/// While a server may write to a client's memory, its call goes on until it has answered.
void inference::leave() {
    if (stage_ == stage::slot) model_->to->forget(*this);
    if (stage_ == stage::slot) regions_.clear();
    if (stage_ == stage::call && !regions_.answers_in_place()) slot_.on->cancel(slot_.id);
    end();
}

void inference::expect_slot(std::chrono::nanoseconds patience) {
    timer_.expires_after(patience);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& failed) {
        if (!failed && self->stage_ == stage::slot) self->expire();
    });
}

void inference::expire() {
    model_->to->forget(*this);
    if (returned_.time().is_over()) return fail(deadline_passed());
    fail(oip::refusal(status::overloaded, "no call to this model became free in time"));
}

void inference::fail(const error& why) {
    fail(wire::grpc_status_of(why.code), why.message);
}

/// No call is under way.
void inference::fail(int code, const std::string& sentence) {
    regions_.clear();
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
    inflated_ = {};
}

}  // namespace accel::examples::serving::doors
