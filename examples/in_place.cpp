// SPDX-License-Identifier: Apache-2.0
/// Writes requests in place, with several calls in flight. Against hello_server:
/// in_place 'tcp://127.0.0.1:5555?insecure=true'
#include <accel_transport/accel_transport.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace {

constexpr std::array<std::string_view, 3> words{"one", "two", "three"};

int fail(std::string_view why) {
    std::fprintf(stderr, "in_place: %.*s\n", static_cast<int>(why.size()), why.data());
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    auto context = accel::context::open();
    if (!context) return fail(context.error().message);
    auto channel = accel::channel::connect(*context, argc > 1 ? argv[1] : "tcp://127.0.0.1:5555?insecure=true");
    if (!channel) return fail(channel.error().message);

    for (std::size_t i = 0; i < words.size(); ++i) {
        const auto call = channel->begin();  // borrows a slot; `again`: all are in use, poll first
        if (!call) return fail(channel->last_error());
        std::memcpy(call->request.data(), words[i].data(), words[i].size());
        // A call that `submit` refuses stays begun: submit it again, or release it.
        if (channel->submit(call->id, words[i].size(), {.tag = i}) != accel::status::ok)
            return fail(channel->last_error());
    }

    std::array<std::string, words.size()> answers;
    std::array<accel::completion, 2> done;
    for (std::size_t left = words.size(); left > 0;) {
        const std::size_t count = channel->wait(done, std::chrono::seconds{5});
        if (count == 0) return fail("nothing came for 5 s");
        for (std::size_t i = 0; i < count; ++i) {
            if (done[i].status != accel::status::ok) return fail("a call failed");
            const auto bytes = done[i].response;  // in its slot, until `done[i]` goes or the next `wait`
            answers[done[i].tag].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        }
        left -= count;
    }
    for (const std::string& each : answers) std::printf("%s ", each.c_str());
    std::printf("\n");
}
