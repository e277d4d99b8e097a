// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/health_watch.hpp"

#include "serving/doors/grpc/door/coded_message.hpp"
#include "serving/doors/grpc/door/health.hpp"
#include "serving/doors/grpc/infer_message.hpp"

#include <utility>

#include <boost/asio/post.hpp>

namespace accel::examples::serving::doors {

using ::grpc::StatusCode;
using std::chrono::steady_clock;

void health_watch::start() {
    self_ = shared_from_this();
    door_.calls().begin(port_);
    expiry_ = steady_clock::now() + door_.settings().body_timeout;
    boost::asio::post(door_.loop(), [self = self_] { self->door_.add_watch(self); });
    StartRead(&message_);
}

void health_watch::OnReadDone(bool ok) {
    auto read = ok ? read_names(message_, door_.message_limit(), door_.metrics().memory)
                   : result<wire::named_message>{wire::malformed_message()};
    boost::asio::post(door_.loop(), [self = shared_from_this(), found = std::move(read)] { self->begin(found); });
}

void health_watch::OnWriteDone(bool ok) {
    boost::asio::post(door_.loop(), [self = shared_from_this(), ok] { self->on_written(ok); });
}

void health_watch::OnCancel() {
    boost::asio::post(door_.loop(),
                      [self = shared_from_this()] { self->end(StatusCode::CANCELLED, "the client has disconnected"); });
}

void health_watch::OnDone() {
    door_.calls().end(port_);
    door_.watch_ended();
    self_.reset();
}

void health_watch::begin(const result<wire::named_message>& read) {
    message_.Clear();
    if (end_) return;
    if (!read) return end(StatusCode::INVALID_ARGUMENT, read.error().message);
    service_ = read.value().name;
    tell();
}

void health_watch::look(steady_clock::time_point now) {
    if (!service_ && now >= expiry_) return end(StatusCode::DEADLINE_EXCEEDED, "the message did not arrive in time");
    if (!writing_) return tell();
    // gRPC holds what it could not send, and only a reset makes it give up: then the write ends.
    if (now >= expiry_) context_.TryCancel();
}

/// The door's end is told as a state first. A service that nobody knows stays unknown.
void health_watch::tell() {
    if (end_ || writing_ || !service_) return;
    const auto now = health_of(door_.models(), *service_, draining_ || door_.leaving());
    if (told_ == now && draining_) return end(StatusCode::UNAVAILABLE, "the door is closing");
    if (told_ == now) return;
    told_ = now;
    writing_ = true;
    expiry_ = steady_clock::now() + door_.settings().write_timeout;
    const ::grpc::Slice bytes{wire::health(now)};
    answer_ = ::grpc::ByteBuffer{&bytes, 1};
    StartWrite(&answer_);
}

void health_watch::on_written(bool ok) {
    writing_ = false;
    if (end_) return Finish(*end_);
    if (!ok) return end(StatusCode::CANCELLED, "the client has disconnected, or reads too slowly");
    tell();
}

void health_watch::drain() {
    draining_ = true;
    if (!service_) return end(StatusCode::UNAVAILABLE, "the door is closing");
    tell();
}

void health_watch::end(StatusCode code, const std::string& sentence) {
    if (end_) return;
    end_ = ::grpc::Status{code, sentence};
    door_.remove_watch(*this);
    if (!writing_) Finish(*end_);
}

}  // namespace accel::examples::serving::doors
