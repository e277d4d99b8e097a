// SPDX-License-Identifier: Apache-2.0
// Answers of the generate extension: one document, or server-sent events of which each is a part of the model's answer.
#include "serving/doors/http/connection.hpp"
#include "serving/doors/http/http_text.hpp"
#include "serving/doors/oip/generate.hpp"

#include <utility>

#include <boost/asio/write.hpp>

namespace accel::examples::serving::doors {

namespace asio = boost::asio;

namespace {

/// A client that stops reading stops the model after about as much, and not after megabytes in the kernel.
constexpr int unsent_of_a_stream = 64 << 10;

error several_parts() {
    return oip::refusal(status::invalid_argument, "the model answers in several parts: ask for generate_stream");
}

}  // namespace

void connection::on_part(door_channel& on, const completion& from) {
    parts_on_ = &on;
    const bool waits = stage_ == stage::call || stage_ == stage::stream;
    if (waits && from.more && !broken_) return take_part(on, from);
    if (waits && !from.more) return take_end(on, from);
    // Its client has left, or the call is being cancelled.
    on.release(from.id);
    if (!from.more) slot_.reset();
}

/// `protocol_error` and `invalid_argument`, as for inferences.
result<std::string> connection::document_of(door_channel& on, const completion& from) {
    const auto& model = model_->description;
    const auto outputs = oip::answered_tensors(model, on.tensors(from), from.response);
    if (!outputs) return outputs.error();
    return oip::generate_document(model, request_.id, outputs.value(), from.response);
}

void connection::take_part(door_channel& on, const completion& from) {
    auto made = document_of(on, from);
    if (is_stream() && made) return queue_event(made.value(), from.id);
    on.release(from.id);
    if (!made) return give_up_call(made.error());
    if (!document_.empty()) return give_up_call(several_parts());
    document_ = std::move(made).value();
}

/// The call's end follows at once.
void connection::give_up_call(error why) {
    broken_ = std::move(why);
    slot_->on->cancel(slot_->id);
}

void connection::take_end(door_channel& on, const completion& from) {
    auto last = end_of(on, from);
    // Events have their header already.
    if (last && !is_stream())
        if (auto passed = pass_back_metadata(from); !passed) last = passed.error();
    if (last) count_success(model_->counts, clock::now() - began_, from.timeline);
    on.release(from.id);
    slot_.reset();
    if (is_stream()) return end_stream(last);
    const std::string first = std::exchange(document_, {});
    if (!last) return refuse(last.error());
    reply_document(first.empty() ? last.value() : first);
}

/// The document of the last part; empty: there is none.
result<std::string> connection::end_of(door_channel& on, const completion& from) {
    if (broken_) return *std::exchange(broken_, std::nullopt);
    if (from.status != status::ok) return failure_of(*model_, from);
    const bool whole = is_stream() || !document_.empty();
    if (from.response.empty() && whole) return std::string{};
    if (!document_.empty()) return several_parts();
    return document_of(on, from);
}

/// An error before the first event is an answer like any other.
void connection::end_stream(const result<std::string>& last) {
    if (!last && !events_.begun()) return refuse(last.error());
    if (!last) {
        count_failure(model_->counts, clock::now() - began_);
        ++door_.counts().errors;
    }
    if (!events_.begun()) begin_events();
    const std::string document = last ? last.value() : oip::error_document(last.error().message);
    if (!document.empty()) events_.add(oip::event_of(document));
    events_.finish();
    write_events();
}

void connection::begin_events() {
    count(200);
    const bool chunked = parser_->get().version() >= 11;
    close_after_ = !keep_alive_ || !chunked || door_.stopping();
    stream_.bound_unsent(unsent_of_a_stream);
    events_.begin(chunked, event_header_text(chunked, !close_after_));
}

void connection::queue_event(std::string_view document, call_id part) {
    if (!events_.begun()) begin_events();
    events_.add(oip::event_of(document), part);
    write_events();
}

void connection::write_events() {
    if (events_.writing()) return;
    if (events_.empty()) {
        if (events_.finished()) finish_stream();
        return;
    }
    enter(stage::stream, door_.settings().write_timeout);
    asio::async_write(stream_, asio::buffer(events_.take()),
                      [self = shared_from_this()](const error_code& failed, std::size_t bytes) {
                          self->on_events_written(failed, bytes);
                      });
}

void connection::on_events_written(const error_code& failed, std::size_t bytes) {
    counted_.sent(bytes);
    for (const call_id each : events_.written()) parts_on_->release(each);
    if (stage_ != stage::stream) return;
    deadline_ = clock::time_point::max();
    if (failed) return leave();
    write_events();
}

/// The client has everything.
void connection::finish_stream() {
    events_ = {};
    stream_.bound_unsent(0);
    stage_ = stage::write;
    on_sent({}, 0);
}

void connection::drop_parts() {
    for (const call_id each : events_.drop()) parts_on_->release(each);
}

}  // namespace accel::examples::serving::doors
