// SPDX-License-Identifier: Apache-2.0
/// local_call COUNT [tcp|shm] [metrics]: COUNT calls over `local`, `tcp` or `shm`, server and channel driven by one
/// thread. `metrics`: they are counted. callgrind_local.sh counts their instructions, crossed_files.sh lists the files
/// that they cross.
#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

namespace {

constexpr std::size_t size_bytes = 64;

void answer(accel::exchange request) {
    request.reply(request.request().size());
}

bool call_once(accel::channel& channel, accel::server& server, std::span<accel::completion> done) {
    const auto call = channel.begin();
    if (!call) return false;
    if (channel.submit(call->id, size_bytes) != accel::status::ok) return false;
    std::size_t count = 0;
    for (int patience = 0; count == 0 && patience < 1'000'000; ++patience) {
        server.poll();
        count = channel.poll(done);
    }
    if (count != 1 || done[0].status != accel::status::ok || done[0].response.size() != size_bytes) return false;
    done[0].release();
    return true;
}

int fail(const char* why) {
    std::fprintf(stderr, "local_call: %s\n", why);
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    const long count = argc > 1 ? std::atol(argv[1]) : 1'000;
    const std::string_view scheme = argc > 2 ? argv[2] : "local";
    const bool over_tcp = scheme == "tcp";
    accel::context_options chosen;
    chosen.metrics = argc > 2 && std::string_view(argv[argc - 1]) == "metrics";
    auto context = accel::context::open(chosen);
    if (!context) return fail(context.error().message.c_str());
    accel::server_options options;
    options.workers = 0;
    const std::string keys = over_tcp ? "?insecure=true" : "";
    const std::string at = (over_tcp ? "tcp://127.0.0.1:0" : scheme == "shm" ? "shm://call" : "local://call") + keys;
    auto server = accel::server::listen(*context, {at}, answer, options);
    if (!server) return fail(server.error().message.c_str());
    auto channel = accel::channel::connect(*context, server->endpoints().front() + keys);
    if (!channel) return fail(channel.error().message.c_str());
    std::array<accel::completion, 1> done;
    for (long i = 0; i < count; ++i)
        if (!call_once(*channel, *server, done)) return fail("a call failed");
    std::printf("%ld calls\n", count);
}
