// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/clients/grpc_wire.hpp"

#include <algorithm>
#include <charconv>

namespace accel::examples::serving::doors::clients {
namespace {

constexpr std::string_view preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr std::size_t head_bytes = 9;
constexpr std::size_t prefix_bytes = 5;  // of a message of gRPC: compressed or not, and its length
constexpr std::size_t most_per_frame = std::size_t{1} << 20;

// Types of frames.
constexpr std::uint8_t data_frame = 0;
constexpr std::uint8_t headers_frame = 1;
constexpr std::uint8_t reset_frame = 3;
constexpr std::uint8_t settings_frame = 4;
constexpr std::uint8_t push_frame = 5;
constexpr std::uint8_t ping_frame = 6;
constexpr std::uint8_t goodbye_frame = 7;
constexpr std::uint8_t window_frame = 8;
constexpr std::uint8_t continuation_frame = 9;

// Flags.
constexpr std::uint8_t ack = 0x1;
constexpr std::uint8_t end_stream = 0x1;
constexpr std::uint8_t end_headers = 0x4;
constexpr std::uint8_t padded = 0x8;
constexpr std::uint8_t with_priority = 0x20;

// Settings.
constexpr std::uint32_t header_table_size = 1;
constexpr std::uint32_t enable_push = 2;
constexpr std::uint32_t initial_window_size = 4;
constexpr std::uint32_t max_frame_size = 5;

constexpr std::uint32_t cancel_code = 8;

void put_number(std::string& to, std::uint64_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) to += static_cast<char>((value >> shift) & 0xff);
}

std::string big_endian(std::uint64_t value, int bytes) {
    std::string out;
    put_number(out, value, bytes);
    return out;
}

std::uint32_t number_at(std::string_view text, std::size_t at, std::size_t bytes) {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < bytes; ++i) out = (out << 8) | static_cast<std::uint8_t>(text[at + i]);
    return out;
}

void put_setting(std::string& to, std::uint32_t name, std::uint32_t value) {
    put_number(to, name, 2);
    put_number(to, value, 4);
}

/// A header field that is kept in no table (RFC 7541, 6.2.2); both texts are shorter than 127 bytes.
void put_literal(std::string& to, std::string_view start, std::string_view value) {
    to += start;
    to += static_cast<char>(value.size());
    to += value;
}

std::string request_headers(std::string_view path) {
    using namespace std::string_view_literals;
    std::string out{"\x83\x86"};                         // :method POST, :scheme http
    put_literal(out, "\x04"sv, path);                    // :path
    put_literal(out, "\x01"sv, "localhost");             // :authority
    put_literal(out, "\x0f\x10"sv, "application/grpc");  // content-type
    put_literal(out, "\x00\x02te"sv, "trailers");
    return out;
}

/// The value of a field whose name and value stand there in plain text.
std::optional<std::string_view> plain_value(std::string_view headers, std::string_view name) {
    const std::size_t at = headers.find(name);
    if (at == std::string_view::npos || at + name.size() >= headers.size()) return std::nullopt;
    const std::string_view rest = headers.substr(at + name.size());
    std::size_t length = number_at(rest, 0, 1);
    std::size_t begin = 1;
    if (length == 0x7f && rest.size() > 1) length += number_at(rest, begin++, 1) & 0x7f;
    if (length >= 0x80 + 0x7f || begin + length > rest.size()) return std::nullopt;
    return rest.substr(begin, length);
}

/// What is left of a payload without its padding and its priority; nothing where it is malformed.
std::optional<std::string_view> content_of(std::uint8_t flags, bool priority, std::string_view payload) {
    std::size_t front = 0;
    std::size_t back = 0;
    if ((flags & padded) != 0) {
        if (payload.empty()) return std::nullopt;
        back = static_cast<std::uint8_t>(payload.front());
        front = 1;
    }
    if (priority) front += 5;
    if (front + back > payload.size()) return std::nullopt;
    return payload.substr(front, payload.size() - front - back);
}

}  // namespace

grpc_wire::grpc_wire(grpc_flow flow) : flow_(flow), out_(preface) {
    std::string settings;
    put_setting(settings, header_table_size, 0);
    put_setting(settings, enable_push, 0);
    put_setting(settings, initial_window_size, flow_.window);
    put_frame(settings_frame, 0, 0, settings);
    if (flow_.window > 65'535) put_window(0, flow_.window - 65'535);
}

void grpc_wire::put_frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream, std::string_view payload) {
    put_number(out_, payload.size(), 3);
    out_ += static_cast<char>(type);
    out_ += static_cast<char>(flags);
    put_number(out_, stream, 4);
    out_ += payload;
}

void grpc_wire::put_window(std::uint32_t stream, std::uint32_t bytes) {
    put_frame(window_frame, 0, stream, big_endian(bytes, 4));
}

void grpc_wire::open(std::string_view path) {
    stream_ = next_stream_;
    next_stream_ += 2;
    stream_window_ = initial_window_;
    body_.clear();
    body_at_ = 0;
    last_ = last_sent_ = ended_ = false;
    headers_.clear();
    answer_.clear();
    code_.reset();
    sentence_.clear();
    put_frame(headers_frame, end_headers, stream_, request_headers(path));
}

void grpc_wire::send(std::string_view body, bool last) {
    body_.erase(0, body_at_);
    body_at_ = 0;
    body_ += body;
    last_ = last;
    put_body();
}

void grpc_wire::send_message(std::string_view message) {
    send(big_endian(message.size(), prefix_bytes), false);  // its first byte, 0, says that it is not compressed
    send(message, true);
}

