// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/served_model.hpp"

#include <algorithm>

namespace accel::examples::serving::doors {
namespace {

constexpr std::uint64_t json_frame_bytes = 64 << 10;  // names, shapes, parameters
constexpr std::uint64_t json_number_bytes = 32;       // with its comma and blanks

void add(oip::model_counts::stage& to, std::chrono::nanoseconds took) {
    ++to.count;
    to.sum += took;
}

}  // namespace

std::uint64_t binary_input_bytes(const oip::model_description& model) {
    std::uint64_t sum = 0;
    for (const oip::named_tensor& each : model.inputs) sum += size_bytes(each.what);
    return sum;
}

std::uint64_t json_input_bytes(const oip::model_description& model, std::uint64_t limit) {
    std::uint64_t numbers = 0;
    for (const oip::named_tensor& each : model.inputs) numbers += size_bytes(each.what) * 8 / each.what.type.bits;
    return std::min(limit, json_frame_bytes + numbers * json_number_bytes);
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
