// SPDX-License-Identifier: Apache-2.0
#include "serving/models/torch_file.hpp"

namespace accel::examples::serving {

result<std::unique_ptr<model>> load_torch_file(std::string_view name, const std::string& path, std::int16_t) {
    return error{status::unsupported, 0,
                 "this build has no LibTorch for '" + path +
                     "': install PyTorch (pip install torch) and configure with ACCEL_EXAMPLES_TORCH=ON, or serve '" +
                     std::string{name} + "' as synthetic"};
}

bool has_torch_files() noexcept {
    return false;
}

}  // namespace accel::examples::serving
