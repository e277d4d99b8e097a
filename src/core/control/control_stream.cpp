// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_stream.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <sys/socket.h>

namespace accel::core {
namespace {

constexpr std::size_t length_bytes = sizeof(std::uint32_t);

}  // namespace

tls_outcome control_stream::fill() {
    if (input_.empty()) input_.resize(input_bytes);
    std::memmove(input_.data(), input_.data() + taken_, filled_ - taken_);
    filled_ -= taken_;
    taken_ = 0;
    if (filled_ == input_.size()) return tls_outcome::done;  // whole frames wait to be taken
    std::size_t count = 0;
    const tls_outcome read = receive_some(fd(), tls(), std::span(input_).subspan(filled_), count);
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

void control_stream::put_back(std::span<const std::byte> message) noexcept {
    taken_ -= length_bytes + message.size();
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
    return flush() != tls_outcome::failed;
}

tls_outcome control_stream::flush() noexcept {
    std::size_t sent = 0;
    tls_outcome last = tls_outcome::done;
    while (sent < output_.size() && last == tls_outcome::done) {
        std::size_t count = 0;
        last = send_some(fd(), tls(), std::span(output_).subspan(sent), count);
        sent += count;
    }
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(sent));
    return last == tls_outcome::closed ? tls_outcome::failed : last;
}

void control_stream::finish() noexcept {
    if (tls_) tls_->shut_down();
    if (socket_.open()) ::shutdown(socket_.get(), SHUT_WR);
}

}  // namespace accel::core
