// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/control_message.hpp"
#include "core/net/unique_fd.hpp"
#include "core/tls/tls_stream.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace accel::core {

/// A control connection: messages in frames, with or without TLS, over a non-blocking socket. A frame is a length, 4
/// bytes little-endian, and as many bytes: one message. Bounded both ways; never blocks. One thread.
class control_stream {
  public:
    explicit control_stream(unique_fd socket) noexcept : socket_(std::move(socket)) {}
    control_stream(control_stream&&) noexcept = default;
    control_stream& operator=(control_stream&&) noexcept = default;

    [[nodiscard]] int fd() const noexcept { return socket_.get(); }
    /// From now on bytes go through TLS.
    void encrypt(tls_stream tls) { tls_.emplace(std::move(tls)); }
    [[nodiscard]] tls_stream* tls() noexcept { return tls_ ? &*tls_ : nullptr; }
    [[nodiscard]] const tls_stream* tls() const noexcept { return tls_ ? &*tls_ : nullptr; }

    /// Reads once, as much as there is room for. `done`: something came.
    [[nodiscard]] tls_outcome fill();
    /// The bytes that have come and were not taken.
    [[nodiscard]] std::span<const std::byte> received() const noexcept {
        return std::span(input_).subspan(taken_, filled_ - taken_);
    }
    void take(std::size_t count) noexcept { taken_ += count; }
    /// The next whole message, if it has come; valid until `fill`. `violated`: none can follow.
    [[nodiscard]] std::optional<std::span<const std::byte>> next_message() noexcept;
    /// The last one comes again.
    void put_back(std::span<const std::byte> message) noexcept;
    [[nodiscard]] bool violated() const noexcept { return violated_; }
    /// True while TLS holds bytes that the socket will not tell of again. Part of a record counts, so that
    /// this asks for another `fill` only after one that was `done`.
    [[nodiscard]] bool holds_input() const noexcept { return tls_ && tls_->holds_input(); }

    /// Queues a message and sends what the socket takes. False: the peer reads nothing, and too much waits.
    [[nodiscard]] bool send(const control_message& message);
    /// The same with bytes as they are, before any message.
    [[nodiscard]] bool send_raw(std::span<const std::byte> bytes);
    /// Sends what waits.
    [[nodiscard]] tls_outcome flush() noexcept;
    [[nodiscard]] bool wants_to_write() const noexcept { return !output_.empty(); }
    /// Bytes that wait for the socket.
    [[nodiscard]] std::size_t unsent() const noexcept { return output_.size(); }

    /// Gives up socket and TLS, for somebody else to go on with.
    struct parts {
        unique_fd socket;
        std::optional<tls_stream> tls;
    };
    [[nodiscard]] parts release() noexcept { return {std::move(socket_), std::move(tls_)}; }
    /// Nothing more is sent; the peer hears so.
    void finish() noexcept;

  private:
    static constexpr std::size_t input_bytes = 2 * (max_control_bytes + 4);
    static constexpr std::size_t max_output_bytes = 256 << 10;

    unique_fd socket_;
    std::optional<tls_stream> tls_;
    std::vector<std::byte> input_;  ///< empty until the first read
    std::size_t taken_ = 0;
    std::size_t filled_ = 0;
    std::vector<std::byte> output_;
    bool violated_ = false;
};

}  // namespace accel::core
