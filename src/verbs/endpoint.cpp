// SPDX-License-Identifier: Apache-2.0
#include "verbs/endpoint.hpp"

#include "core/protocol.hpp"
#include "core/slot_memory.hpp"

#include <cstring>

#include <infiniband/verbs.h>

namespace accel::verbs {

result<endpoint> parse_endpoint(std::span<const std::byte> bytes) {
    endpoint out;
    constexpr std::size_t shortest = 64;
    if (bytes.size() != shortest && bytes.size() != sizeof out)
        return error{status::protocol_error, 0, "the peer's description of its queue pair has a wrong length"};
    std::memcpy(&out, bytes.data(), bytes.size());
    if (out.format != endpoint{}.format)
        return error{status::version_mismatch, 0, "the peer's description of its queue pair has an unknown form"};
    constexpr std::uint32_t limit_24_bits = 1U << 24;
    const bool layer_known = out.layer == link_layer::infiniband || out.layer == link_layer::ethernet;
    const bool sane = layer_known && out.mtu >= IBV_MTU_256 && out.mtu <= IBV_MTU_4096 &&
                      (out.flags & ~(payloads_apart | plain_arrivals)) == 0 && bytes.size() == out.size_bytes() &&
                      (!out.apart() || out.payloads_stride != 0) && (out.apart() || !out.wants_plain()) &&
                      out.queue_pair < limit_24_bits && out.first_psn < limit_24_bits && out.slots != 0 &&
                      out.slots_stride != 0;
    if (!sane) return error{status::protocol_error, 0, "the peer's description of its queue pair is malformed"};
    return out;
}

std::vector<std::byte> to_bytes(const endpoint& own) {
    std::vector<std::byte> out(own.size_bytes());
    std::memcpy(out.data(), &own, out.size());
    return out;
}

result<void> check_slots(const endpoint& peer, std::uint32_t slots, std::size_t capacity) {
    const std::size_t behind_header = peer.apart() ? core::slot_memory::text_room : capacity;
    const bool fits = peer.slots_stride >= core::extension_room + core::header_bytes + behind_header &&
                      (!peer.apart() || peer.payloads_stride >= capacity);
    if (peer.slots == slots && fits) return {};
    return error{status::protocol_error, 0, "the peer's slots differ from the agreed ones"};
}

}  // namespace accel::verbs
