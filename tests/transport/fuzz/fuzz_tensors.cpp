// SPDX-License-Identifier: Apache-2.0
// Tensors as a table at the head of a payload, or in front of a message's header with other extensions. Byte 0: the
// reader's room, and from 128 on the latter; then bytes 1 and 2 are the payload's length.
#include "core/metadata_description.hpp"
#include "core/protocol.hpp"
#include "fuzz_target.hpp"

#include <accel_transport/detail/wire/tensor_extension.hpp>
#include <accel_transport/detail/wire/trace_extension.hpp>
#include <accel_transport/tensor.hpp>

#include <algorithm>
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

/// What was read is valid and can be written again, to the byte.
void check_metadata(std::span<const std::byte> entries) {
    metadata_room room;
    const auto read = core::read_metadata(entries, room);
    require(read || read.error() == status::protocol_error, "no other outcome");
    if (!read) return;
    require(core::metadata_bytes(*read) == entries.size(), "all of it is read");
    std::vector<std::byte> again(core::extension_room + entries.size());
    std::byte* const end = again.data() + core::extension_room;
    (void)core::write_metadata_after({end, 0, 0}, end, *read, entries.size());
    require(std::memcmp(end, entries.data(), entries.size()) == 0, "to the byte");
}

/// In front of a header: extensions of a peer, who may say that they are longer than they are.
void read_in_front(tests::input_reader& input, std::uint32_t room) {
    const std::size_t length = input.byte() | std::size_t{input.byte()} << 8;
    const auto given = input.bytes(wire::extension_room);
    std::vector<std::byte> memory(wire::extension_room + sizeof(wire::slot_header));
    std::byte* const at = memory.data() + wire::extension_room;
    if (!given.empty()) std::memcpy(at - given.size(), given.data(), given.size());
    auto& header = *new (at) wire::slot_header;
    header.generation = 1;
    header.extension_bytes = static_cast<std::uint16_t>(given.size() + input.byte());
    trace_context trace;
    const status traced = wire::find_trace(at - given.size(), given.size(), trace);
    require(traced == status::ok || traced == status::protocol_error || traced == status::not_found,
            "no other outcome");
    require((traced == status::ok) == trace.valid(), "what is handed out is a trace");
    require(core::metadata_after(at, 1, length) <= std::min(length, max_metadata_bytes), "it lies in the payload");
    metadata_room entries;
    if (const auto metadata = core::read_metadata(at, 1, entries))
        require(core::metadata_bytes(*metadata) > 0, "only valid metadata is read");
    std::vector<tensor> out(room);
    std::uint32_t count = 0;
    const status read = wire::find_tensors_before(at, 1, length, out.data(), room, count);
    require(read == status::ok || read == status::protocol_error || read == status::message_too_large ||
                read == status::not_found,
            "no other outcome");
    if (read == status::message_too_large) require(count > room && count <= max_tensors, "it says how many");
    if (read != status::ok) return;
    require(count >= 1 && count <= room, "it says how many");
    out.resize(count);
    for (const tensor& each : out) {
        require(each.rank <= max_tensor_rank, "the rank is bounded");
        require(static_cast<long double>(each.offset) + exact_bytes(each) <= static_cast<long double>(length),
                "it lies in the payload");
        require(each.offset % detail::alignment_of(each.type) == 0, "it is aligned");
    }
    const std::size_t bytes = wire::tensor_extension_bytes(out.data(), count);
    require(bytes <= wire::extension_room, "what was read can be written");
    wire::write_tensor_extension(at - bytes, out.data(), count);
    header.extension_bytes = static_cast<std::uint16_t>(bytes);
    std::vector<tensor> again(count);
    require(wire::find_tensors_before(at, 1, length, again.data(), count, count) == status::ok, "and be read again");
    require(std::memcmp(again.data(), out.data(), count * sizeof(tensor)) == 0, "to the byte");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    const std::uint8_t first = input.byte();
    const std::uint32_t room = first % (max_tensors + 1);
    if (first >= 128) {
        read_in_front(input, room);
        return 0;
    }
    // Of its own size, so that every read beyond it is noticed.
    const auto rest = std::as_bytes(input.rest());
    const std::vector<std::byte> payload(rest.begin(), rest.end());
    check_metadata(payload);
    std::vector<tensor> out(room);
    const auto read = tensors(payload, out);
    require(read || read.error() == status::protocol_error || read.error() == status::message_too_large,
            "no other outcome");
    if (!read) return 0;
    const std::size_t count = read->size();
    require(count >= 1 && count <= room && read->data() == out.data(), "it says which");
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
