// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/response.hpp"

#include "serving/doors/grpc/messages.hpp"
#include "serving/doors/grpc/stream_messages.hpp"
#include "serving/doors/oip/infer_answer.hpp"

#include <vector>

namespace accel::examples::serving::doors {
namespace {

::grpc::ByteBuffer message_of(const wire::infer_response& from) {
    std::vector<::grpc::Slice> out;
    for (std::size_t i = 0; i < from.heads.size(); ++i) {
        out.emplace_back(from.heads[i]);
        if (i < from.tensors.size()) out.emplace_back(from.tensors[i].data(), from.tensors[i].size());
    }
    return {out.data(), out.size()};
}

/// Those for regions are there afterwards.
result<std::vector<tensor>> outputs_of(inference& of, const completion& from) {
    const oip::model_description& model = of.model()->description;
    auto outputs = oip::answered_tensors(model, of.tensors(from), from.response);
    if (!outputs) return outputs.error();
    if (auto copied = of.regions().copy_out(model, outputs.value(), from.response); !copied) return copied.error();
    return outputs;
}

}  // namespace

result<::grpc::ByteBuffer> response_message(inference& of, const completion& from) {
    if (auto kept = of.regions().check_kept(); !kept) return kept.error();
    const auto outputs = outputs_of(of, from);
    if (!outputs) return outputs.error();
    return message_of(
        wire::make_response(of.model()->description, of.id(), of.asked().outputs, outputs.value(), from.response));
}

result<::grpc::ByteBuffer> stream_message(inference& of, const completion& from) {
    if (auto kept = of.regions().check_kept(); !kept) return kept.error();
    const auto& model = of.model()->description;
    const bool empty_end = model.decoupled && !from.more && from.response.empty();
    if (empty_end) return message_of(wire::empty_stream_response(model, of.id()));
    const auto outputs = outputs_of(of, from);
    if (!outputs) return outputs.error();
    return message_of(
        wire::make_stream_response(model, of.id(), of.asked().outputs, outputs.value(), from.response, !from.more));
}

::grpc::ByteBuffer stream_error_message(std::string_view id, std::string_view sentence) {
    return message_of(wire::stream_error(id, sentence));
}

}  // namespace accel::examples::serving::doors
