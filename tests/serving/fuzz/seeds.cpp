// SPDX-License-Identifier: Apache-2.0
#include "seeds.hpp"

void accel::tests::write_seeds(const std::filesystem::path& top) {
    oip_seeds({top, "oip_request"});
    oip_message_seeds({top, "oip_message"});
    oip_answer_seeds({top, "oip_answer"});
    configuration_seeds({top, "configuration"});
    token_file_seeds({top, "token_file"});
    coding_seeds({top, "coding"});
    http_door_seeds({top, "http_door"});
    grpc_door_seeds({top, "grpc_door"});
}
