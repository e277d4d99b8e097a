// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/in_flight.hpp"
#include "core/backend.hpp"
#include "core/protocol.hpp"

#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <zmq.h>

/// One message on a ZeroMQ data socket (docs/protocol.md, section 3): a frame [header | payload], or the
/// frames [header] [payload]; then a frame [extensions] if the header says so.
namespace accel::zmq {

/// Room of a frame above its payload: header, extensions, what CURVE adds, and a handler's message where
/// responses are tiny.
inline constexpr std::int64_t frame_overhead = 4'096;

/// A client's routing id at a server's ROUTER.
struct client_identity {
    char letter = 'S';
    std::uint8_t version = 1;
    std::uint16_t reserved = 0;
    std::uint32_t index = 0;   ///< of the link at its poller
    std::byte token[16] = {};  ///< of the session
};
static_assert(sizeof(client_identity) == 24);

[[nodiscard]] inline client_identity identity_of(std::uint32_t index, std::span<const std::byte, 16> token) noexcept {
    client_identity identity;
    identity.index = index;
    std::memcpy(identity.token, token.data(), token.size());
    return identity;
}

/// Compares in constant time.
[[nodiscard]] inline bool same_identity(const client_identity& a, const client_identity& b) noexcept {
    std::uint64_t left[3];
    std::uint64_t right[3];
    std::memcpy(left, &a, sizeof left);
    std::memcpy(right, &b, sizeof right);
    return ((left[0] ^ right[0]) | (left[1] ^ right[1]) | (left[2] ^ right[2])) == 0;
}

/// The longest time that one blocking receive sleeps.
inline constexpr int received_asleep_ms = 10;

/// Owns a zmq_msg_t.
class message_part {
  public:
    message_part() noexcept { zmq_msg_init(&content_); }
    message_part(const message_part&) = delete;
    message_part& operator=(const message_part&) = delete;
    ~message_part() { zmq_msg_close(&content_); }

    /// False: nothing there.
    [[nodiscard]] bool receive(void* socket) noexcept {
        int got = -1;
        do {
            got = zmq_msg_recv(&content_, socket, ZMQ_DONTWAIT);
        } while (got < 0 && zmq_errno() == EINTR);
        return got >= 0;
    }
    /// Waits for as long as the socket's ZMQ_RCVTIMEO.
    [[nodiscard]] bool wait(void* socket) noexcept { return zmq_msg_recv(&content_, socket, 0) >= 0; }
    [[nodiscard]] std::byte* data() noexcept { return static_cast<std::byte*>(zmq_msg_data(&content_)); }
    [[nodiscard]] std::size_t size() const noexcept { return zmq_msg_size(&content_); }
    [[nodiscard]] bool more() const noexcept { return zmq_msg_more(&content_) != 0; }
    void take_from(message_part& other) noexcept { zmq_msg_move(&content_, &other.content_); }
    void release() noexcept {
        zmq_msg_close(&content_);
        zmq_msg_init(&content_);
    }
    [[nodiscard]] zmq_msg_t* raw() noexcept { return &content_; }

  private:
    zmq_msg_t content_;
};

/// Drops the rest of a message that began with `last`.
inline void drop_rest(void* socket, const message_part& last) noexcept {
    for (bool more = last.more(); more;) {
        message_part part;
        more = part.receive(socket) && part.more();
    }
}

/// A received message; the payload is at `offset` of `body`.
struct incoming {
    message_part body;
    core::slot_header header;
    std::size_t offset = 0;
    std::array<std::byte, core::extension_room> extensions;  ///< as many as the header says; left uninitialised
};

/// Reads the message that begins on `socket`, whole, and checks its shape. False: nothing there. `verdict` is
/// not `ok` if no correct peer of `kind` sends this.
[[nodiscard]] bool receive_message(void* socket, core::message_kind kind, incoming& in, status& verdict) noexcept;

/// The same for a message whose first frame is in `in.body` already.
void receive_rest_of_message(void* socket, core::message_kind kind, incoming& in, status& verdict) noexcept;

/// Sends header and payload to the socket's peer without a copy, and counts what ZeroMQ then holds of the
/// slot. Only after `can_send`. False: it did not leave whole; zmq_errno() tells why. `tell`: `in_flight`'s
/// list learns when a lent payload is released.
[[nodiscard]] bool send_message(void* socket, in_flight& frames, const core::slot_memory& memory,
                                const core::outgoing& message, bool tell) noexcept;

/// True if ZeroMQ has released all of the slot's last message, so this one can leave. So ZeroMQ holds at most
/// one message per slot for a peer that reads nothing.
[[nodiscard]] bool can_send(in_flight& frames, const core::outgoing& message) noexcept;

}  // namespace accel::zmq
