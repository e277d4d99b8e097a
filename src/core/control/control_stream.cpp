// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_stream.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <sys/socket.h>

namespace accel::core {
namespace {

using outcome = control_stream::outcome;

constexpr std::size_t length_bytes = sizeof(std::uint32_t);

outcome outcome_of(tls_outcome result) noexcept {
    switch (result) {
        case tls_outcome::done:
            return outcome::ok;
        case tls_outcome::wants_read:
        case tls_outcome::wants_write:
            return outcome::idle;
        case tls_outcome::closed:
            return outcome::closed;
        case tls_outcome::failed:
            break;
    }
    return outcome::failed;
}

outcome outcome_of_errno() noexcept {
    const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    return later ? outcome::idle : outcome::failed;
}

}  // namespace

outcome control_stream::read_some(std::span<std::byte> into, std::size_t& count) noexcept {
    if (tls_) return outcome_of(tls_->read(into, count));
    const ssize_t got = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
    if (got == 0) return outcome::closed;
    if (got < 0) return outcome_of_errno();
    count = static_cast<std::size_t>(got);
    return outcome::ok;
}

outcome control_stream::write_some(std::span<const std::byte> from, std::size_t& count) noexcept {
    if (tls_) return outcome_of(tls_->write(from, count));
    const ssize_t put = ::send(socket_.get(), from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0) return outcome_of_errno();
    count = static_cast<std::size_t>(put);
    return outcome::ok;
}

outcome control_stream::fill() noexcept {
    if (input_.empty()) input_.resize(input_bytes);
    std::memmove(input_.data(), input_.data() + taken_, filled_ - taken_);
    filled_ -= taken_;
    taken_ = 0;
    if (filled_ == input_.size()) return outcome::ok;  // whole frames wait to be taken
    std::size_t count = 0;
    const outcome read = read_some(std::span(input_).subspan(filled_), count);
    filled_ += count;
    return read;
}

std::optional<std::span<const std::byte>> control_stream::next_message() noexcept {
    const auto waiting = received();
    std::uint32_t length = 0;
    if (waiting.size() < length_bytes) return std::nullopt;
    std::memcpy(&length, waiting.data(), length_bytes);
    violated_ = violated_ || length == 0 || length > max_control_bytes;
    if (violated_ || waiting.size() < length_bytes + length) return std::nullopt;
    take(length_bytes + length);
    return waiting.subspan(length_bytes, length);
}

bool control_stream::send(const control_message& message) {
    const std::vector<std::byte> bytes = encode_control(message);
    const auto length = static_cast<std::uint32_t>(bytes.size());
    std::vector<std::byte> frame(length_bytes + bytes.size());
    std::memcpy(frame.data(), &length, length_bytes);
    std::copy(bytes.begin(), bytes.end(), frame.begin() + length_bytes);
    return send_raw(frame);
}

bool control_stream::send_raw(std::span<const std::byte> bytes) {
    if (output_.size() + bytes.size() > max_output_bytes) return false;
    output_.insert(output_.end(), bytes.begin(), bytes.end());
    return flush() != outcome::failed;
}

outcome control_stream::flush() noexcept {
    std::size_t sent = 0;
    outcome last = outcome::ok;
    while (sent < output_.size() && last == outcome::ok) {
        std::size_t count = 0;
        last = write_some(std::span(output_).subspan(sent), count);
        sent += count;
    }
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(sent));
    return last == outcome::closed ? outcome::failed : last;
}

void control_stream::finish() noexcept {
    if (tls_) tls_->shut_down();
    if (socket_.open()) ::shutdown(socket_.get(), SHUT_WR);
}

}  // namespace accel::core
