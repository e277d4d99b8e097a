// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include <gtest/gtest.h>

namespace accel::tests {

/// Clients of a gateway come over `from`, and it reaches servers over `to`.
struct pair_case {
    std::string from;
    std::string to;
    bool copies = false;  ///< the gateway has to copy long requests
};

inline std::ostream& operator<<(std::ostream& out, const pair_case& one) {
    return out << one.from << " to " << one.to;
}

[[nodiscard]] inline auto all_pairs() {
    return ::testing::Values(
        pair_case{"tcp", "tcp"}, pair_case{"tcp", "zmq"}, pair_case{"tcp", "shm"}, pair_case{"tcp", "rdma"},
        pair_case{"tcp", "gdr"}, pair_case{"shm", "tcp"}, pair_case{"shm", "zmq"}, pair_case{"shm", "shm"},
        pair_case{"shm", "rdma"}, pair_case{"shm", "gdr"}, pair_case{"rdma", "tcp"}, pair_case{"rdma", "zmq"},
        pair_case{"rdma", "shm"}, pair_case{"rdma", "rdma"}, pair_case{"rdma", "gdr"}, pair_case{"zmq", "tcp", true},
        pair_case{"zmq", "zmq", true}, pair_case{"zmq", "shm", true}, pair_case{"zmq", "rdma", true},
        pair_case{"zmq", "gdr", true});
}

[[nodiscard]] inline std::string name_of_pair(const ::testing::TestParamInfo<pair_case>& each) {
    return each.param.from + "_to_" + each.param.to;
}

}  // namespace accel::tests
