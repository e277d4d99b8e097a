// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/writer.hpp"

#include "serving/doors/grpc/fields.hpp"

namespace accel::examples::serving::wire {
namespace {

std::uint64_t tag_of(std::uint32_t field, form how) {
    return (std::uint64_t{field} << 3) | static_cast<std::uint64_t>(how);
}

}  // namespace

void writer::varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
}

void writer::number(std::uint32_t field, std::uint64_t value) {
    if (value != 0) present(field, value);
}

void writer::present(std::uint32_t field, std::uint64_t value) {
    varint(tag_of(field, form::varint));
    varint(value);
}

void writer::text(std::uint32_t field, std::string_view value) {
    if (!value.empty()) entry(field, value);
}

void writer::entry(std::uint32_t field, std::string_view value) {
    bytes_follow(field, value.size());
    bytes_ += value;
}

void writer::packed(std::uint32_t field, std::span<const std::uint64_t> values) {
    if (values.empty()) return;
    writer list;
    for (const std::uint64_t each : values) list.varint(each);
    message(field, list);
}

void writer::bytes_follow(std::uint32_t field, std::uint64_t length) {
    varint(tag_of(field, form::bytes));
    varint(length);
}

}  // namespace accel::examples::serving::wire
