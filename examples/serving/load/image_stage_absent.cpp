// SPDX-License-Identifier: Apache-2.0
#include "serving/load/image_stage.hpp"

namespace accel::examples::serving {

result<std::unique_ptr<image_stage>> image_stage::make(context&, const model_shapes&, std::span<const std::byte>,
                                                       const first_stage&) {
    return error{status::unsupported, 0, "this build is without CUDA; build where nvcc is found, with -DACCEL_CUDA=ON"};
}

}  // namespace accel::examples::serving
