// SPDX-License-Identifier: Apache-2.0
// Compiles and runs the code in docs/metadata.md and docs/interceptors.md.
#include <accel_transport/accel_transport.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

// The pages name what a reader would use.
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"

namespace {

constexpr std::string_view token = "secret";

/// What the interceptors on the page call.
struct histogram {
    void record(std::chrono::nanoseconds) { ++calls; }
    int calls = 0;
} latency;
int served = 0;
void count(std::string_view, accel::status, const accel::timeline&) {
    ++served;
}

bool send(accel::channel* channel, std::span<const std::byte> request) {
#include "page/metadata_1.inc"
    return answer.ok();
}

void serve(accel::exchange request) {
    const std::size_t length = 0;
#include "page/metadata_2.inc"
}

accel::channel_options with_interceptors() {
#include "page/interceptors_1.inc"
    return options;
}
#include "page/interceptors_2.inc"

bool metadata_travels(accel::context& ctx) {
    auto server = accel::server::listen(ctx, "local://pages", serve).value();
    auto channel = accel::channel::connect(ctx, "local://pages").value();
    return send(&channel, {});
}

bool calls_are_intercepted(accel::context& ctx) {
    accel::server_options options;
    options.interceptors = {std::make_shared<checks_token>()};
    const auto answer = [](accel::exchange request) { request.reply(0); };
    {
        auto server = accel::server::listen(ctx, "local://pages", answer, options).value();
        auto channel = accel::channel::connect(ctx, "local://pages", with_interceptors()).value();
        if (!channel.call({})) return false;
        auto stranger = accel::channel::connect(ctx, "local://pages").value();
        if (stranger.call({}).code() != accel::status::unauthorized) return false;
    }
    return latency.calls == 1 && served == 2;
}

}  // namespace

int main() {
    auto ctx = accel::context::open().value();
    const bool good = metadata_travels(ctx) && calls_are_intercepted(ctx);
    if (!good) std::fputs("the code of a page does something else\n", stderr);
    return good ? 0 : 1;
}
