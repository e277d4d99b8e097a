// SPDX-License-Identifier: Apache-2.0
// What an end of a zmq data path says of itself. Byte 0: which end; then its description.
#include "backends/zmq/description.hpp"
#include "fuzz_target.hpp"

#include <algorithm>
#include <span>

namespace {

using accel::tests::require;

template <class Description>
void check(const accel::result<Description>& parsed, std::span<const std::byte> bytes) {
    if (!parsed) {
        require(parsed.code() == accel::status::protocol_error, "a refusal has this status");
        return;
    }
    const auto again = encode(parsed.value());
    require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()), "it says what it was read as");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace accel;
    tests::input_reader input(data, size);
    const bool client = input.byte() % 2 == 0;
    const auto bytes = std::as_bytes(input.rest());
    if (client) {
        check(zmq::parse_client(bytes), bytes);
    } else {
        const auto parsed = zmq::parse_server(bytes);
        check(parsed, bytes);
        if (parsed) require(parsed.value().port != 0, "there is a port");
    }
    return 0;
}
