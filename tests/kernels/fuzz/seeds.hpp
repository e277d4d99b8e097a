// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "seed_folder.hpp"

/// One function a target, which writes the target's seeds.
namespace accel::tests {

void service_seeds(const seed_folder& to);
void exclusive_seeds(const seed_folder& to);
void client_seeds(const seed_folder& to);
void owner_seeds(const seed_folder& to);

}  // namespace accel::tests
