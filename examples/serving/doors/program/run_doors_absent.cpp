// SPDX-License-Identifier: Apache-2.0
// A build without Boost.Beast.
#include "report/program.hpp"
#include "serving/doors/program/run_doors.hpp"

namespace accel::examples::serving::doors {

std::string missing_in_build(const choices& chosen) {
    const std::string both = chosen.grpc.empty() ? "" : " and gRPC C++ (libgrpc++-dev)";
    return "this build has no doors: install Boost.Beast (libboost-dev)" + both +
           ", and configure with -DACCEL_GATEWAY=ON";
}

int run_doors(const char* program, const choices& chosen) {
    return report::complain(program, missing_in_build(chosen));
}

}  // namespace accel::examples::serving::doors
