// SPDX-License-Identifier: Apache-2.0
// Any bytes as a send WQE (both kinds of queue pair) and as a receive WQE.
#include "wqe/send_request.hpp"

#include <cstdlib>

namespace {

using namespace accel::softnic;

/// What every caller relies on, whatever the bytes were.
void check(const send_request& request, decode_status status, std::size_t size) {
    if (request.wqebbs == 0 || request.inlined.size() > size) std::abort();
    if (status != decode_status::ok) return;
    std::uint64_t total = 0;
    for (const segment& piece : request.segments) {
        total += piece.length;
        if (piece.inlined && piece.address + piece.length > request.inlined.size()) std::abort();
    }
    if (request.kind == operation::bind && request.window.length >> 32 != 0) std::abort();
    if (total != request.length || request.length > max_message_bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static send_request request;
    static std::vector<segment> segments;
    const auto bytes = std::as_bytes(std::span(data, size));
    for (const bool datagram : {false, true}) {
        // The expected queue pair and index come from the bytes, so that the fuzzer gets past them.
        send_expectation expected{0, 0, datagram, (size & 1) != 0};
        if (size >= 8) {
            expected.index = static_cast<std::uint16_t>(data[1] << 8 | data[2]);
            expected.qpn = static_cast<std::uint32_t>(data[4] << 16 | data[5] << 8 | data[6]);
        }
        check(request, decode_send(bytes, expected, request), size);
    }
    decode_receive(bytes, segments);
    if (segments.size() > size / 16) std::abort();
    return 0;
}
