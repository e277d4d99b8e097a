// SPDX-License-Identifier: Apache-2.0
/// verbs_call bare|ours|verbs COUNT: COUNT round trips of 64 bytes of payload behind a header of 64, both
/// ends driven by one thread. `bare` uses libibverbs itself, `ours` a channel and a server over `rdma`.
/// callgrind_rdma.sh counts the instructions of the two functions `measured_…`, but not of `drive_device`.
/// `verbs` is `ours` by way of libibverbs, also on a device that is driven directly otherwise.
#include "bare_verbs_link.hpp"
#include "softnic/softnic.h"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>

namespace {

constexpr std::size_t payload_bytes = 64;
constexpr std::uint32_t slots = 8;
constexpr int patience = 1'000;
/// Until both ends have reached a state that repeats: batches of receives, completions of sends.
constexpr long warm_up = 1'024;

int fail(const char* why) {
    std::fprintf(stderr, "verbs_call: %s\n", why);
    return 1;
}

bool await_message(accel::bench::verbs_link& end) {
    std::uint32_t slot = 0;
    int got = 0;
    for (int tries = 0; got == 0 && tries < patience; ++tries) got = end.poll(slot);
    return got == 1 && slot == 0;
}

bool round_trip(accel::bench::verbs_link& client, accel::bench::verbs_link& server) {
    return client.send(0) && await_message(server) && server.send(0) && await_message(client);
}

bool many(accel::bench::verbs_link& client, accel::bench::verbs_link& server, long count) {
    for (long i = 0; i < count; ++i)
        if (!round_trip(client, server)) return false;
    return true;
}

[[gnu::noinline]] bool measured_bare(accel::bench::verbs_link& client, accel::bench::verbs_link& server, long count) {
    return many(client, server, count);
}

/// The emulated device sees a doorbell when it is asked to look: by libmlx5's calls, if there are any.
[[gnu::noinline]] void drive_device() {
    for (int rounds = 0; rounds < 64 && softnic_progress != nullptr && softnic_progress() > 0; ++rounds) continue;
}

bool round_trip(accel::channel& channel, accel::server& server, std::span<accel::completion> done) {
    const auto call = channel.begin();
    if (!call) return false;
    if (channel.submit(call->id, payload_bytes) != accel::status::ok) return false;
    std::size_t count = 0;
    for (int tries = 0; count == 0 && tries < patience; ++tries) {
        drive_device();
        server.poll();
        drive_device();
        count = channel.poll(done);
    }
    if (count != 1 || done[0].status != accel::status::ok || done[0].response.size() != payload_bytes) return false;
    done[0].release();
    return true;
}

bool many(accel::channel& channel, accel::server& server, long count) {
    std::array<accel::completion, 1> done;
    for (long i = 0; i < count; ++i)
        if (!round_trip(channel, server, done)) return false;
    return true;
}

[[gnu::noinline]] bool measured_ours(accel::channel& channel, accel::server& server, long count) {
    return many(channel, server, count);
}

int run_bare(long count) {
    auto client = accel::bench::verbs_link::open({slots, payload_bytes, false, false});
    if (!client) return fail(client.error().message.c_str());
    auto server = accel::bench::verbs_link::open({slots, payload_bytes, true, false});
    if (!server) return fail(server.error().message.c_str());
    for (const auto& [end, peer] : {std::pair{&*client, &*server}, std::pair{&*server, &*client}})
        if (auto met = (*end)->connect((*peer)->address()); !met) return fail(met.error().message.c_str());
    if (!many(**client, **server, warm_up)) return fail("a bare round trip failed");
    return measured_bare(**client, **server, count) ? 0 : fail("a bare round trip failed");
}

int run_ours(long count, bool direct) {
    auto context = accel::context::open();
    if (!context) return fail(context.error().message.c_str());
    accel::server_options served;
    served.workers = 0;
    auto server = accel::server::listen(
        *context, {direct ? "rdma://127.0.0.1:0?insecure=true" : "rdma://127.0.0.1:0?insecure=true&direct=false"},
        [](accel::exchange request) { request.reply(request.request().size()); }, served);
    if (!server) return fail(server.error().message.c_str());
    auto channel = accel::channel::connect(
        *context, server->endpoints().front() + (direct ? "?insecure=true" : "?insecure=true&direct=false"));
    if (!channel) return fail(channel.error().message.c_str());
    if (!many(*channel, *server, warm_up)) return fail("a call failed");
    if (!measured_ours(*channel, *server, count)) return fail("a call failed");
    // The emulated device in its deterministic mode waits in every read of a completion channel, also where
    // the channel does not block: closing would not come to an end.
    std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view mode = argc > 1 ? argv[1] : "";
    const long count = argc > 2 ? std::atol(argv[2]) : 1'000;
    if (mode == "bare") return run_bare(count);
    if (mode == "ours") return run_ours(count, true);
    if (mode == "verbs") return run_ours(count, false);
    return fail("usage: verbs_call bare|ours|verbs COUNT");
}
