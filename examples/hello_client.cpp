// SPDX-License-Identifier: Apache-2.0
/// Sends a line of text and prints the answer: hello_client 'tcp://127.0.0.1:5555?insecure=true' "some text"
#include <accel_transport/accel_transport.hpp>

#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace {

int fail(const accel::error& why) {
    std::fprintf(stderr, "hello_client: %s\n", why.message.c_str());
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    auto context = accel::context::open();
    if (!context) return fail(context.error());
    auto channel = accel::channel::connect(*context, argc > 1 ? argv[1] : "tcp://127.0.0.1:5555?insecure=true");
    if (!channel) return fail(channel.error());

    const std::string_view text = argc > 2 ? argv[2] : "hello, world";
    auto answer = channel->call(std::as_bytes(std::span{text}));
    if (!answer) return fail(answer.error());

    const auto bytes = answer->response;
    const double microseconds = std::chrono::duration<double, std::micro>(answer->timeline.total).count();
    std::printf("%.*s\n", static_cast<int>(bytes.size()), reinterpret_cast<const char*>(bytes.data()));
    std::printf("%.0f us over %s\n", microseconds, std::string{channel->scheme()}.c_str());
}
