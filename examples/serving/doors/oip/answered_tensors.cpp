// SPDX-License-Identifier: Apache-2.0
// What a model's server says of its answer, against what the model's description promises.
#include "serving/doors/oip/infer_answer.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/strings.hpp"

#include <algorithm>
#include <string>

namespace accel::examples::serving::oip {
namespace {

/// Of an output that the server does not describe. One whose size it alone knows is the whole payload.
result<tensor> promised_tensor(const model_description& model, const named_tensor& declared,
                               std::size_t payload_bytes) {
    if (declared.is_fixed()) return declared.what;
    const error unknown = refusal(status::protocol_error, "its size is unknown");
    if (model.outputs.size() > 1) return unknown;
    if (declared.strings) return serialized_strings(payload_bytes);
    const std::uint64_t each = declared.what.type.bits / 8U;
    if (payload_bytes % each != 0) return unknown;
    auto out = with_elements(declared, payload_bytes / each, true);
    if (out) out.value().offset = 0;
    return out;
}

/// Of a fixed shape the batch may be another one, but not the type.
bool is_promised(const tensor& said, const named_tensor& declared, std::span<const std::byte> payload) {
    if (said.type != declared.what.type || !lies_within(said, payload.size())) return false;
    if (size_bytes(said) > declared.max_bytes && !declared.is_fixed()) return false;
    if (declared.strings || declared.is_fixed()) return shown_tensor(declared, said, payload).ok();
    const std::vector<std::uint64_t> shape(said.shape, said.shape + said.rank);
    return with_shape(declared, shape, true).ok();
}

}  // namespace

result<tensor> shown_tensor(const named_tensor& declared, const tensor& said, std::span<const std::byte> payload) {
    if (!declared.strings) return said;
    const auto count = count_strings(bytes_of(said, payload));
    if (count) return with_elements(declared, *count, true);
    return refusal(status::protocol_error, "it is not BYTES");
}

result<std::vector<tensor>> answered_tensors(const model_description& model, std::span<const tensor> described,
                                             std::span<const std::byte> payload) {
    std::vector<tensor> out(described.begin(), described.end());
    bool promised = true;
    for (std::size_t i = 0; promised && described.empty() && i < model.outputs.size(); ++i) {
        const auto one = promised_tensor(model, model.outputs[i], payload.size());
        promised = one.ok();
        if (promised) out.push_back(one.value());
    }
    promised = promised && out.size() == model.outputs.size();
    for (std::size_t i = 0; promised && i < out.size(); ++i) promised = is_promised(out[i], model.outputs[i], payload);
    if (promised) return out;
    return refusal(status::protocol_error, "model " + in_quotes(model.name) + " answered " +
                                               std::to_string(payload.size()) +
                                               " bytes that are not the outputs of its description");
}

}  // namespace accel::examples::serving::oip
