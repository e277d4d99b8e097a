// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/model_question.hpp"

#include "serving/doors/servers/backend.hpp"

namespace accel::examples::serving::doors {

void model_question::on_answer(door_channel& on, const completion& answer) {
    of_.end_question(server_, answer);
    on.release(answer.id);
}

}  // namespace accel::examples::serving::doors
