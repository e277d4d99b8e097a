// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/connection.hpp"

#include "serving/doors/http/framing.hpp"
#include "serving/doors/http/http_text.hpp"
#include "serving/doors/http/tls.hpp"
#include "serving/doors/oip/documents.hpp"
#include "serving/doors/servers/region_submit.hpp"

#include <accel_transport/config.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <boost/beast/http/error.hpp>

namespace accel::examples::serving::doors {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;

namespace {

constexpr std::size_t max_header_bytes = 8 << 10;
constexpr std::size_t read_ahead_bytes = 16 << 10;  // of a body they are copied, so they are few
constexpr std::size_t watch_bytes = 4 << 10;
constexpr std::size_t first_read_bytes = 2 << 10;  // a header and a short body; kept while a connection is idle

/// RFC 9112, 3.2.
bool has_one_host(const http::request_header<>& head) {
    return head.count(http::field::host) == 1 || (head.version() < 11 && head.count(http::field::host) == 0);
}

std::string version_text() {
    return std::to_string(ACCEL_VERSION_MAJOR) + '.' + std::to_string(ACCEL_VERSION_MINOR) + '.' +
           std::to_string(ACCEL_VERSION_PATCH);
}

}  // namespace

connection::connection(tcp::socket from, const asio::ip::address& of, http_door& door)
    : idle_entry(of),
      stream_(std::move(from), door.tls()),
      door_(door),
      number_(door.counts().connections),
      read_ahead_(read_ahead_bytes) {}

void connection::start() {
    error_code ignored;
    stream_.socket().non_blocking(true, ignored);  // for reads and writes that do not wait
    if (!stream_.encrypted()) return next_request();
    enter(stage::handshake, door_.settings().handshake_timeout);
    stream_.async_handshake([self = shared_from_this()](const error_code& failed) { self->on_handshake(failed); });
}

void connection::on_handshake(const error_code& failed) {
    if (stage_ != stage::handshake) return;
    if (!failed) return next_request();
    door_metrics::add(door_.metrics().failed_handshakes, 1);
    if (!is_plain_http(failed)) return close();
    stream_.go_plain();
    keep_alive_ = false;
    unread_ = true;
    reply(400, "this port only speaks HTTPS: use https://");
}

void connection::enter(stage next, std::chrono::milliseconds patience) {
    stage_ = next;
    deadline_ = clock::now() + patience;
    if (is_idle())
        door_.order().set_idle(*this);
    else
        door_.order().set_busy(*this);
    door_.deadlines().look_by(*this, next_look());
}

void connection::enter_body(stage next) {
    pace_.begin(clock::now());
    enter(next, door_.settings().body_timeout);
}

bool connection::is_too_slow(clock::time_point now) {
    const bool inflates = inflater_ != nullptr && coded_left_ == 0;
    return reads_body() && !inflates && pace_.is_too_slow(now, door_.settings());
}

connection::clock::time_point connection::next_look() const {
    if (expired_ || stage_ == stage::call || stage_ == stage::closed) return clock::time_point::max();
    return reads_body() ? std::min(deadline_, pace_.next_look(door_.settings())) : deadline_;
}

void connection::expire(clock::time_point now) {
    if (expired_ || (!is_too_slow(now) && now < deadline_)) return;
    error_code ignored;
    switch (stage_) {
        case stage::head:
        case stage::json:
        case stage::body:
            expired_ = true;
            stream_.socket().cancel(ignored);  // what reads ends, and answers
            break;
        case stage::slot:
            model_->to->forget(*this);
            if (returned_.time().is_over(now)) return refuse(deadline_passed());
            reply(429, "no call to this model became free in time");
            break;
        case stage::call:  // which has a deadline of its own
        case stage::closed:
            break;
        case stage::stream:
            leave();
            break;
        case stage::handshake:
        case stage::idle:
        case stage::write:
        case stage::linger:
            close();
    }
}

void connection::drain() {
    if (stage_ == stage::idle || stage_ == stage::handshake) close();
}

bool connection::has_begun() {
    error_code failed;
    return stage_ == stage::idle && (read_ahead_.size() > 0 || stream_.socket().available(failed) > 0);
}

/// One wait at a time; whatever the connection does when it ends decides what it means.
void connection::watch() {
    if (std::exchange(watching_, true)) return;
    if (!stream_.encrypted())
        return stream_.socket().async_wait(
            tcp::socket::wait_read,
            [self = shared_from_this()](const error_code& failed) { self->on_readable(failed); });
    // TLS may have read more from the socket already, so only a read tells.
    stream_.async_read_some(read_ahead_.prepare(watch_bytes),
                            [self = shared_from_this()](const error_code& failed, std::size_t size) {
                                self->read_ahead_.commit(size);
                                self->on_readable(failed);
                            });
}

void connection::on_readable(const error_code& failed) {
    watching_ = false;
    if (stage_ == stage::idle) return failed ? close() : read_head();
    if (stage_ != stage::call && stage_ != stage::stream) return;
    if (stream_.encrypted() && failed) leave();
    if (!stream_.encrypted() && !failed) look_for_the_end();
}

/// A client that leaves takes its call with it. One that sends its next request already is not watched any more.
void connection::look_for_the_end() {
    std::byte next{};
    error_code failed;
    const std::size_t got = stream_.socket().receive(asio::buffer(&next, 1), tcp::socket::message_peek, failed);
    if (failed == asio::error::would_block) return watch();
    if (got == 0 || failed) leave();
}

void connection::leave() {
    if (slot_) {
        ++door_.counts().cancelled;
        counted_.cancelled();
        if (!regions_.answers_in_place()) slot_->on->cancel(slot_->id);
    }
    close();
}

void connection::next_request() {
    if (door_.stopping()) return close();
    const auto& limits = door_.settings();
    enter(stage::idle, parser_ ? limits.idle_timeout : limits.head_timeout);
    if (read_ahead_.size() == 0) return watch();
    // Not from here: a client may send many requests ahead, each of which is answered at once.
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
        if (self->stage_ == stage::idle) self->read_head();
    });
}

