// SPDX-License-Identifier: Apache-2.0
/// Threads that call over one channel: shared [URI]
#include <accel_transport/accel_transport.hpp>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace accel;

constexpr int threads = 12;  // more than the channel has slots
constexpr int calls_each = 50;

void echo(exchange request) {
    const auto bytes = request.request();
    std::memcpy(request.response().data(), bytes.data(), bytes.size());
    request.reply(bytes.size());
}

bool same(const shared_response& answer, const std::string& text) {
    return std::string_view{reinterpret_cast<const char*>(answer.response.data()), answer.response.size()} == text;
}

/// Two calls at a time: one is sent while the thread waits for the other.
int work(shared_channel& shared, int thread) {
    int good = 0;
    for (int i = 0; i < calls_each; i += 2) {
        const std::string first = std::to_string(thread) + " asks " + std::to_string(i);
        const std::string second = first + " and more";
        auto begun = shared.submit(std::as_bytes(std::span{second}));
        auto answer = shared.call(std::as_bytes(std::span{first}), {.timeout = std::chrono::seconds{30}});
        good += answer && same(*answer, first);
        if (!begun) continue;
        auto other = begun->wait();
        good += other && same(*other, second);
    }
    return good;
}

int fail(const error& why) {
    std::fprintf(stderr, "shared: %s\n", why.message.c_str());
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    auto ctx = context::open();
    if (!ctx) return fail(ctx.error());
    auto served = server::listen(*ctx, {argc > 1 ? argv[1] : "local://shared"}, echo);
    if (!served) return fail(served.error());
    const std::string keys = argc > 1 ? "?insecure=true" : "";
    auto shared = shared_channel::connect(*ctx, served->endpoints().front() + keys);
    if (!shared) return fail(shared.error());
    std::atomic<int> good{0};
    std::vector<std::thread> all;
    all.reserve(threads);
    for (int i = 0; i < threads; ++i) all.emplace_back([&, i] { good += work(*shared, i); });
    for (std::thread& each : all) each.join();
    std::printf("%d answers for %d threads over %u slots\n", good.load(), threads, shared->slots());
    return good == threads * calls_each ? 0 : 1;
}
