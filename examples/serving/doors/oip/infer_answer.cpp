// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/infer_answer.hpp"

#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/json_data.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"

namespace accel::examples::serving::oip {
namespace {

result<void> append_numbers(std::string& to, const tensor& what, std::span<const std::byte> elements) {
    if (elements.size() > max_json_output_bytes)
        return refusal(status::invalid_argument, "it is too large for JSON: ask for binary data");
    to += R"(,"data":)";
    return append_data(to, what, elements);
}

/// As Triton says it: where the elements are now.
std::string region_parameters(const region_part& where, std::uint64_t bytes) {
    return R"(,"parameters":{"shared_memory_region":)" + json_string(where.region) + R"(,"shared_memory_offset":)" +
           std::to_string(where.offset) + R"(,"shared_memory_byte_size":)" + std::to_string(bytes) + '}';
}

result<void> append_output(infer_answer& to, const named_tensor& declared, const tensor& what,
                           const output_choice& chosen, std::span<const std::byte> payload) {
    const auto elements = bytes_of(what, payload);
    to.head += R"({"name":)" + json_string(declared.name) + R"(,"datatype":")";
    to.head += name_of(what.type);
    to.head += R"(","shape":)" + shape_text(what);
    if (chosen.region) {
        to.head += region_parameters(*chosen.region, elements.size());
    } else if (chosen.binary) {
        to.head += R"(,"parameters":{"binary_data_size":)" + std::to_string(elements.size()) + '}';
        to.tensors.push_back(elements);
        to.binary_bytes += elements.size();
    } else if (auto written = append_numbers(to.head, what, elements); !written) {
        return refusal(written.error().code, "output " + in_quotes(declared.name) + ": " + written.error().message);
    }
    to.head += '}';
    return {};
}

/// The batch may be another one, but not the type.
bool is_promised(const tensor& said, const tensor& declared, std::size_t payload_bytes) {
    return said.type == declared.type && lies_within(said, payload_bytes);
}

}  // namespace

result<std::vector<tensor>> answered_tensors(const model_description& model, std::span<const tensor> described,
                                             std::size_t payload_bytes) {
    std::vector<tensor> out(described.begin(), described.end());
    if (out.empty())
        for (const named_tensor& each : model.outputs) out.push_back(each.what);
    bool promised = out.size() == model.outputs.size();
    for (std::size_t i = 0; promised && i < out.size(); ++i)
        promised = is_promised(out[i], model.outputs[i].what, payload_bytes);
    if (promised) return out;
    return refusal(status::protocol_error, "model " + in_quotes(model.name) + " answered " +
                                               std::to_string(payload_bytes) +
                                               " bytes that are not the outputs of its description");
}

result<infer_answer> make_answer(const model_description& model, std::string_view id,
                                 std::span<const output_choice> chosen, std::span<const tensor> outputs,
                                 std::span<const std::byte> payload) {
    infer_answer out;
    out.head = R"({"model_name":)" + json_string(model.name) + R"(,"model_version":"1",)";
    if (!id.empty()) out.head += R"("id":)" + json_string(id) + ',';
    out.head += R"("outputs":[)";
    for (const output_choice& each : chosen) {
        if (&each != chosen.data()) out.head += ',';
        const auto good = append_output(out, model.outputs[each.index], outputs[each.index], each, payload);
        if (!good) return good.error();
    }
    out.head += "]}";
    return out;
}

}  // namespace accel::examples::serving::oip
