// SPDX-License-Identifier: Apache-2.0
/// Coroutines that await calls, in a plain epoll loop: a few talkers, each of which asks one question after the other.
/// Against hello_server: coro_epoll 'tcp://127.0.0.1:5555?insecure=true' 100
#include <accel_transport/accel_transport.hpp>
#include <accel_transport/coro.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <sys/epoll.h>
#include <unistd.h>

namespace {

constexpr int talkers = 20;  // more than the channel has slots: some wait for one

int fail(std::string_view why) {
    std::fprintf(stderr, "coro_epoll: %.*s\n", static_cast<int>(why.size()), why.data());
    return 1;
}

struct tally {
    int good = 0;
    int bad = 0;
    int left = talkers;
};

accel::coro::detached talk(accel::coro::calls& calls, int number, int questions, tally& all) {
    for (int i = 0; i < questions; ++i) {
        const std::string question = "talker " + std::to_string(number) + ", question " + std::to_string(i);
        const accel::coro::answer got = co_await calls.call(std::as_bytes(std::span{question}));
        ++(got.ok() && got.bytes().size() == question.size() ? all.good : all.bad);
    }
    --all.left;
}

}  // namespace

int main(int argc, char** argv) {
    const int questions = argc > 2 ? std::atoi(argv[2]) : 100;
    auto context = accel::context::open();
    if (!context) return fail(context.error().message);
    auto channel = accel::channel::connect(*context, argc > 1 ? argv[1] : "tcp://127.0.0.1:5555?insecure=true");
    if (!channel) return fail(channel.error().message);
    accel::coro::calls calls{std::move(*channel)};

    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_event interest{};
    interest.events = EPOLLIN;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, calls.event_fd(), &interest) != 0) return fail("epoll_ctl failed");

    tally all;
    for (int i = 0; i < talkers; ++i) talk(calls, i, questions, all);
    while (all.left > 0) {
        // Sleep only when `arm` says that nothing is ready; else poll again. Coroutines go on inside `poll`.
        if (calls.poll() > 0 || !calls.arm()) continue;
        epoll_event ready{};
        if (epoll_wait(epoll, &ready, 1, 5'000) == 0) return fail("nothing happened for 5 s");
    }
    close(epoll);
    std::printf("%d answers of %d talkers\n", all.good, talkers);
    return all.bad == 0 ? 0 : fail("some calls failed");
}
