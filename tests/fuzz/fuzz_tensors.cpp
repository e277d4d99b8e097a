// SPDX-License-Identifier: Apache-2.0
// The table of tensors at the head of a payload. Byte 0: the reader's room.
#include "fuzz_target.hpp"

#include <accel_transport/tensor.hpp>

#include <array>
#include <cstring>
#include <vector>

namespace {

using namespace accel;
using tests::require;

/// As `size_bytes`, in numbers that cannot overflow: 24 + 8 × 32 bits.
long double exact_bytes(const tensor& one) {
    long double bits = static_cast<long double>(one.type.bits) * one.type.lanes;
    for (std::uint32_t i = 0; i < one.rank; ++i) bits *= one.shape[i];
    return bits / 8;
}

void check(const tensor& one, std::span<const std::byte> payload, std::size_t count) {
    require(one.rank <= max_tensor_rank, "the rank is bounded");
    require(one.offset >= 16 + count * sizeof(tensor), "no tensor lies on the table");
    require(one.offset + exact_bytes(one) <= static_cast<long double>(payload.size()), "it lies in the payload");
    unsigned sum = 0;
    for (const std::byte each : bytes_of(one, payload)) sum += std::to_integer<unsigned>(each);
    require(sum <= 255 * payload.size(), "all of it can be read");
    require(one.offset % detail::alignment_of(one.type) == 0, "it is aligned");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    const std::size_t room = input.byte() % (max_tensors + 1);
    // Of its own size, so that every read beyond it is noticed.
    const auto rest = std::as_bytes(input.rest());
    const std::vector<std::byte> payload(rest.begin(), rest.end());
    std::vector<tensor> out(room);
    std::size_t count = 0;
    const status read = tensors(payload, out, count);
    require(read == status::ok || read == status::protocol_error || read == status::message_too_large,
            "no other outcome");
    if (read == status::message_too_large) require(count > room && count <= max_tensors, "it says how many");
    if (read != status::ok) return 0;
    require(count >= 1 && count <= room, "it says how many");
    out.resize(count);
    for (const tensor& each : out) check(each, payload, count);
    std::vector<std::byte> again = payload;
    std::memset(again.data(), 0, 16 + count * sizeof(tensor));
    require(describe(again, out) == status::ok, "what was read can be written");
    require(again == payload, "to the byte");
    const std::uint64_t length = place_tensors(out);
    require(length > 0 && length >= out.back().offset, "and be placed anew");
    return 0;
}
