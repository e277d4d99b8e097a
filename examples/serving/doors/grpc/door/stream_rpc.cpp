// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/stream_rpc.hpp"

#include "serving/doors/grpc/door/response.hpp"
#include "serving/doors/grpc/messages.hpp"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

namespace accel::examples::serving::doors {

namespace asio = boost::asio;

stream_rpc::stream_rpc(grpc_door& door, ::grpc::GenericCallbackServerContext& context)
    : door_(door),
      port_(port_of(context.peer())),
      context_(context),
      client_(client_of(context, door.settings().passed_headers)),
      timer_(door.loop()) {}

void stream_rpc::start() {
    self_ = shared_from_this();
    say_trace(context_, client_);
    door_.calls().begin(port_);
    asio::post(door_.loop(), [self = self_] {
        self->door_.add_stream(self);
        if (const auto& metadata = self->client_.metadata; !metadata)
            return self->end(
                {static_cast<::grpc::StatusCode>(wire::grpc_status_of(metadata.code())), metadata.error().message});
        self->read_next();
        self->look_further();
    });
}

void stream_rpc::OnReadDone(bool ok) {
    if (!ok) {
        asio::post(door_.loop(), [self = shared_from_this()] { self->on_input_end(); });
        return;
    }
    auto read = next_->read(message_);
    asio::post(door_.loop(), [self = shared_from_this(), found = std::move(read)] { self->on_request(found); });
}

void stream_rpc::OnWriteDone(bool ok) {
    asio::post(door_.loop(), [self = shared_from_this(), ok] { self->on_written(ok); });
}

void stream_rpc::OnCancel() {
    asio::post(door_.loop(), [self = shared_from_this()] { self->leave(); });
}

void stream_rpc::OnDone() {
    door_.calls().end(port_);
    door_.stream_ended();
    self_.reset();
}

// Requests.

/// Only while there is room: gRPC then makes the client wait.
void stream_rpc::read_next() {
    const bool room = open_.size() + answers_.size() < door_.settings().stream_requests;
    if (ended_ || reading_ || input_ended_ || !room) return;
    reading_ = true;
    next_ = std::make_shared<inference>(door_, client_, shared_from_this());
    StartRead(&message_);
}

void stream_rpc::on_request(const result<void>& read) {
    reading_ = false;
    const auto one = std::exchange(next_, nullptr);
    if (ended_ || input_ended_) return one->leave();
    if (!writing_) timer_.cancel();
    waits_since_ = std::chrono::steady_clock::time_point::max();
    one->counted().begin(door_.metrics());
    one->counted().set_model(row_of(one->model(), read.code()));
    one->counted().received(message_.Length());
    message_.Clear();
    if (!std::exchange(coded_, true)) compress_answers(context_, one->coded());
    const served_model* model = one->model();
    open_.push_back({one, model == nullptr || !model->description.decoupled, {}});
    if (!read)
        on_failure(*one, wire::grpc_status_of(read.code()), read.error().message);
    else if (one->counted().of_its_model() > door_.settings().max_model_requests)
        on_failure(*one, ::grpc::StatusCode::RESOURCE_EXHAUSTED, "too many requests for this model are open");
    else
        one->begin(parts_of(*model, door_.settings()));
    read_next();
}

void stream_rpc::on_input_end() {
    reading_ = false;
    input_ended_ = true;
    if (next_) std::exchange(next_, nullptr)->leave();
    look_further();
}

void stream_rpc::drain() {
    draining_ = true;
    input_ended_ = true;
    look_further();
}

// Answers.

void stream_rpc::on_response(inference& of, const completion& from) {
    auto message = stream_message(of, from);
    const bool shown =
        from.more || !from.response.empty() || of.asked().empty_end || !of.model()->description.decoupled;
    if (message) of.counted().sent(message.value().Length());
    if (message && from.more) return add_part(of, message.value(), from.id);
    of.release(from.id);
    if (!message) return on_failure(of, wire::grpc_status_of(message.code()), message.error().message);
    count_success(of.model()->counts, of.age(), from.timeline);
    end_request(of, ::grpc::StatusCode::OK, shown ? std::optional{std::move(message).value()} : std::nullopt);
}

void stream_rpc::on_failure(inference& of, int code, const std::string& sentence) {
    if (of.model() != nullptr) count_failure(of.model()->counts, of.age());
    ++door_.counts().errors;
    of.leave();  // where only a part of its answer was wrong
    end_request(of, code, stream_error_message(of.id(), sentence));
}

void stream_rpc::add_part(inference& of, const ::grpc::ByteBuffer& message, call_id part) {
    answers_.push_back({message, of.shared_from_this(), part});
    write_next();
}

/// Its answer may wait for the client, or for the answers before it.
void stream_rpc::end_request(inference& of, int code, std::optional<::grpc::ByteBuffer> message) {
    ++door_.counts().requests;
    of.counted().answered(code);
    of.counted().end();
    const auto found = std::ranges::find_if(open_, [&of](const auto& each) { return each.of.get() == &of; });
    if (found->in_order) {
        found->held = answer{*message, nullptr, {}};
        send_held();
    } else {
        if (message) answers_.push_back({*message, nullptr, {}});
        open_.erase(found);
    }
    write_next();
    read_next();
    look_further();
}

void stream_rpc::send_held() {
    const auto waits = [](const open_request& each) { return each.in_order && !each.held; };
    const auto end = std::ranges::find_if(open_, waits);
    for (auto each = open_.begin(); each != end; ++each)
        if (each->held) answers_.push_back(std::move(*each->held));
    open_.erase(std::remove_if(open_.begin(), end, [](const auto& each) { return each.held.has_value(); }), end);
}

void stream_rpc::write_next() {
    if (ended_ || writing_ || answers_.empty()) return;
    writing_ = true;
    writing_now_ = std::move(answers_.front());
    answers_.pop_front();
    expect(door_.settings().write_timeout, &stream_rpc::on_slow_client);
    StartWrite(&writing_now_.message);
}

void stream_rpc::on_written(bool ok) {
    writing_ = false;
    if (ended_) return;
    timer_.cancel();
    const answer done = std::exchange(writing_now_, {});
    if (done.part) done.of->release(*done.part);
    if (!ok) return leave();
    write_next();
    read_next();
    look_further();
}

// Ends.

void stream_rpc::expect(std::chrono::milliseconds patience, void (stream_rpc::*expired)()) {
    timer_.expires_after(patience);
    timer_.async_wait([self = shared_from_this(), expired](const boost::system::error_code& failed) {
        if (!failed && !self->ended_ && std::chrono::steady_clock::now() >= self->timer_.expiry()) ((*self).*expired)();
    });
}

void stream_rpc::end_waiting() {
    if (!ended_)
        end({::grpc::StatusCode::DEADLINE_EXCEEDED,
             "no message arrived in time, and other clients need the "
             "call"});
}

void stream_rpc::on_silence() {
    if (!is_busy()) end({::grpc::StatusCode::DEADLINE_EXCEEDED, "this stream has sent no request for too long"});
}

/// gRPC holds what it could not send, and only a reset makes it give up.
void stream_rpc::on_slow_client() {
    if (!writing_) return;
    context_.TryCancel();
    leave();
}

/// Where there is nothing to do, this is the end, or a wait for the next request.
void stream_rpc::look_further() {
    if (ended_ || is_busy()) return;
    if (!input_ended_) {
        waits_since_ = std::chrono::steady_clock::now();
        return expect(door_.settings().stream_timeout, &stream_rpc::on_silence);
    }
    if (draining_) return end({::grpc::StatusCode::UNAVAILABLE, "the door is closing"});
    end(::grpc::Status::OK);
}

/// A client that leaves takes its calls with it.
void stream_rpc::leave() {
    if (ended_) return;
    door_.counts().cancelled += open_.size();
    end({::grpc::StatusCode::CANCELLED, "the client has disconnected, or reads too slowly"});
}

void stream_rpc::end(const ::grpc::Status& how) {
    ended_ = true;
    timer_.cancel();
    door_.remove_stream(*this);
    for (const open_request& each : open_) {
        if (each.of->counted().counts()) each.of->counted().cancelled();
        each.of->counted().drop();
        each.of->leave();
    }
    // gRPC may still read its message.
    if (writing_now_.part) writing_now_.of->release(*std::exchange(writing_now_.part, std::nullopt));
    for (const answer& each : answers_)
        if (each.part) each.of->release(*each.part);
    open_.clear();
    answers_.clear();
    Finish(how);
}

}  // namespace accel::examples::serving::doors
