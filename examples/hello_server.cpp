// SPDX-License-Identifier: Apache-2.0
/// Answers every request with its text in capitals: hello_server 'tcp://127.0.0.1:5555?insecure=true'
#include <accel_transport/accel_transport.hpp>

#include <cctype>
#include <cstdio>

namespace {

void shout(accel::exchange request) {
    const auto text = request.request();
    const auto room = request.response();
    if (text.size() > room.size()) {
        request.fail(accel::status::message_too_large, 0, "the answer is as long as the question: ask for more room");
        return;
    }
    for (std::size_t i = 0; i < text.size(); ++i)
        room[i] = static_cast<std::byte>(std::toupper(static_cast<unsigned char>(text[i])));
    request.reply(text.size());
}

int fail(const accel::error& why) {
    std::fprintf(stderr, "hello_server: %s\n", why.message.c_str());
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    auto context = accel::context::open();
    if (!context) return fail(context.error());
    auto server = accel::server::listen(*context, argc > 1 ? argv[1] : "tcp://127.0.0.1:5555?insecure=true", shout);
    if (!server) return fail(server.error());

    std::printf("serving %s; end it with the Enter key\n", server->endpoints().front().c_str());
    std::fflush(stdout);
    std::getchar();
}
