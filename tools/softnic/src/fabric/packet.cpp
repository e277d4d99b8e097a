// SPDX-License-Identifier: Apache-2.0
#include "fabric/packet.hpp"

namespace accel::softnic {

std::string_view to_string(packet_kind kind) {
    switch (kind) {
        case packet_kind::send:
            return "send";
        case packet_kind::write:
            return "write";
        case packet_kind::read_request:
            return "read";
        case packet_kind::atomic_request:
            return "atomic";
        case packet_kind::acknowledge:
            return "ack";
        case packet_kind::negative_acknowledge:
            return "nak";
        case packet_kind::read_response:
            return "read_response";
        case packet_kind::atomic_response:
            return "atomic_response";
        case packet_kind::datagram:
            return "datagram";
    }
    return "?";
}

std::string_view to_string(nak_code code) {
    switch (code) {
        case nak_code::sequence:
            return "sequence";
        case nak_code::invalid_request:
            return "invalid_request";
        case nak_code::remote_access:
            return "remote_access";
        case nak_code::remote_operation:
            return "remote_operation";
        case nak_code::receiver_not_ready:
            return "rnr";
    }
    return "?";
}

}  // namespace accel::softnic
