// SPDX-License-Identifier: Apache-2.0
// An inference: its JSON, then a slot of the model's channel, then the tensors straight into that slot, and the call.
#include "serving/doors/http/connection.hpp"
#include "serving/doors/http/http_text.hpp"
#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/generate.hpp"
#include "serving/doors/servers/passed_baggage.hpp"
#include "serving/doors/servers/region_submit.hpp"
#include "serving/doors/shared_memory/base64.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/rfc7230.hpp>

namespace accel::examples::serving::doors {

namespace asio = boost::asio;

namespace {

constexpr std::size_t usual_json_bytes = 4096;             // longer texts are not kept between requests
constexpr std::size_t json_piece = std::size_t{64} << 10;  // read in one go, then others have a turn
constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";

std::string_view view_of(boost::beast::string_view text) {
    return {text.data(), text.size()};
}

bool is_text(boost::beast::string_view text, boost::beast::string_view wanted) {
    return boost::beast::iequals(text, wanted);
}

}  // namespace

void connection::begin_infer(const oip::route& to) {
    const auto found = door_.models().find(to.model);
    counted_.set_model(found == door_.models().end() ? door_metrics::unknown_model : found->second.row);
    if (found == door_.models().end()) return reply(404, "there is no model " + oip::in_quotes(to.model));
    model_ = &found->second;
    if (what_ == oip::action::infer && model_->description.decoupled) return refuse(oip::answers_in_parts(to.model));
    if (counted_.of_its_model() > door_.settings().max_model_requests)
        return reply(429, "too many requests for this model are open");
    if (!take_metadata()) return;
    const auto& head = parser_->get();
    const auto coding = coding::coding_of(view_of(head["Content-Encoding"]));
    if (!coding) return reply(415, "this door only knows gzip and deflate", "Accept-Encoding: gzip, deflate\r\n");
    coding_ = *coding;
    if (parser_->chunked() || !parser_->content_length()) return reply(411, "a request needs a Content-Length");
    if (!plan_body()) return;
    const auto expected = head["Expect"];
    if (expected.empty()) return read_payload();
    if (!is_text(expected, "100-continue")) return reply(417, "this door knows no expectation except 100-continue");
    enter_body(stage::json);
    asio::async_write(stream_, asio::buffer(go_on), [self = shared_from_this()](const error_code& failed, std::size_t) {
        if (failed || self->stage_ != stage::json) return self->close();
        self->read_payload();
    });
}

void connection::read_payload() {
    if (coding_ == coding::content_coding::identity)
        read_json();
    else
        read_coded();
}

/// How much of the body is JSON. False: answered, because the client contradicts itself, or it is too much.
bool connection::plan_body() {
    const auto said = parser_->get().find("Inference-Header-Content-Length");
    has_binary_ = said != parser_->get().end() && what_ == oip::action::infer;
    const auto length = has_binary_ ? std::optional{view_of(said->value())} : std::nullopt;
    if (coding_ != coding::content_coding::identity) return plan_coded_body(length);
    auto plan = oip::plan_body(*parser_->content_length(), length);
    const auto good = plan ? oip::check_body(*plan, model_->description, door_.settings().max_json_bytes)
                           : result<void>{plan.error()};
    if (!good) {
        refuse(good.error());
        return false;
    }
    if (!door_.take_json(plan->json_bytes)) {
        reply(429, "too many requests with JSON are being read");
        return false;
    }
    plan_ = *plan;
    json_taken_ = plan_.json_bytes;
    return true;
}

std::size_t connection::take_read_ahead(std::span<std::byte> to) {
    if (coding_ != coding::content_coding::identity) return take_plain(to);
    const std::size_t count = std::min(to.size(), read_ahead_.size());
    if (count > 0) std::memcpy(to.data(), read_ahead_.data().data(), count);
    read_ahead_.consume(count);
    return count;
}

void connection::read_json() {
    enter_body(stage::json);
    json_.resize(plan_.json_bytes);
    const auto room = std::as_writable_bytes(std::span{json_});
    const auto rest = room.subspan(take_read_ahead(room));
    if (rest.empty()) return on_json({});
    asio::async_read(stream_, asio::buffer(rest.data(), rest.size()), count_body(),
                     [self = shared_from_this()](const error_code& failed, std::size_t) { self->on_json(failed); });
}

void connection::on_json(const error_code& failed) {
    if (stage_ != stage::json) return;
    if (failed && expired_) return reply(408, "the JSON did not arrive in time");
    if (failed) return close();
    counted_.received(plan_.json_bytes);
    unread_ = plan_.binary_bytes > 0;
    if (of_regions_) return answer_regions();
    take_request();
}

void connection::take_request() {
    auto request = read_request();
    if (!request) {
        drop_json_text();
        return refuse(request.error());
    }
    request_ = std::move(request).value();
    const std::uint64_t bytes = oip::json_data_bytes(request_, model_->description);
    if (!door_.take_json(bytes)) {
        drop_json_text();
        return reply(429, "too many requests with JSON are being read");
    }
    json_taken_ += bytes;
    reading_.emplace(request_, model_->description);
    enter(stage::json, door_.settings().body_timeout);
    read_inputs();
}

void connection::drop_json_text() {
    reading_.reset();
    json_.clear();
    if (json_.capacity() > usual_json_bytes) json_.shrink_to_fit();
}

/// In pieces, between which other clients have their turn.
void connection::read_inputs() {
    if (stage_ != stage::json) return;
    if (expired_) return reply(408, "the JSON did not arrive in time");
    const auto more = reading_->step(json_piece);
    if (more && more.value())
        return asio::post(stream_.get_executor(), [self = shared_from_this()] { self->read_inputs(); });
    drop_json_text();
    if (!more) return refuse(more.error());
    auto regions =
        shared_memory::call_regions::open(door_.regions(), request_.regions, request_.outputs, model_->description);
    if (!regions) return refuse(regions.error());
    regions_ = std::move(regions).value();
    enter_slot();
    const bool all_here = coding_ != coding::content_coding::identity || read_ahead_.size() >= plan_.binary_bytes;
    model_->to->ask_slot(shared_from_this(), {.parts = parts_wanted(), .body_follows = !all_here});
}

result<oip::infer_request> connection::read_request() {
    const auto& model = model_->description;
    if (what_ != oip::action::infer) return oip::read_generate(json_, model);
    if (plan_.is_raw()) return oip::raw_infer_request(plan_.binary_bytes, model);
    return heads_.read(json_, plan_.binary_bytes, model);
}

std::uint32_t connection::parts_wanted() const {
    return what_ == oip::action::infer ? 0 : parts_of(*model_, door_.settings());
}

void connection::give_json() {
    door_.give_json(std::exchange(json_taken_, 0));
    request_.inputs.clear();
    plain_ = {};
    plain_bytes_ = plain_taken_ = 0;
}

void connection::enter_slot() {
    counted_.enter(request_stage::slot);
    const auto patience = returned_.time().begin_wait(door_.settings().slot_timeout);
    enter(stage::slot, std::chrono::ceil<std::chrono::milliseconds>(patience));
}

void connection::on_slot(status got, const call_slot& slot) {
    const bool waits = stage_ == stage::slot;
    if (got == status::ok) slot_ = slot;
    if (!waits) return abandon();
    returned_.time().end_wait();
    if (got != status::ok) return reply(oip::http_status_of(got), "the model's server cannot be reached");
    if (slot.request.size() < request_.payload.bytes()) {
        abandon();
        return reply(500, "the model's server accepts only shorter requests than the model's description says");
    }
    if (!returned_.is_kept()) return read_body();
    returned_.move_to(slot);
    submit();
}

void connection::offer_again() {
    slot_.reset();
    enter_slot();
    model_->to->ask_slot(shared_from_this(), {.parts = parts_wanted(), .past = returned_.past()});
}

void connection::abandon() {
    if (slot_) {
        const call_slot slot = *std::exchange(slot_, std::nullopt);
        slot.on->release(slot.id);
    }
    regions_.clear();
}

void connection::read_body() {
    enter_body(stage::body);
    counted_.enter(request_stage::receive);
    const auto room = slot_->request.first(request_.payload.bytes());
    oip::write_json_inputs(request_, room);
    places_.clear();
    for (const std::span<std::byte> place : oip::binary_places(request_, room)) {
        const auto rest = place.subspan(take_read_ahead(place));
        if (!rest.empty()) places_.emplace_back(rest.data(), rest.size());
    }
    give_json();
    if (places_.empty()) return on_body({});
    asio::async_read(stream_, places_, count_body(),
                     [self = shared_from_this()](const error_code& failed, std::size_t) { self->on_body(failed); });
}

void connection::on_body(const error_code& failed) {
    if (failed || stage_ != stage::body) abandon();
    if (stage_ != stage::body) return;
    if (failed && expired_) return reply(408, "the tensors did not arrive in time");
    if (failed) return close();
    if (coding_ == coding::content_coding::identity) counted_.received(plan_.binary_bytes);
    unread_ = false;
    submit();
}

/// With two of them a request belongs to no trace (Trace Context, 3.2).
trace_context connection::trace() const {
    if (!parser_ || parser_->get().count("traceparent") != 1) return {};
    return trace_context::parse(view_of(parser_->get()["traceparent"])).value_or(trace_context{});
}

std::string_view connection::baggage() const {
    if (!parser_ || parser_->get().count("baggage") != 1) return {};
    return passed_baggage(view_of(parser_->get()["baggage"]));
}

/// The client means it for the next hop alone (RFC 9110, 7.6.1).
bool connection::is_of_connection(std::string_view name) const {
    const auto [first, end] = parser_->get().equal_range(boost::beast::http::field::connection);
    for (auto each = first; each != end; ++each)
        for (const auto option : boost::beast::http::token_list{each->value()})
            if (is_text(option, {name.data(), name.size()})) return true;
    return false;
}

bool connection::take_metadata() {
    const auto fields = [this](const std::string& name) {
        const auto found = parser_->get().equal_range(name);
        return is_of_connection(name) ? std::pair{found.second, found.second} : found;
    };
    const auto value_of = [](const std::string& name, const auto& field) -> result<std::string> {
        std::string text{view_of(field.value())};
        if (!is_binary(name)) return text;
        // Senders may leave the padding out, as in gRPC.
        while (text.size() % 4 != 0) text += '=';
        auto bytes = shared_memory::from_base64(text);
        if (bytes) return *std::move(bytes);
        return error{status::invalid_argument, 0, "the header " + oip::in_quotes(name) + " must be base64"};
    };
    auto passed = read_passed(door_.settings().passed_headers, fields, value_of);
    if (passed) {
        passed_ = std::move(passed).value();
        return true;
    }
    reply(passed.code() == status::message_too_large ? 431 : 400, passed.error().message);
    return false;
}

void connection::submit() {
    stage_ = stage::call;
    counted_.enter(request_stage::call);
    auto options = options_of(request_.timeout, slot_->parts, door_.settings());
    const auto left = returned_.time().begin_call(options.timeout);
    options.timeout = left.value_or(options.timeout);
    options.trace = trace();
    options.baggage = baggage();
    options.metadata = metadata();
    const auto sent = left ? submit_request(*model_, request_.payload, *slot_, options, regions_, shared_from_this())
                           : result<void>{deadline_passed()};
    if (sent && read_ahead_.size() == 0) watch();
    if (sent) return;
    if (model_->to->take_back_unsent(sent.code(), *slot_, request_.payload.bytes(), returned_)) return offer_again();
    abandon();
    if (sent.code() == status::message_too_large && !metadata().empty()) return reply(431, sent.error().message);
    refuse(sent.error());
}

}  // namespace accel::examples::serving::doors
