// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/reflection_stream.hpp"

#include "serving/doors/grpc/door/coded_message.hpp"
#include "serving/doors/grpc/messages.hpp"
#include "serving/doors/grpc/reflection.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <utility>

#include <boost/asio/post.hpp>

namespace accel::examples::serving::doors {

namespace asio = boost::asio;
using ::grpc::StatusCode;
using std::chrono::steady_clock;

bool is_reflection(std::string_view path) noexcept {
    return path == "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" ||
           path == "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
}

void reflection_stream::start() {
    self_ = shared_from_this();
    door_.calls().begin(port_);
    asio::post(door_.loop(), [self = self_] {
        self->door_.add_stream(self);
        self->read_next();
    });
}

void reflection_stream::OnReadDone(bool ok) {
    if (!ok) {
        asio::post(door_.loop(), [self = shared_from_this()] { self->end(StatusCode::OK); });
        return;
    }
    auto made = answer_request();
    asio::post(door_.loop(), [self = shared_from_this(), answer = std::move(made)] { self->on_request(answer); });
}

void reflection_stream::OnWriteDone(bool ok) {
    asio::post(door_.loop(), [self = shared_from_this(), ok] { self->on_written(ok); });
}

void reflection_stream::OnCancel() {
    asio::post(door_.loop(), [self = shared_from_this()] { self->leave(); });
}

void reflection_stream::OnDone() {
    door_.calls().end(port_);
    door_.stream_ended();
    self_.reset();
}

result<std::string> reflection_stream::answer_request() const {
    if (message_.Length() > longest_question)
        return oip::refusal(status::message_too_large, "the message is longer than its method may need");
    const auto slices = slices_of(message_, longest_question, door_.metrics().memory);
    if (!slices) return slices.error();
    return wire::answer_reflection(places_of(slices.value().slices));
}

void reflection_stream::read_next() {
    if (ended_) return;
    if (draining_) return end(StatusCode::UNAVAILABLE, "the door is closing");
    waits_since_ = steady_clock::now();
    expect(door_.settings().stream_timeout, &reflection_stream::on_silence);
    StartRead(&message_);
}

void reflection_stream::on_request(const result<std::string>& answer) {
    if (ended_) return;
    timer_.cancel();
    waits_since_ = steady_clock::time_point::max();
    has_sent_ = true;
    counted_.begin(door_.metrics());
    counted_.received(message_.Length());
    message_.Clear();
    ++door_.counts().requests;
    if (!answer) {
        const int code = wire::grpc_status_of(answer.code());
        ++door_.counts().errors;
        counted_.answered(code);
        counted_.end();
        return end(static_cast<StatusCode>(code), answer.error().message);
    }
    const ::grpc::Slice bytes{answer.value()};
    answer_ = ::grpc::ByteBuffer{&bytes, 1};
    counted_.sent(answer_.Length());
    counted_.answered(StatusCode::OK);
    writing_ = true;
    expect(door_.settings().write_timeout, &reflection_stream::on_slow_client);
    StartWrite(&answer_);
}

void reflection_stream::on_written(bool ok) {
    writing_ = false;
    counted_.end();
    if (ended_) return;
    timer_.cancel();
    if (!ok) return leave();
    read_next();
}

void reflection_stream::expect(std::chrono::milliseconds patience, void (reflection_stream::*expired)()) {
    timer_.expires_after(patience);
    timer_.async_wait([self = shared_from_this(), expired](const boost::system::error_code& failed) {
        if (!failed && !self->ended_ && steady_clock::now() >= self->timer_.expiry()) ((*self).*expired)();
    });
}

void reflection_stream::drain() {
    draining_ = true;
    if (!writing_) end(StatusCode::UNAVAILABLE, "the door is closing");
}

void reflection_stream::end_waiting() {
    end(StatusCode::DEADLINE_EXCEEDED, "no message arrived in time, and others need the call");
}

void reflection_stream::on_silence() {
    if (!writing_) end(StatusCode::DEADLINE_EXCEEDED, "this stream had no request for too long");
}

/// gRPC holds what it could not send, and only a reset makes it give up.
void reflection_stream::on_slow_client() {
    if (!writing_) return;
    context_.TryCancel();
    leave();
}

void reflection_stream::leave() {
    end(StatusCode::CANCELLED, "the client has left, or reads too slowly");
}

void reflection_stream::end(StatusCode code, const std::string& sentence) {
    if (ended_) return;
    ended_ = true;
    timer_.cancel();
    door_.remove_stream(*this);
    counted_.drop();
    Finish({code, sentence});
}

}  // namespace accel::examples::serving::doors
