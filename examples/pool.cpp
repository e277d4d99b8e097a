// SPDX-License-Identifier: Apache-2.0
/// Threads that share a pool of channels to two servers, which start later, and of which one ends meanwhile. Then one
/// channel that says when it is lost and made anew: pool [ADDRESS]
#include <accel_transport/accel_transport.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace accel;
using namespace std::chrono_literals;

constexpr int threads = 4;

void echo(exchange request) {
    request.reply(request.request().size() > request.response().size() ? 0 : request.request().size());
}

server start(context& ctx, const std::string& uri) {
    auto made = server::listen(ctx, uri + "?insecure=true", echo);
    if (made) return std::move(*made);
    std::fprintf(stderr, "pool: %s\n", made.error().message.c_str());
    std::exit(1);
}

struct tally {
    std::atomic<int> good{0};
    std::atomic<int> again{0};
};

/// A thread's work. A call that a dying server did not answer is not sent again by the library. This one may be.
void work(const std::stop_token& stop, channel_pool& pool, tally& all) {
    const std::array<std::byte, 100> question{};
    while (!stop.stop_requested()) {
        const auto answer = pool.call(question);
        ++(answer ? all.good : all.again);
        if (!answer) std::this_thread::sleep_for(1ms);
    }
}

void await_answers(const tally& all, int more) {
    for (const int until = all.good + more; all.good < until;) std::this_thread::sleep_for(1ms);
}

bool share(context& ctx, const std::string& first, const std::string& second) {
    channel_options options;
    options.security.insecure = true;
    options.connect_retry = 20s;  // the servers may start later
    const std::string both = first + "," + second.substr(second.find("://") + 3);
    auto pool = channel_pool::open(ctx, both, options);
    if (!pool) {
        std::fprintf(stderr, "pool: %s\n", pool.error().message.c_str());
        return false;
    }
    tally all;
    std::vector<std::jthread> workers;
    workers.reserve(threads);
    for (int i = 0; i < threads; ++i)
        workers.emplace_back([&](const std::stop_token& stop) { work(stop, *pool, all); });
    std::this_thread::sleep_for(100ms);
    const server one = start(ctx, first);
    std::optional<server> other(start(ctx, second));
    await_answers(all, 1000);
    other.reset();
    await_answers(all, 1000);
    workers.clear();  // asks them to stop, and waits
    const pool_statistics seen = pool->statistics();
    std::printf("%d threads: %d answers, %d calls made again, %llu connections\n", threads, all.good.load(),
                all.again.load(), static_cast<unsigned long long>(seen.made));
    return pool->close(5s) == status::ok;
}

/// One channel, and what it says of its connection.
bool watch(context& ctx, const std::string& uri) {
    std::optional<server> serving(start(ctx, uri));
    channel_options options;
    options.security.insecure = true;
    options.reconnect = true;
    auto made = channel::connect(ctx, uri, options);
    if (!made) return false;
    const auto hear = [&](channel_event wanted) {
        for (int i = 0; i < 2000; ++i) {
            std::array<completion, 1> none;
            (void)made->wait(none, 10ms);
            if (made->take_event() == wanted) return true;
        }
        return false;
    };
    serving.reset();
    const bool lost = hear(channel_event::lost);
    serving.emplace(start(ctx, uri));
    const bool back = hear(channel_event::reconnected);
    std::printf("the connection was %s and %s\n", lost ? "lost" : "never lost", back ? "made anew" : "is gone");
    return lost && back;
}

/// Where a server may listen.
std::string free_port(context& ctx, const std::string& address) {
    return start(ctx, "tcp://" + address + ":0").endpoints().front();
}

}  // namespace

int main(int argc, char** argv) {
    const std::string address = argc > 1 ? argv[1] : "127.0.0.1";
    auto ctx = context::open().value();
    const std::string first = free_port(ctx, address);
    const std::string second = free_port(ctx, address);
    return share(ctx, first, second) && watch(ctx, first) ? 0 : 1;
}
