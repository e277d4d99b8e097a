// SPDX-License-Identifier: Apache-2.0
#include "seeds.hpp"

void accel::tests::write_seeds(const std::filesystem::path& top) {
    service_seeds({top, "service_intake"});
    exclusive_seeds({top, "exclusive_intake"});
    client_seeds({top, "client_intake"});
    owner_seeds({top, "owned_intake"});
}
