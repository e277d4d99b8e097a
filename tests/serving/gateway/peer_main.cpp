// SPDX-License-Identifier: Apache-2.0
/// A server of the soak, to be killed: `gateway_peer URI`. Says where it listens, and answers until it is ended.
#include "gateway_rig.hpp"

#include <cstdio>

#include <unistd.h>

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    auto ctx = accel::context::open({.log = accel::log_level::off});
    if (!ctx) return 1;
    accel::server serves = accel::tests::listen(*ctx, argv[1], accel::tests::answer_changed);
    std::printf("serving %s\n", serves.endpoints().at(0).c_str());
    std::fflush(stdout);
    for (;;) ::pause();
}
