// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/clients/http_wire.hpp"

#include <charconv>

namespace accel::examples::serving::doors::clients {
namespace {

constexpr std::string_view end_of_head = "\r\n\r\n";
constexpr std::string_view protocol = "HTTP/1.1 ";

}  // namespace

std::size_t decimal(std::string_view text) noexcept {
    std::size_t out = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
    return read.ec == std::errc{} ? out : 0;
}

void http_wire::ask(std::string_view request) {
    out_.erase(0, out_at_);
    out_at_ = 0;
    out_ += request;
    in_.clear();
    body_at_ = 0;
    ended_ = false;
}

void http_wire::sent(std::size_t count) {
    out_at_ += count;
    if (out_at_ < out_.size()) return;
    out_.clear();
    out_at_ = 0;
}

bool http_wire::take(std::string_view arrived) {
    if (arrived.empty()) return true;
    if (ended_) return false;
    in_ += arrived;
    if (body_at_ == 0 && !read_head()) return false;
    if (body_at_ == 0) return true;
    ended_ = in_.size() == body_at_ + length_;
    return in_.size() <= body_at_ + length_;
}

/// False: it is no answer. One that is not whole yet is none to read.
bool http_wire::read_head() {
    const std::size_t end = in_.find(end_of_head);
    if (end == std::string::npos) return true;
    if (!in_.starts_with(protocol)) return false;
    body_at_ = end + end_of_head.size();
    status_ = static_cast<int>(decimal(std::string_view{in_}.substr(protocol.size(), 3)));
    length_ = decimal(field("Content-Length").value_or("0"));
    return true;
}

std::optional<std::string_view> http_wire::field(std::string_view name) const {
    const std::string_view head = std::string_view{in_}.substr(0, body_at_);
    const std::string start = "\r\n" + std::string{name} + ": ";
    const std::size_t at = head.find(start);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view rest = head.substr(at + start.size());
    return rest.substr(0, rest.find("\r\n"));
}

}  // namespace accel::examples::serving::doors::clients
