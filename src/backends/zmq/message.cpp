// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/message.hpp"

#include <cerrno>
#include <cstring>

namespace accel::zmq {

// Receiving.

namespace {

/// Reads the frames behind the header frame. False: they do not match the header.
[[nodiscard]] bool receive_rest(void* socket, incoming& in) noexcept {
    const std::size_t length = in.header.length;
    bool more = in.body.more();
    bool sound = in.body.size() == core::header_bytes + length;
    in.offset = core::header_bytes;
    if (!sound && in.body.size() == core::header_bytes && more) {
        message_part payload;
        if (!payload.receive(socket)) return false;
        more = payload.more();
        sound = payload.size() == length;
        in.body.take_from(payload);
        in.offset = 0;
    }
    if (sound && in.header.extension_bytes > 0) {
        message_part extensions;
        if (!more || !extensions.receive(socket)) return false;
        more = extensions.more();
        sound = extensions.size() == in.header.extension_bytes;
        if (sound) std::memcpy(in.extensions.data(), extensions.data(), extensions.size());
    }
    for (; more; sound = false) {
        message_part surplus;
        more = surplus.receive(socket) && surplus.more();
    }
    return sound;
}

}  // namespace

bool receive_message(void* socket, core::message_kind kind, incoming& in, status& verdict) noexcept {
    if (!in.body.receive(socket)) return false;
    receive_rest_of_message(socket, kind, in, verdict);
    return true;
}

void receive_rest_of_message(void* socket, core::message_kind kind, incoming& in, status& verdict) noexcept {
    if (in.body.size() < core::header_bytes) {
        drop_rest(socket, in.body);
        verdict = status::protocol_error;
        return;
    }
    in.header = core::read_header(in.body.data());
    verdict = core::check_header(in.header, kind);
    if (verdict == status::ok && (in.header.flags & core::header_flag::fragmented) != 0)
        verdict = status::protocol_error;
    if (verdict != status::ok)
        drop_rest(socket, in.body);
    else if (!receive_rest(socket, in))
        verdict = status::protocol_error;
}

// Sending.

namespace {

/// A client's short message is copied: to account for it would cost more. Its slot's next message follows the answer,
/// so ZeroMQ holds no more of it than without a copy. A server cannot rely on that.
constexpr std::size_t copied_up_to = 1'024;

[[nodiscard]] bool send_copy(void* socket, const std::byte* data, std::size_t size, bool more) noexcept {
    const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
    int sent = -1;
    do {
        sent = zmq_send(socket, data, size, flags);
    } while (sent < 0 && zmq_errno() == EINTR);
    return sent >= 0;
}

[[nodiscard]] bool send_frame(void* socket, std::byte* data, std::size_t size, zmq_free_fn* free, void* hint,
                              bool more) noexcept {
    hand_over(hint);
    zmq_msg_t frame;
    if (zmq_msg_init_data(&frame, data, size, free, hint) != 0) {
        free(data, hint);
        return false;
    }
    const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
    int sent = -1;
    do {
        sent = zmq_msg_send(&frame, socket, flags);
    } while (sent < 0 && zmq_errno() == EINTR);
    if (sent >= 0) return true;
    zmq_msg_close(&frame);
    return false;
}

}  // namespace

bool can_send(in_flight& frames, const core::outgoing& message) noexcept {
    const lent_payload& slot = frames.lent(message.slot);
    return slot.frames.load(std::memory_order_acquire) == 0 &&
           (message.region == nullptr || slot.now.load(std::memory_order_acquire) == lent_payload::state::idle);
}

bool send_message(void* socket, in_flight& frames, const core::slot_memory& memory, const core::outgoing& message,
                  bool tell) noexcept {
    std::byte* const header = memory.header(message.slot);
    std::uint16_t extension_bytes = 0;
    std::memcpy(&extension_bytes, header + offsetof(core::slot_header, extension_bytes), sizeof extension_bytes);
    const bool extended = extension_bytes > 0;
    const bool lent = message.region != nullptr && !message.payload.empty();
    lent_payload& slot = frames.lent(message.slot);

    if (lent) {
        // The payload behind it is counted.
        if (!send_copy(socket, header, core::header_bytes, true)) return false;
        slot.now.store(tell ? lent_payload::state::wanted : lent_payload::state::held, std::memory_order_relaxed);
        if (tell) frames.list().expect();
        frames.enter(slot);
        auto* data = const_cast<std::byte*>(message.payload.data());  // ZeroMQ does not write there
        if (!send_frame(socket, data, message.payload.size(), in_flight::free_lent, &slot, extended)) return false;
    } else {
        const std::size_t size = core::header_bytes + message.payload.size();
        if (!tell && !extended && size <= copied_up_to) return send_copy(socket, header, size, false);
        frames.enter(slot);
        if (!send_frame(socket, header, size, in_flight::free_slot, &slot, extended)) return false;
    }
    if (!extended) return true;
    frames.enter(slot);
    return send_frame(socket, header - extension_bytes, extension_bytes, in_flight::free_slot, &slot, false);
}

}  // namespace accel::zmq