void connection::read_head() {
    // The first one is due since the connection began.
    const auto due = parser_ ? clock::time_point::max() : deadline_;
    enter(stage::head, door_.settings().head_timeout);
    deadline_ = std::min(deadline_, due);
    door_.deadlines().look_by(*this, next_look());
    head_only_ = false;
    began_ = clock::now();
    parser_.emplace();
    head_bytes_ = 0;
    parser_->header_limit(read_ahead_bytes);  // `is_long_head` has the limit
    // The model's limit holds, and no body is read before that.
    parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
    // Most headers are there whole already. Where reading fails, the next try says why.
    error_code failed;
    if (read_ahead_.size() == 0 && !stream_.encrypted())
        read_ahead_.commit(stream_.socket().read_some(read_ahead_.prepare(first_read_bytes), failed));
    take_head();
}

/// The parser's own limit holds for each part that it takes, so it would depend on how the bytes come.
bool connection::is_long_head(const error_code& failed) const {
    if (failed == http::error::need_more) return head_bytes_ + read_ahead_.size() > max_header_bytes;
    return !failed && head_bytes_ > max_header_bytes;
}

/// The parser takes a header when it is whole.
void connection::take_head() {
    error_code failed = http::error::need_more;
    if (read_ahead_.size() > 0) {
        const std::string_view text{static_cast<const char*>(read_ahead_.data().data()), read_ahead_.size()};
        const std::size_t taken = parser_->put(read_ahead_.data(), failed);
        if (is_folded(text.substr(0, taken))) failed = http::error::bad_field;
        read_ahead_.consume(taken);
        head_bytes_ += taken;
        if (is_long_head(failed)) failed = http::error::header_limit;
    }
    if (failed != http::error::need_more) return on_head(failed);
    stream_.async_read_some(read_ahead_.prepare(first_read_bytes),
                            [self = shared_from_this()](const error_code& broken, std::size_t size) {
                                self->read_ahead_.commit(size);
                                if (broken || self->stage_ != stage::head) return self->on_head(broken);
                                self->take_head();
                            });
}

