// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "seed_folder.hpp"

/// One function a target, which writes the target's seeds.
namespace accel::tests {

void uri_seeds(const seed_folder& to);
void header_seeds(const seed_folder& to);
void stream_seeds(const seed_folder& to);
void control_seeds(const seed_folder& to);
void zmq_seeds(const seed_folder& to);
void zmq_description_seeds(const seed_folder& to);
void key_seeds(const seed_folder& to);
void tensor_seeds(const seed_folder& to);
void verbs_seeds(const seed_folder& to);
void arrival_seeds(const seed_folder& to);
void shm_seeds(const seed_folder& to);
void channel_seeds(const seed_folder& to);
void channel_parts_seeds(const seed_folder& to);
void worker_seeds(const seed_folder& to);
void control_server_seeds(const seed_folder& to);
void control_client_seeds(const seed_folder& to);
void first_bytes_seeds(const seed_folder& to);
void tls_records_seeds(const seed_folder& to);

}  // namespace accel::tests
