// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/served_model.hpp"

#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <utility>

namespace accel::examples::serving::doors {
namespace {

void add(oip::model_counts::stage& to, std::chrono::nanoseconds took) {
    ++to.count;
    to.sum += took;
}

}  // namespace

std::vector<std::string> names_of(const model_table& models) {
    std::vector<std::string> out;
    for (const auto& [name, each] : models) out.push_back(name);
    return out;
}

std::uint32_t parts_of(const served_model& model, const door_settings& settings) {
    if (!model.description.decoupled) return 0;
    return static_cast<std::uint32_t>(std::min<std::size_t>(settings.stream_parts, max_parts));
}

error failure_of(const served_model& model, const completion& from) {
    const status told = from.unseen() ? model.to->without_server(from.status) : from.status;
    if (told != from.status) return oip::refusal(told, "no connected server has this model");
    std::string out = "the model's server answered " + std::string{to_string(from.status)};
    const auto text = from.response;
    if (!text.empty()) out += ": " + std::string(reinterpret_cast<const char*>(text.data()), text.size());
    return oip::refusal(told, std::move(out));
}

void count_success(oip::model_counts& to, std::chrono::nanoseconds took, const timeline& stages) {
    add(to.success, took);
    add(to.queue, stages.queue);
    add(to.compute_input, stages.copy + stages.preprocessing);
    add(to.compute_infer, stages.inference);
    add(to.compute_output, stages.response);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    to.last = std::chrono::duration_cast<std::chrono::milliseconds>(now);
}

void count_failure(oip::model_counts& to, std::chrono::nanoseconds took) {
    add(to.fail, took);
}

}  // namespace accel::examples::serving::doors
