// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/message.hpp"

namespace accel::zmq {
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

}  // namespace accel::zmq
