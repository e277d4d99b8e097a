// SPDX-License-Identifier: Apache-2.0
// fuzz_seeds FOLDER: writes the seeds of every fuzz target to FOLDER/SUBJECT/. They are committed; run it
// again when a format changes.
#include "seeds.hpp"

#include <filesystem>
#include <iostream>

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "fuzz_seeds FOLDER\n";
        return 2;
    }
    using namespace accel::tests;
    const std::filesystem::path top(argv[1]);
    uri_seeds({top, "uri"});
    header_seeds({top, "slot_header"});
    stream_seeds({top, "tcp_stream"});
    control_seeds({top, "control_message"});
    zmq_seeds({top, "zmq_message"});
    zmq_description_seeds({top, "zmq_description"});
    key_seeds({top, "key_file"});
    tensor_seeds({top, "tensors"});
    oip_seeds({top, "oip_request"});
    oip_message_seeds({top, "oip_message"});
    oip_answer_seeds({top, "oip_answer"});
    configuration_seeds({top, "configuration"});
    token_file_seeds({top, "token_file"});
    coding_seeds({top, "coding"});
    http_door_seeds({top, "http_door"});
    grpc_door_seeds({top, "grpc_door"});
    verbs_seeds({top, "verbs_peer"});
    arrival_seeds({top, "verbs_arrival"});
    shm_seeds({top, "shm_peer"});
    channel_seeds({top, "channel"});
    channel_parts_seeds({top, "channel_parts"});
    worker_seeds({top, "worker"});
    service_seeds({top, "service_intake"});
    exclusive_seeds({top, "exclusive_intake"});
    client_seeds({top, "client_intake"});
    owner_seeds({top, "owned_intake"});
    control_server_seeds({top, "control_server"});
    control_client_seeds({top, "control_client"});
    first_bytes_seeds({top, "first_bytes"});
    tls_records_seeds({top, "tls_records"});
    return 0;
}
