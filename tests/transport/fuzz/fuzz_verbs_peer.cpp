// SPDX-License-Identifier: Apache-2.0
// What a peer over verbs says of itself, and the extensions in front of its requests.
#include "core/protocol.hpp"
#include "fuzz_target.hpp"
#include "verbs/endpoint.hpp"

#include <accel_transport/detail/wire/response_target.hpp>

#include <cstring>
#include <span>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace accel;
    const auto bytes = std::as_bytes(std::span{data, size});
    const auto peer = verbs::parse_endpoint(bytes);
    if (peer) {
        const verbs::endpoint& e = peer.value();
        tests::require(size == e.size_bytes() && std::memcmp(&e, data, size) == 0, "it is read as it lies there");
        tests::require(e.mtu >= 1 && e.mtu <= 5, "the MTU is one there is");
        tests::require(e.queue_pair < (1U << 24) && e.first_psn < (1U << 24), "numbers have 24 bits");
        tests::require(e.slots > 0 && e.slots_stride > 0, "there are slots");
        tests::require(!e.apart() || e.payloads_stride > 0, "and payloads, where they lie apart");
        const auto again = verbs::to_bytes(e);
        tests::require(again.size() == size && std::memcmp(again.data(), data, size) == 0, "it travels as it was read");
        constexpr std::size_t capacity = 4096;
        if (verbs::check_slots(e, 8, capacity)) {
            const std::uint64_t behind = e.apart() ? e.payloads_stride : e.slots_stride - core::header_bytes;
            tests::require(e.slots == 8 && behind >= capacity, "slots have room for what was agreed on");
        }
    } else {
        tests::require(!peer.error().message.empty(), "a refusal has a sentence");
    }
    wire::response_target place;
    if (wire::find_response_target(bytes.data(), bytes.size(), place) && place.length > 0)
        tests::require(size >= sizeof(wire::response_target_extension), "a response target has been there");
    return 0;
}
