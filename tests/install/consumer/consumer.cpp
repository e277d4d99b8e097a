// SPDX-License-Identifier: Apache-2.0
// One call from a client to a server of the same process, with the installed headers and library.
#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace {

int failed(const char* what, const accel::error& why) {
    std::fprintf(stderr, "%s: %s\n", what, why.message.c_str());
    return 1;
}

void echo(accel::exchange exchange) {
    const auto request = exchange.request();
    std::copy(request.begin(), request.end(), exchange.response().begin());
    exchange.reply(request.size());
}

}  // namespace

int main() {
    auto context = accel::context::open();
    if (!context) return failed("open", context.error());
    auto server = accel::server::listen(*context, {"local://consumer"}, echo);
    if (!server) return failed("listen", server.error());
    auto channel = accel::channel::connect(*context, "local://consumer");
    if (!channel) return failed("connect", channel.error());

    const std::array<std::byte, 3> request{std::byte{1}, std::byte{2}, std::byte{3}};
    auto response = channel->call(request);
    if (!response) return failed("call", response.error());
    const auto bytes = response->response;
    if (!std::equal(bytes.begin(), bytes.end(), request.begin(), request.end())) {
        std::fputs("the answer is not the request\n", stderr);
        return 1;
    }
    std::printf("accel_transport %d.%d.%d answered\n", ACCEL_VERSION_MAJOR, ACCEL_VERSION_MINOR, ACCEL_VERSION_PATCH);
}
