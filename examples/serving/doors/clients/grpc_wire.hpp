// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace accel::examples::serving::doors::clients {

/// How much of its answers a client takes.
struct grpc_flow {
    std::uint32_t window = std::uint32_t{16} << 20;  ///< bytes that the server may send ahead, up to 2^31 - 1
    bool renewed = true;                             ///< false: `window` bytes of each call, and no more
};

/// A client of gRPC on one connection of HTTP/2 (RFC 9113), a call after the other, without a socket: bytes that have
/// to be sent come out, bytes that arrived go in. It asks for headers without compression, and understands no other.
class grpc_wire {
  public:
    explicit grpc_wire(grpc_flow flow = {});

    /// Opens a call and forgets the one before.
    void open(std::string_view path);
    /// Sends bytes of the call's body, as soon as the server's windows let it; with `last`, none follow.
    void send(std::string_view body, bool last);
    /// Sends one message as the whole body.
    void send_message(std::string_view message);
    /// Ends the call without an answer.
    void reset();
    /// Asks for a sign of life.
    void ping();
    /// Such signs.
    [[nodiscard]] std::size_t pings_answered() const noexcept { return pings_answered_; }
    /// The server's own pings, to which this end gives signs of life unless it is `deaf`.
    [[nodiscard]] std::size_t pings_taken() const noexcept { return pings_taken_; }
    void be_deaf() noexcept { deaf_ = true; }

    /// What has to be sent now, and how much of it has been.
    [[nodiscard]] std::string_view unsent() const noexcept { return std::string_view{out_}.substr(out_at_); }
    void sent(std::size_t count);
    /// False: this is no HTTP/2, or the server ends the connection.
    [[nodiscard]] bool take(std::string_view arrived);

    /// True: no more of the answer comes.
    [[nodiscard]] bool ended() const noexcept { return ended_; }
    /// Bytes of the body that wait for a window of the server's.
    [[nodiscard]] std::size_t held_back() const noexcept { return body_.size() - body_at_; }
    /// The only message of the answer; empty: there is none, or not yet.
    [[nodiscard]] std::string_view message() const noexcept;
    [[nodiscard]] const std::string& body() const noexcept { return answer_; }
    /// The code and the sentence that the call ended with; nothing where the server wrote none in plain text.
    [[nodiscard]] std::optional<int> code() const noexcept { return code_; }
    [[nodiscard]] const std::string& sentence() const noexcept { return sentence_; }

  private:
    struct frame {
        std::uint8_t type;
        std::uint8_t flags;
        std::uint32_t stream;
        std::string_view payload;
    };

    void put_frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream, std::string_view payload);
    void put_window(std::uint32_t stream, std::uint32_t bytes);
    void put_body();
    [[nodiscard]] bool take_frame(const frame& one);
    void take_ping(const frame& one);
    [[nodiscard]] bool take_settings(const frame& one);
    [[nodiscard]] bool take_window(const frame& one);
    [[nodiscard]] bool take_data(const frame& one);
    [[nodiscard]] bool take_headers(const frame& one);
    void read_headers();

    grpc_flow flow_;
    std::string out_;
    std::size_t out_at_ = 0;
    std::string in_;

    // Of the server's.
    std::int64_t connection_window_ = 65'535;
    std::int64_t stream_window_ = 0;
    std::int64_t initial_window_ = 65'535;
    std::size_t largest_frame_ = 16'384;
    std::size_t pings_answered_ = 0;
    std::size_t pings_taken_ = 0;
    bool deaf_ = false;
    std::uint32_t unreturned_ = 0;  ///< bytes that arrived since the last renewal

    // The call.
    std::uint32_t stream_ = 0;  ///< 0: none
    std::uint32_t next_stream_ = 1;
    std::string body_;
    std::size_t body_at_ = 0;
    bool last_ = false;       ///< `body_` is all that follows
    bool last_sent_ = false;  ///< and the server knows
    bool ended_ = false;
    std::string headers_;
    std::string answer_;
    std::optional<int> code_;
    std::string sentence_;
};

}  // namespace accel::examples::serving::doors::clients
