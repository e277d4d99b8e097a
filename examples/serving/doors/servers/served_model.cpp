// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/served_model.hpp"

namespace accel::examples::serving::doors {
namespace {

void add(oip::model_counts::stage& to, std::chrono::nanoseconds took) {
    ++to.count;
    to.sum += took;
}

}  // namespace

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
