// SPDX-License-Identifier: Apache-2.0
#include "networks.hpp"

namespace accel::bench {

bool has_torch() noexcept {
    return false;
}

result<std::unique_ptr<network>> load_torch_network(const network_choice& choice) {
    return error{status::unsupported, 0, choice.name + " needs a build with LibTorch (-DACCEL_EXAMPLES_TORCH=ON)"};
}

}  // namespace accel::bench