void grpc_wire::put_body() {
    while (!last_sent_ && stream_ != 0) {
        const std::int64_t window = std::min(connection_window_, stream_window_);
        const std::size_t room = window > 0 ? static_cast<std::size_t>(window) : 0;
        const std::size_t count = std::min({held_back(), room, largest_frame_, most_per_frame});
        const bool last = last_ && count == held_back();
        if (count == 0 && !last) return;
        put_frame(data_frame, last ? end_stream : std::uint8_t{0}, stream_,
                  std::string_view{body_}.substr(body_at_, count));
        body_at_ += count;
        connection_window_ -= static_cast<std::int64_t>(count);
        stream_window_ -= static_cast<std::int64_t>(count);
        last_sent_ = last;
    }
}

void grpc_wire::reset() {
    put_frame(reset_frame, 0, stream_, big_endian(cancel_code, 4));
    stream_ = 0;
    body_.clear();
    body_at_ = 0;
    ended_ = true;
}

void grpc_wire::ping() {
    put_frame(ping_frame, 0, 0, std::string(8, '\0'));
}

void grpc_wire::sent(std::size_t count) {
    out_at_ += count;
    if (out_at_ < out_.size()) return;
    out_.clear();
    out_at_ = 0;
}

bool grpc_wire::take(std::string_view arrived) {
    in_ += arrived;
    std::string_view rest = in_;
    bool good = true;
    while (good && rest.size() >= head_bytes) {
        const std::size_t length = number_at(rest, 0, 3);
        if (rest.size() < head_bytes + length) break;
        good = take_frame({.type = static_cast<std::uint8_t>(rest[3]),
                           .flags = static_cast<std::uint8_t>(rest[4]),
                           .stream = number_at(rest, 5, 4) & 0x7fff'ffff,
                           .payload = rest.substr(head_bytes, length)});
        rest.remove_prefix(head_bytes + length);
    }
    in_.erase(0, in_.size() - rest.size());
    return good;
}

bool grpc_wire::take_frame(const frame& one) {
    switch (one.type) {
        case data_frame:
            return take_data(one);
        case headers_frame:
        case continuation_frame:
            return take_headers(one);
        case reset_frame:
            ended_ = ended_ || one.stream == stream_;
            return true;
        case settings_frame:
            return take_settings(one);
        case ping_frame:
            take_ping(one);
            return true;
        case window_frame:
            return take_window(one);
        case goodbye_frame:
            return one.payload.size() >= 8 && stream_ != 0 && stream_ <= number_at(one.payload, 0, 4);
        case push_frame:
            return false;
        default:
            return true;
    }
}

void grpc_wire::take_ping(const frame& one) {
    if ((one.flags & ack) != 0) {
        ++pings_answered_;
        return;
    }
    ++pings_taken_;
    if (!deaf_) put_frame(ping_frame, ack, 0, one.payload);
}

bool grpc_wire::take_settings(const frame& one) {
    if ((one.flags & ack) != 0) return true;
    for (std::string_view rest = one.payload; rest.size() >= 6; rest.remove_prefix(6)) {
        const std::uint32_t name = number_at(rest, 0, 2);
        const std::uint32_t value = number_at(rest, 2, 4);
        if (name == max_frame_size) largest_frame_ = value;
        if (name != initial_window_size) continue;
        stream_window_ += std::int64_t{value} - initial_window_;
        initial_window_ = value;
    }
    put_frame(settings_frame, ack, 0, {});
    put_body();
    return true;
}

bool grpc_wire::take_window(const frame& one) {
    if (one.payload.size() != 4) return false;
    const std::uint32_t more = number_at(one.payload, 0, 4);
    if (one.stream == 0) connection_window_ += more;
    if (one.stream != 0 && one.stream == stream_) stream_window_ += more;
    put_body();
    return true;
}

bool grpc_wire::take_data(const frame& one) {
    const auto content = content_of(one.flags, false, one.payload);
    if (!content) return false;
    if (one.stream == stream_) {
        answer_ += *content;
        ended_ = ended_ || (one.flags & end_stream) != 0;
    }
    unreturned_ += static_cast<std::uint32_t>(one.payload.size());
    if (!flow_.renewed || unreturned_ < flow_.window / 2) return true;
    put_window(0, unreturned_);
    if (!ended_ && stream_ != 0) put_window(stream_, unreturned_);
    unreturned_ = 0;
    return true;
}

bool grpc_wire::take_headers(const frame& one) {
    const bool first = one.type == headers_frame;
    const auto content =
        content_of(first ? one.flags : std::uint8_t{0}, first && (one.flags & with_priority) != 0, one.payload);
    if (!content) return false;
    if (one.stream != stream_) return true;
    if (first) headers_.clear();
    headers_ += *content;
    if ((one.flags & end_headers) != 0) read_headers();
    ended_ = ended_ || (first && (one.flags & end_stream) != 0);
    return true;
}

void grpc_wire::read_headers() {
    if (const auto text = plain_value(headers_, "grpc-status")) {
        int code = 0;
        if (std::from_chars(text->data(), text->data() + text->size(), code).ec == std::errc{}) code_ = code;
    }
    if (const auto text = plain_value(headers_, "grpc-message")) sentence_ = *text;
}

std::string_view grpc_wire::message() const noexcept {
    if (answer_.size() < prefix_bytes || answer_.front() != 0) return {};
    const std::size_t length = number_at(answer_, 1, 4);
    if (answer_.size() != prefix_bytes + length) return {};
    return std::string_view{answer_}.substr(prefix_bytes);
}

}  // namespace accel::examples::serving::doors::clients
