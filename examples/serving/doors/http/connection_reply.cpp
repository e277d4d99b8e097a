// SPDX-License-Identifier: Apache-2.0
// Answers. Tensors are written from where the channel has put them, and their slot is released afterwards.
#include "serving/doors/http/connection.hpp"
#include "serving/doors/http/http_text.hpp"
#include "serving/doors/shared_memory/base64.hpp"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

namespace accel::examples::serving::doors {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr std::chrono::milliseconds linger_time{1'000};
constexpr std::size_t answer_piece = std::size_t{64} << 10;  // of JSON, written in one go

/// So many bytes have been written.
void drop_front(std::vector<asio::const_buffer>& from, std::size_t count) {
    auto first = from.begin();
    for (; first != from.end() && first->size() <= count; ++first) count -= first->size();
    if (first != from.end()) *first += count;
    from.erase(from.begin(), first);
}

/// Tells the client which trace its request was in, and with what baggage.
std::string trace_lines(const trace_context& trace, std::string_view baggage) {
    std::string out = trace.valid() ? "traceparent: " + trace.format() + "\r\n" : std::string{};
    return baggage.empty() ? out : out + "baggage: " + std::string{baggage} + "\r\n";
}

}  // namespace

void connection::on_answer(door_channel& on, const completion& from) {
    if (model_ != nullptr) model_->to->heard(on, from);
    const bool unseen = stage_ == stage::call && !has_part();
    if (unseen && model_->to->take_back(from, *slot_, request_.payload.bytes(), returned_)) return offer_again();
    if (stage_ == stage::call) counted_.enter(request_stage::answer);
    if (what_ != oip::action::infer) return on_part(on, from);
    slot_ = call_slot{&on, from.id, {}};
    if (stage_ != stage::call) return abandon();  // its client has left
    answer(on, from);
}

void connection::answer(door_channel& on, const completion& from) {
    if (from.status != status::ok) {
        const error why = failure_of(*model_, from);
        abandon();
        return refuse(why);
    }
    if (auto passed = pass_back_metadata(from); !passed) {
        abandon();
        return refuse(passed.error());
    }
    const auto& model = model_->description;
    auto outputs = oip::answered_tensors(model, on.tensors(from), from.response);
    if (auto kept = regions_.check_kept(); outputs && !kept) outputs = kept.error();
    if (outputs)
        if (auto copied = regions_.copy_out(model, outputs.value(), from.response); !copied) outputs = copied.error();
    if (!outputs) {
        abandon();
        return refuse(outputs.error());
    }
    oip::answer_maker maker{model, request_.id, request_.outputs, std::move(outputs).value(), from.response};
    const std::uint64_t longest = maker.longest_json();
    if (!door_.take_json(longest)) {
        abandon();
        return reply(429, "too many answers in JSON are being written");
    }
    json_taken_ += longest;
    writing_.emplace(answer_in_json{std::move(maker), longest, from.timeline});
    enter(stage::write, door_.settings().write_timeout);
    write_some();
}

result<void> connection::pass_back_metadata(const completion& from) {
    return pass_back(from, door_.settings().passed_headers, [this](std::string_view key, std::string_view value) {
        passed_back_ += key;
        passed_back_ += ": ";
        passed_back_ += is_binary(key) ? shared_memory::to_base64(value) : std::string{value};
        passed_back_ += "\r\n";
    });
}

/// In pieces, between which other clients have their turn. The answer keeps its slot until all numbers are text.
void connection::write_some() {
    if (stage_ != stage::write) return abandon();
    const auto more = writing_->maker.step(answer_piece);
    if (more && more.value())
        return asio::post(stream_.get_executor(), [self = shared_from_this()] { self->write_some(); });
    auto done = *std::exchange(writing_, std::nullopt);
    if (!more) {
        abandon();
        return refuse(more.error());
    }
    const std::uint64_t unused = done.taken - std::min<std::uint64_t>(done.taken, done.maker.made().head.size());
    door_.give_json(unused);
    json_taken_ -= unused;
    count_success(model_->counts, clock::now() - began_, done.stages);
    reply_tensors(std::move(done.maker.made()));
}

void connection::reply_document(std::string document) {
    body_ = {std::move(document), {}, 0};
    send(200);
}

void connection::reply_tensors(oip::infer_answer made) {
    body_ = std::move(made);
    send(200);
}

void connection::reply(int http_status, std::string_view sentence, std::string_view more) {
    if (model_ != nullptr) count_failure(model_->counts, clock::now() - began_);
    passed_back_.clear();
    give_json();
    body_ = {oip::error_document(sentence), {}, 0};
    send(http_status, more);
}

void connection::count(int http_status) {
    ++door_.counts().requests;
    if (!counted_.counts()) counted_.begin(door_.metrics());  // its header was no good
    counted_.answered(http_status);
    if (http_status != 200) ++door_.counts().errors;
}

void connection::send(int http_status, std::string_view more) {
    count(http_status);
    body_json_bytes_ = body_.tensors.empty() ? 0 : body_.head.size();
    if (http_status != 200 || !begin_packing()) write_answer(http_status, more);
}

void connection::write_answer(int http_status, std::string_view more) {
    close_after_ = !keep_alive_ || unread_ || door_.stopping();
    header_ = header_text({.http_status = http_status,
                           .body_bytes = body_.head.size() + body_.binary_bytes,
                           .json_bytes = body_json_bytes_,
                           .keep_alive = !close_after_,
                           .more = std::string{more} + trace_lines(trace(), baggage()) + passed_back_});
    if (head_only_) body_ = {};
    if (body_.tensors.empty()) abandon();  // the answer is a copy: no slow reader keeps the slot
    // TLS makes a record of each piece.
    const bool in_one_piece = stream_.encrypted();
    if (in_one_piece) header_ += body_.head;
    pieces_.clear();
    pieces_.emplace_back(header_.data(), header_.size());
    if (!in_one_piece && !body_.head.empty()) pieces_.emplace_back(body_.head.data(), body_.head.size());
    for (const auto& each : body_.tensors) pieces_.emplace_back(each.data(), each.size());
    enter(stage::write, door_.settings().write_timeout);
    write_pieces();
}

/// What the socket takes at once needs no further turn of the loop.
void connection::write_pieces() {
    std::size_t sent = 0;
    error_code failed;
    if (!stream_.encrypted()) sent = stream_.socket().write_some(pieces_, failed);
    drop_front(pieces_, sent);
    if (pieces_.empty()) return on_sent({}, sent);
    asio::async_write(stream_, pieces_, [self = shared_from_this(), sent](const error_code& broken, std::size_t more) {
        self->on_sent(broken, sent + more);
    });
}

void connection::on_sent(const error_code& failed, std::size_t bytes) {
    abandon();
    counted_.sent(bytes);
    if (stage_ != stage::write) return;
    if (failed)
        counted_.drop();
    else
        counted_.end();
    give_json();
    body_ = {};
    model_ = nullptr;
    passed_.reset();
    passed_back_.clear();
    returned_ = {};
    of_regions_.reset();
    expired_ = false;
    if (failed) return close();
    if (close_after_) return linger();
    next_request();
}

/// A client that still sends would lose the answer if the socket were closed with bytes unread.
void connection::linger() {
    if (stream_.encrypted() && !unread_) {
        enter(stage::linger, linger_time);
        return stream_.async_shutdown([self = shared_from_this()](const error_code&) { self->close(); });
    }
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    if (!unread_) return close();
    enter(stage::linger, linger_time);
    discard();
}

void connection::discard() {
    read_ahead_.clear();
    stream_.socket().async_read_some(read_ahead_.prepare(4096),
                                     [self = shared_from_this()](const error_code& failed, std::size_t) {
                                         if (failed) return self->close();
                                         if (self->stage_ == stage::linger) self->discard();
                                     });
}

}  // namespace accel::examples::serving::doors
