// SPDX-License-Identifier: Apache-2.0
// A process whose standard error is the test's (log_process_test.cpp). Usage:
//   log_probe warn               logs one warning and returns from main
//   log_probe flood LINES        logs so many and returns from main
//   log_probe static             logs from a static object's destructor
//   log_probe serve HOST         a server whose handler logs a line for each request; writes its URI, ends by
//   SIGTERM
#include "core/log.hpp"

#include <accel_transport/accel_transport.hpp>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include <sys/prctl.h>

namespace {

struct says_goodbye {
    ~says_goodbye() { accel::core::log().warn("logged by a static destructor"); }
};

void echo(accel::exchange one) {
    accel::core::log().warn("a line on a worker's thread");
    const std::size_t length = one.request().size();
    std::memcpy(one.response().data(), one.request().data(), length);
    (void)one.reply(length);
}

int serve(const std::string& host) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    auto context = accel::context::open().value();
    accel::server_options options;
    options.security.insecure = true;
    options.max_slots = 4;
    auto server = accel::server::listen(context, {"tcp://" + host + ":0"}, echo, options);
    if (!server) return 2;
    std::cout << server->endpoints().at(0) << std::endl;
    int number = 0;
    sigwait(&ends, &number);
    accel::core::log().error("ends by signal {}", number);
    server->stop();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "warn") {
        accel::core::log().warn("one warning");
        return 0;
    }
    if (mode == "flood" && argc == 3) {
        for (int i = std::atoi(argv[2]); i > 0; --i) accel::core::log().warn("{} lines to go", i);
        return 0;
    }
    if (mode == "static") {
        static const says_goodbye late;
        return 0;
    }
    if (mode == "serve" && argc == 3) return serve(argv[2]);
    return 2;
}
