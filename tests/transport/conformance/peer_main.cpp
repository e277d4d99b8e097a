// SPDX-License-Identifier: Apache-2.0
// The other process of the tests that kill or stop one. Usage:
//   conformance_peer serve URI echo|hold PEER_TIMEOUT_MS
//       writes its URI; then for each line "count" a number
//   conformance_peer client URI CALLS BYTES once|stream
//       writes "in_flight" when its calls are on their way
//   conformance_peer calls URI SESSIONS CALLS BYTES SEED
//       CALLS of up to BYTES in each of SESSIONS at once; writes how many were right, wrong and failed
#include "handler_memory.hpp"
#include "held_exchanges.hpp"
#include "patience.hpp"
#include "payload.hpp"
#include "run_calls.hpp"
#include "security_way.hpp"

#include <accel_transport/accel_transport.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/prctl.h>

namespace {

using namespace accel;
using namespace std::chrono_literals;

int fail(const std::string& message) {
    std::cerr << "conformance_peer: " << message << std::endl;
    return 1;
}

void echo(exchange one) {
    const std::size_t length = std::min(one.request().size(), one.response().size());
    tests::copy(one.response(), one.request().first(length));
    (void)one.reply(length);
}

int serve(context& ctx, const std::string& uri, bool hold, std::chrono::milliseconds peer_timeout) {
    std::atomic<unsigned long long> requests{0};
    tests::held_exchanges held;
    server_options options;
    options.peer_timeout = peer_timeout;
    options.drain_timeout = 10ms;
    options.security = tests::usual_security(true);
    tests::prepare(options);
    auto listening = server::listen(
        ctx, {uri},
        [&](exchange one) {
            ++requests;
            if (!one.part().empty()) (void)one.send(16);
            hold ? held.keep(std::move(one)) : echo(std::move(one));
        },
        options);
    if (!listening) return fail(listening.error().message);
    std::cout << listening->endpoints().at(0) << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        if (line == "count") std::cout << requests.load() << std::endl;
        if (line == "stop") break;
    }
    listening->stop();
    return 0;
}

status send_one(channel& out, std::size_t bytes, std::uint64_t seed) {
    const auto call = out.begin();
    if (!call) return call.error();
    tests::fill(call->request.first(bytes), seed);
    return out.submit(call->id, bytes, {.timeout = 60s, .tag = seed, .trace_id = seed, .response_into = {}});
}

int client(context& ctx, const std::string& uri, unsigned calls, std::size_t bytes, bool stream) {
    channel_options options;
    options.slots = calls;
    options.request_bytes = options.response_bytes = bytes;
    options.connect_timeout = 10s * tests::time_factor();
    options.peer_timeout = 5s * tests::time_factor();
    options.security = tests::usual_security(false);
    auto connected = channel::connect(ctx, uri, options);
    if (!connected) return fail(connected.error().message);
    for (unsigned i = 0; i < calls; ++i)
        if (send_one(*connected, bytes, i) != status::ok) return fail("cannot send");
    std::cout << "in_flight" << std::endl;
    std::vector<completion> done(calls);
    for (std::uint64_t seed = calls;;) {
        const std::size_t count = connected->wait(done, 60s);
        for (std::size_t i = 0; i < count; ++i) {
            if (done[i].status != status::ok) return fail(std::string(to_string(done[i].status)));
            done[i].release();
            if (stream) (void)send_one(*connected, bytes, seed++);
        }
    }
}

int call_all(context& ctx, const std::string& uri, unsigned sessions, std::uint64_t calls, std::size_t bytes,
             std::uint64_t seed) {
    channel_options options;
    options.slots = 16;
    options.request_bytes = options.response_bytes = bytes;
    options.connect_timeout = 10s * tests::time_factor();
    options.peer_timeout = 2s * tests::time_factor();
    options.call_timeout = 10s * tests::time_factor();
    options.security = tests::usual_security(false);
    std::vector<channel> channels;
    for (unsigned i = 0; i < sessions; ++i) {
        auto connected = channel::connect(ctx, uri, options);
        if (!connected) return fail(connected.error().message);
        channels.push_back(std::move(*connected));
    }
    std::vector<tests::tally> all(sessions);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < sessions; ++i)
        threads.emplace_back([&, i] { all[i] = tests::run_calls(channels[i], calls, seed + i * calls, bytes); });
    for (std::thread& each : threads) each.join();
    tests::tally sum;
    for (const tests::tally& each : all) {
        sum.right += each.right;
        sum.wrong += each.wrong;
        sum.failed += each.failed;
    }
    std::cout << sum.right << ' ' << sum.wrong << ' ' << sum.failed << std::endl;
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    auto opened = context::open({.log = log_level::off});
    if (!opened) return fail(opened.error().message);
    tests::prepare(*opened);
    if (arguments.size() == 4 && arguments[0] == "serve")
        return serve(*opened, arguments[1], arguments[2] == "hold",
                     std::chrono::milliseconds{std::atol(arguments[3].c_str())});
    if (arguments.size() == 5 && arguments[0] == "client")
        return client(*opened, arguments[1], static_cast<unsigned>(std::stoul(arguments[2])), std::stoul(arguments[3]),
                      arguments[4] == "stream");
    if (arguments.size() == 6 && arguments[0] == "calls")
        return call_all(*opened, arguments[1], static_cast<unsigned>(std::stoul(arguments[2])),
                        std::stoull(arguments[3]), std::stoul(arguments[4]), std::stoull(arguments[5]));
    return fail("see the head of peer_main.cpp for its arguments");
}
