// SPDX-License-Identifier: Apache-2.0
// The 64 bytes in front of every payload.
#include "core/protocol.hpp"
#include "fuzz_target.hpp"

#include <cstring>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace accel;
    using namespace accel::core;
    if (size < header_bytes) return 0;
    // Not aligned, as on a stream.
    for (std::size_t at = 0; at + header_bytes <= size && at < 8; ++at) {
        const slot_header h = read_header(reinterpret_cast<const std::byte*>(data + at));
        tests::require(std::memcmp(&h, data + at, sizeof h) == 0, "a header is read as it lies there");
        for (const message_kind kind : {message_kind::request, message_kind::response}) {
            if (check_header(h, kind) != status::ok) continue;
            tests::require(h.version == protocol_version && h.kind == kind, "version and kind are checked");
            tests::require(h.slot < max_slots && h.length <= max_payload_bytes, "slot and length are bounded");
            tests::require(h.extension_bytes <= extension_room && h.extension_bytes % 8 == 0,
                           "extensions fit into their room");
            tests::require(to_string(h.code) != "unknown", "the status is one of ours");
        }
    }
    return 0;
}
