// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/documents.hpp"

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

json shape_of(const tensor& one) {
    json out = json::array();
    for (std::uint32_t i = 0; i < one.rank; ++i) out.push_back(one.shape[i] == 0 ? -1 : std::int64_t{one.shape[i]});
    return out;
}

json metadata_of(std::span<const named_tensor> list) {
    json out = json::array();
    for (const named_tensor& each : list)
        out.push_back({{"name", each.name}, {"datatype", datatype_of(each)}, {"shape", shape_of(each.what)}});
    return out;
}

/// Triton's enumeration has another name for BYTES.
std::string type_in_configuration(const named_tensor& one) {
    return "TYPE_" + (one.strings ? "STRING" : std::string{datatype_of(one)});
}

json configuration_of(std::span<const named_tensor> list) {
    json out = json::array();
    for (const named_tensor& each : list)
        out.push_back({{"name", each.name}, {"data_type", type_in_configuration(each)}, {"dims", shape_of(each.what)}});
    return out;
}

json stage_of(const model_counts::stage& one) {
    return {{"count", one.count}, {"ns", one.sum.count()}};
}

json statistics_of(const model_description& model, const model_counts& counts) {
    const json none = stage_of({});
    return {{"name", model.name},
            {"version", "1"},
            {"last_inference", counts.last.count()},
            {"inference_count", counts.success.count},
            {"execution_count", counts.success.count},
            {"inference_stats",
             {{"success", stage_of(counts.success)},
              {"fail", stage_of(counts.fail)},
              {"queue", stage_of(counts.queue)},
              {"compute_input", stage_of(counts.compute_input)},
              {"compute_infer", stage_of(counts.compute_infer)},
              {"compute_output", stage_of(counts.compute_output)},
              {"cache_hit", none},
              {"cache_miss", none}}},
            {"batch_stats", json::array()}};
}

}  // namespace

std::vector<std::string_view> shared_memory_extensions(const allowed_memory& allowed) {
    std::vector<std::string_view> out;
    if (allowed.system) out.emplace_back("system_shared_memory");
    if (allowed.cuda) out.emplace_back("cuda_shared_memory");
    return out;
}

std::string live_document() {
    return R"({"live":true})";
}

std::string ready_document() {
    return R"({"ready":true})";
}

std::string model_ready_document(std::string_view model) {
    return json{{"name", model}, {"ready", true}}.dump();
}

std::string server_metadata(std::string_view version, const allowed_memory& allowed) {
    json extensions = {"binary_tensor_data", "generate", "model_configuration", "statistics"};
    for (const std::string_view each : shared_memory_extensions(allowed)) extensions.push_back(each);
    return json{{"name", "accel_transport"}, {"version", version}, {"extensions", extensions}}.dump();
}

std::string model_metadata(const model_description& model) {
    return json{{"name", model.name},
                {"versions", {"1"}},
                {"platform", "accel_transport"},
                {"inputs", metadata_of(model.inputs)},
                {"outputs", metadata_of(model.outputs)}}
        .dump();
}

std::string model_configuration(const model_description& model) {
    return json{{"name", model.name},
                {"platform", "accel_transport"},
                {"backend", "accel_transport"},
                {"max_batch_size", 0},
                {"input", configuration_of(model.inputs)},
                {"output", configuration_of(model.outputs)},
                {"model_transaction_policy", {{"decoupled", model.decoupled}}}}
        .dump();
}

std::string model_statistics(std::span<const counted_model> models) {
    json list = json::array();
    for (const counted_model& each : models) list.push_back(statistics_of(*each.model, *each.counts));
    return json{{"model_stats", list}}.dump();
}

}  // namespace accel::examples::serving::oip
