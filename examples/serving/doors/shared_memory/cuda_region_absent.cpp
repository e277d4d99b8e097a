// SPDX-License-Identifier: Apache-2.0
/// In the place of cuda_region.cpp, in a build without CUDA.
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/shared_memory/cuda_region.hpp"

namespace accel::examples::serving::shared_memory {

result<void> check_cuda() {
    return oip::refusal(status::unsupported,
                        "this build is without CUDA: build where nvcc is found, with -DACCEL_CUDA=ON");
}

result<std::shared_ptr<region>> open_cuda_region(std::string_view, std::int64_t, std::uint64_t, std::unique_ptr<claim>,
                                                 context&) {
    return check_cuda().error();
}

}  // namespace accel::examples::serving::shared_memory