void connection::on_head(const error_code& failed) {
    if (stage_ != stage::head) return;
    if (failed) return refuse_head(failed);
    counted_.begin(door_.metrics(), began_);
    const auto& head = parser_->get();
    keep_alive_ = head.keep_alive();
    head_only_ = head.method() == http::verb::head;
    const char* const fault = framing_fault(head);
    unread_ = fault != nullptr || parser_->chunked() || parser_->content_length().value_or(0) > 0;
    if (fault != nullptr) return reply(400, fault);
    dispatch();
}

void connection::refuse_head(const error_code& failed) {
    keep_alive_ = false;
    unread_ = true;
    if (expired_) return reply(408, "the header did not arrive in time");
    if (failed == http::error::header_limit || failed == http::error::buffer_overflow)
        return reply(431, "the header is longer than 8 KiB");
    const bool not_http = failed.category() == http::make_error_code(http::error::bad_method).category();
    if (not_http) return reply(400, "this is not a valid HTTP/1.1 request: " + failed.message());
    close();
}

void connection::dispatch() {
    const auto& head = parser_->get();
    if (!has_one_host(head)) {
        keep_alive_ = false;
        return reply(400, "an HTTP/1.1 request must have exactly one Host");
    }
    const auto to = oip::find_route({head.target().data(), head.target().size()});
    const bool health = to && (to.value().what == oip::action::live || to.value().what == oip::action::ready);
    if (!check_token(health)) return;
    if (!to) return refuse(to.error());
    const bool asks = oip::method_of(to.value().what) == "GET";
    if (!(asks ? head.method() == http::verb::get || head_only_ : head.method() == http::verb::post))
        return asks ? reply(405, "the method must be GET or HEAD", "Allow: GET, HEAD\r\n")
                    : reply(405, "the method must be POST", "Allow: POST\r\n");
    what_ = to.value().what;
    if (what_ >= oip::action::region_status) return begin_regions(to.value());
    if (!asks) return begin_infer(to.value());
    answer_get(to.value());
}

bool connection::check_token(bool open_to_all) {
    const auto field = parser_->get()["Authorization"];
    if (open_to_all || door_.tokens().allow({field.data(), field.size()})) return true;
    if (field.empty())
        reply(401, "a token is required: send Authorization: Bearer TOKEN", "WWW-Authenticate: Bearer\r\n");
    else
        reply(401, "this token is not known here", "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n");
    return false;
}

void connection::answer_ready(bool ready, std::string document) {
    if (door_.leaving()) return reply(503, "the door is closing");
    if (!ready) return reply(503, "no server has this model and accepts requests now");
    reply_document(std::move(document));
}

void connection::answer_get(const oip::route& to) {
    auto& models = door_.models();
    const auto named = models.find(to.model);
    if (!to.model.empty()) counted_.set_model(named == models.end() ? door_metrics::unknown_model : named->second.row);
    if (!to.model.empty() && named == models.end()) return reply(404, "there is no model " + oip::in_quotes(to.model));
    std::vector<oip::counted_model> counted;
    bool all_ready = true;
    for (auto& [name, each] : models) {
        if (to.model.empty() || name == to.model) counted.push_back({&each.description, &each.counts});
        all_ready = all_ready && each.to->ready();
    }
    switch (to.what) {
        case oip::action::live:
            return reply_document(oip::live_document());
        case oip::action::ready:
            return answer_ready(all_ready, oip::ready_document());
        case oip::action::model_ready:
            return answer_ready(named->second.to->ready(), oip::model_ready_document(to.model));
        case oip::action::server_metadata:
            return reply_document(
                oip::server_metadata(version_text(), shared_memory::allowed_by(door_.regions().get())));
        case oip::action::model_metadata:
            return reply_document(oip::model_metadata(named->second.description));
        case oip::action::model_configuration:
            return reply_document(oip::model_configuration(named->second.description));
        default:
            return reply_document(oip::model_statistics(counted));
    }
}

void connection::close() {
    if (stage_ == stage::closed) return;
    stage_ = stage::closed;
    drop_parts();
    give_json();
    counted_.drop();
    error_code ignored;
    stream_.socket().close(ignored);
    door_.remove(shared_from_this());
}

}  // namespace accel::examples::serving::doors
