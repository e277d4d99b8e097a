// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/coded_message.hpp"

#include "serving/doors/coding/inflater.hpp"
#include "serving/doors/grpc/infer_message.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace accel::examples::serving::doors {
namespace {

using coding::content_coding;

constexpr unsigned gzip_magic = 0x1f8b;
constexpr unsigned zlib_method = 0x78;  // deflate, with a window of 32 KiB
constexpr unsigned zlib_check = 31;     // divides the first two bytes
constexpr unsigned zlib_dictionary = 0x20;

unsigned first_two_bytes(std::span<const ::grpc::Slice> slices) {
    unsigned out = 0;
    int count = 0;
    for (const ::grpc::Slice& each : slices)
        for (std::size_t i = 0; i < each.size() && count < 2; ++i, ++count) out = out << 8 | each.begin()[i];
    return count == 2 ? out : 0;
}

/// A protobuf message has no field of type 7, as gzip's first byte would be. zlib's would be a field 15.
content_coding coding_that_begins(unsigned first_two) {
    if (first_two == gzip_magic) return content_coding::gzip;
    const bool zlib =
        first_two >> 8 == zlib_method && first_two % zlib_check == 0 && (first_two & zlib_dictionary) == 0;
    return zlib ? content_coding::deflate : content_coding::identity;
}

/// Without a copy.
::grpc::Slice slice_of(std::string text) {
    auto* const kept = new std::string{std::move(text)};
    return {kept->data(), kept->size(), [](void* of) { delete static_cast<std::string*>(of); }, kept};
}

}  // namespace

result<message_slices> slices_of(const ::grpc::ByteBuffer& message, std::size_t limit,
                                 const std::shared_ptr<memory_budget>& memory) {
    message_slices out;
    if (!message.Dump(&out.slices).ok()) return wire::malformed_message();
    const content_coding how = coding_that_begins(first_two_bytes(out.slices));
    if (how == content_coding::identity) return out;
    memory_share share{memory};
    auto plain = coding::inflate_all(how, places_of(out.slices), limit, share);
    if (plain) return message_slices{std::move(share), {slice_of(std::move(plain).value())}, how};
    if (plain.code() == status::message_too_large)
        return oip::refusal(status::message_too_large, "the message is too long after decompression");
    if (plain.code() == status::overloaded)
        return oip::refusal(status::overloaded, "too many compressed messages are being read: try again");
    // A message with an unknown field 15 is no less a message.
    if (how == content_coding::deflate) return out;
    return plain.error();
}

std::vector<wire::slice> places_of(std::span<const ::grpc::Slice> slices) {
    std::vector<wire::slice> out;
    for (const ::grpc::Slice& each : slices) out.push_back(std::as_bytes(std::span{each.begin(), each.size()}));
    return out;
}

result<wire::named_message> read_names(const ::grpc::ByteBuffer& message, std::size_t limit,
                                       const std::shared_ptr<memory_budget>& memory) {
    const auto slices = slices_of(message, limit, memory);
    if (!slices) return slices.error();
    return wire::read_named_message(places_of(slices.value().slices));
}

void compress_answers(::grpc::GenericCallbackServerContext& of, content_coding how) {
    if (how == content_coding::gzip) of.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    if (how == content_coding::deflate) of.set_compression_algorithm(GRPC_COMPRESS_DEFLATE);
}

}  // namespace accel::examples::serving::doors
