// SPDX-License-Identifier: Apache-2.0
// Compressed bodies. A request's is read whole, within its model's limits, before a slot is taken.
#include "serving/doors/http/connection.hpp"
#include "serving/doors/http/http_text.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <boost/asio/post.hpp>

namespace accel::examples::serving::doors {

namespace asio = boost::asio;
using coding::content_coding;
using coding::inflater;

namespace {

constexpr std::size_t coded_piece = 16 << 10;
constexpr std::size_t plain_piece = std::size_t{128} << 10;  // in one go, then others have a turn
constexpr std::size_t worth_packing = 1024;

/// The longest that so many bytes become when they cannot be compressed.
std::uint64_t longest_coded(std::uint64_t plain) {
    return plain + plain / 1000 + 1024;
}

}  // namespace

/// `length`: Inference-Header-Content-Length, of the body once it is inflated. False: answered, because it is more than
/// the model takes.
bool connection::plan_coded_body(std::optional<std::string_view> length) {
    const auto& model = model_->description;
    const std::uint64_t max_json = oip::json_input_bytes(model, door_.settings().max_json_bytes);
    plan_.json_bytes = length ? oip::number_of(*length).value_or(max_json + 1) : max_json;
    plan_.binary_bytes = length ? oip::binary_input_bytes(model) : 0;
    plain_limit_ = plan_.json_bytes + plan_.binary_bytes;
    coded_left_ = *parser_->content_length();
    // Where tensors follow the JSON, that says what is wrong with long ones.
    if (plan_.json_bytes <= max_json && (length || coded_left_ <= longest_coded(plain_limit_))) return true;
    reply(413, "the body, or its Inference-Header-Content-Length, is longer than this model needs");
    return false;
}

void connection::read_coded() {
    enter_body(stage::json);
    inflater_ = std::make_unique<inflater>(coding_);
    inflate_some();
}

/// False: answered, because there is no memory for more.
bool connection::grow_plain() {
    if (plain_bytes_ < plain_.size()) return true;
    // One byte more than the limit tells that it is too long.
    const std::size_t wanted = std::min(plain_limit_ + 1, plain_.size() + plain_piece);
    if (!door_.take_json(wanted - plain_.size())) {
        reply(429, "too many compressed requests are being read");
        return false;
    }
    json_taken_ += wanted - plain_.size();
    plain_.resize(wanted);
    return true;
}

void connection::inflate_some() {
    if (stage_ != stage::json || !grow_plain()) return;
    const auto ahead = std::min<std::uint64_t>(read_ahead_.size(), coded_left_);
    std::span<const std::byte> input{static_cast<const std::byte*>(read_ahead_.data().data()), ahead};
    auto room = std::as_writable_bytes(std::span{plain_}).subspan(plain_bytes_);
    const auto now = inflater_->step(input, room);
    read_ahead_.consume(ahead - input.size());
    coded_left_ -= ahead - input.size();
    plain_bytes_ = plain_.size() - room.size();
    if (plain_bytes_ > plain_limit_) return refuse_long();
    if (now == inflater::progress::broken) return reply(400, "the body does not match its Content-Encoding");
    if (now == inflater::progress::whole && coded_left_ > 0)
        return reply(400, "other bytes follow the compressed body");
    if (now == inflater::progress::whole) return on_plain();
    if (room.empty() || !input.empty())
        return asio::post(stream_.get_executor(), [self = shared_from_this()] { self->inflate_some(); });
    if (coded_left_ == 0) return reply(400, "the compressed body is incomplete");
    stream_.async_read_some(read_ahead_.prepare(std::min<std::uint64_t>(coded_piece, coded_left_)),
                            [self = shared_from_this()](const error_code& failed, std::size_t size) {
                                self->read_ahead_.commit(size);
                                self->counted_.received(size);
                                self->pace_.has(self->pace_.bytes() + size);
                                self->on_coded(failed);
                            });
}

void connection::refuse_long() {
    if (has_binary_) {
        json_.assign(plain_, 0, plan_.json_bytes);
        const auto said = read_request();
        drop_json_text();
        if (!said) return refuse(said.error());
    }
    reply(413, "the body is longer than this model accepts, after decompression");
}

void connection::on_coded(const error_code& failed) {
    if (stage_ != stage::json) return;
    if (failed && expired_) return reply(408, "the body did not arrive in time");
    if (failed) return close();
    inflate_some();
}

void connection::on_plain() {
    inflater_.reset();
    unread_ = false;
    if (!has_binary_) plan_.json_bytes = plain_bytes_;
    if (plain_bytes_ < plan_.json_bytes)
        return reply(400, "the body is shorter than its Inference-Header-Content-Length");
    plan_.binary_bytes = plain_bytes_ - plan_.json_bytes;
    json_.assign(plain_, 0, plan_.json_bytes);
    plain_taken_ = plan_.json_bytes;
    take_request();
}

/// As `take_read_ahead`.
std::size_t connection::take_plain(std::span<std::byte> to) {
    const std::size_t count = std::min(to.size(), plain_bytes_ - plain_taken_);
    std::memcpy(to.data(), plain_.data() + plain_taken_, count);
    plain_taken_ += count;
    return count;
}

/// It holds as much memory as the answer meanwhile; where there is none, the answer goes as it is.
bool connection::begin_packing() {
    const std::size_t bytes = body_.head.size() + body_.binary_bytes;
    const auto field = parser_ ? parser_->get()["Accept-Encoding"] : boost::beast::string_view{};
    const auto wanted = coding::accepted_coding({field.data(), field.size()});
    if (wanted == content_coding::identity || bytes < worth_packing || !door_.take_json(bytes)) return false;
    json_taken_ += bytes;
    packing_ = std::make_unique<packed_answer>(wanted);
    enter(stage::write, door_.settings().write_timeout);
    pack_some();
    return true;
}

void connection::pack_some() {
    if (stage_ != stage::write) return abandon();
    if (!packing_->step(body_)) return end_packing();
    asio::post(stream_.get_executor(), [self = shared_from_this()] { self->pack_some(); });
}

/// Its slot is free from here on.
void connection::end_packing() {
    if (!packing_->is_worth_it(body_)) {
        packing_.reset();
        return write_answer(200, {});
    }
    body_ = {std::move(packing_->text()), {}, 0};
    const std::string coded = "Content-Encoding: " + std::string{coding::name_of(packing_->how())} + "\r\n";
    packing_.reset();
    abandon();
    write_answer(200, coded);
}

}  // namespace accel::examples::serving::doors
