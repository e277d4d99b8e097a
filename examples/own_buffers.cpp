// SPDX-License-Identifier: Apache-2.0
/// Keeps its own memory: registers it once, sends a request from where it lies, has the response put where it
/// wants it. No copy at this end in either direction. Against hello_server: own_buffers
/// 'tcp://127.0.0.1:5555?insecure=true'
#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cctype>
#include <cstdio>
#include <string_view>
#include <vector>

namespace {

int fail(std::string_view what, const accel::error& why) {
    std::fprintf(stderr, "own_buffers: %.*s: %s\n", static_cast<int>(what.size()), what.data(), why.message.c_str());
    return 1;
}

int fail(std::string_view what, accel::status why) {
    return fail(what, {why, 0, std::string{accel::to_string(why)}});
}

}  // namespace

int main(int argc, char** argv) {
    constexpr std::size_t length = 100'000;

    // The memory outlives its registration, which outlives the channel: so they are made in this order.
    std::vector<std::byte> question(length, std::byte{'a'});
    std::vector<std::byte> answer(length);
    auto context = accel::context::open();
    if (!context) return fail("open", context.error());
    auto out = context->register_memory(question.data(), question.size());
    if (!out) return fail("register the question", out.error());
    auto in = context->register_memory(answer.data(), answer.size());
    if (!in) return fail("register the answer", in.error());
    auto channel = accel::channel::connect(*context, argc > 1 ? argv[1] : "tcp://127.0.0.1:5555?insecure=true");
    if (!channel) return fail("connect", channel.error());

    const auto call = channel->begin();
    if (!call) return fail("begin", call.error());
    accel::submit_options options;
    options.response_into = in->whole();
    options.timeout = std::chrono::seconds{5};
    const auto sent = channel->submit(call->id, out->whole(), options);
    if (sent != accel::status::ok) return fail("submit", sent);

    // From here until the completion both buffers are lent to the transport.
    std::array<accel::completion, 1> done;
    if (channel->wait(done, std::chrono::seconds{10}) != 1) return fail("wait", accel::status::timed_out);
    if (done[0].status != accel::status::ok) return fail("call", done[0].status);

    const bool in_place = done[0].response.data() == answer.data() && done[0].response.size() == length;
    const bool right = in_place && answer.front() == std::byte{'A'} && answer.back() == std::byte{'A'};
    std::printf("%zu bytes went out of our buffer and came back into our buffer: %s\n", length,
                right ? "right" : "WRONG");
    return right ? 0 : 1;
}
