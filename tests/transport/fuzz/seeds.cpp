// SPDX-License-Identifier: Apache-2.0
#include "seeds.hpp"

void accel::tests::write_seeds(const std::filesystem::path& top) {
    uri_seeds({top, "uri"});
    header_seeds({top, "slot_header"});
    stream_seeds({top, "tcp_stream"});
    control_seeds({top, "control_message"});
    zmq_seeds({top, "zmq_message"});
    zmq_description_seeds({top, "zmq_description"});
    key_seeds({top, "key_file"});
    tensor_seeds({top, "tensors"});
    verbs_seeds({top, "verbs_peer"});
    arrival_seeds({top, "verbs_arrival"});
    shm_seeds({top, "shm_peer"});
    channel_seeds({top, "channel"});
    channel_parts_seeds({top, "channel_parts"});
    worker_seeds({top, "worker"});
    control_server_seeds({top, "control_server"});
    control_client_seeds({top, "control_client"});
    first_bytes_seeds({top, "first_bytes"});
    tls_records_seeds({top, "tls_records"});
}
