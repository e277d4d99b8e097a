// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "seed_folder.hpp"

/// One function a target, which writes the target's seeds.
namespace accel::tests {

void oip_seeds(const seed_folder& to);
void oip_message_seeds(const seed_folder& to);
void oip_answer_seeds(const seed_folder& to);
void configuration_seeds(const seed_folder& to);
void token_file_seeds(const seed_folder& to);
void coding_seeds(const seed_folder& to);
void http_door_seeds(const seed_folder& to);
void grpc_door_seeds(const seed_folder& to);

}  // namespace accel::tests
