// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/documents.hpp"

#include "serving/doors/oip/data_types.hpp"

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

json shape_of(const tensor& one) {
    json out = json::array();
    for (std::uint32_t i = 0; i < one.rank; ++i) out.push_back(one.shape[i]);
    return out;
}

json metadata_of(std::span<const named_tensor> list) {
    json out = json::array();
    for (const auto& [name, what, text] : list)
        out.push_back({{"name", name}, {"datatype", name_of(what.type)}, {"shape", shape_of(what)}});
    return out;
}

json configuration_of(std::span<const named_tensor> list) {
    json out = json::array();
    for (const auto& [name, what, text] : list)
        out.push_back(
            {{"name", name}, {"data_type", "TYPE_" + std::string{name_of(what.type)}}, {"dims", shape_of(what)}});
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

std::string server_metadata(std::string_view version) {
    const json extensions = {"binary_tensor_data", "generate", "model_configuration", "statistics"};
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
