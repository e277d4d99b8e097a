// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/stream_messages.hpp"

#include "serving/doors/grpc/writer.hpp"

#include <cstdint>
#include <utility>

namespace accel::examples::serving::wire {
namespace {

constexpr std::uint32_t error_message = 1;
constexpr std::uint32_t infer_response_field = 2;

std::uint64_t bytes_of_all(const infer_response& from) {
    std::uint64_t out = 0;
    for (const auto& each : from.heads) out += each.size();
    for (const auto& each : from.tensors) out += each.size();
    return out;
}

/// Puts a response into the field of the message around it.
infer_response within_stream(infer_response inner) {
    writer around;
    around.bytes_follow(infer_response_field, bytes_of_all(inner));
    inner.heads.front().insert(0, around.bytes());
    return inner;
}

}  // namespace

infer_response make_stream_response(const oip::model_description& model, std::string_view id,
                                    std::span<const oip::output_choice> chosen, std::span<const tensor> outputs,
                                    std::span<const std::byte> payload, bool last) {
    return within_stream(make_response(model, id, chosen, outputs, payload, last));
}

infer_response empty_stream_response(const oip::model_description& model, std::string_view id) {
    return within_stream({{response_head(model.name, id, true).take()}, {}});
}

infer_response stream_error(std::string_view id, std::string_view sentence) {
    writer message;
    message.text(error_message, sentence);
    infer_response inner = within_stream({{response_head({}, id, true).take()}, {}});
    inner.heads.front().insert(0, message.bytes());
    return inner;
}

}  // namespace accel::examples::serving::wire
