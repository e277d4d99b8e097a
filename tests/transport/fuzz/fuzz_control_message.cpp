// SPDX-License-Identifier: Apache-2.0
// Messages of the control plane.
#include "core/control/control_message.hpp"
#include "fuzz_target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace accel;
    using namespace accel::core;
    const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
    (void)question_of_malformed(bytes);
    (void)answer_of_malformed(bytes);
    const auto decoded = decode_control(bytes);
    if (!decoded) {
        tests::require(!decoded.error().message.empty(), "a refusal has a sentence");
        return 0;
    }
    const auto encoded = encode_control(decoded.value());
    tests::require(encoded.size() <= max_control_bytes, "a message has its bound");
    const auto again = decode_control(encoded);
    tests::require(again.ok(), "what was decoded can be encoded");
    tests::require(
        again.value().body.index() == decoded.value().body.index() && again.value().request == decoded.value().request,
        "and is the same");
    tests::require(encode_control(again.value()) == encoded, "to the byte");
    return 0;
}
