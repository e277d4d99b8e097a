// SPDX-License-Identifier: Apache-2.0
/// A channel in an epoll loop, beside another descriptor (here a timer that submits a call every
/// millisecond). Against hello_server: epoll_client 'tcp://127.0.0.1:5555?insecure=true' 100
#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace {

constexpr std::string_view question = "are you there?";

int fail(std::string_view why) {
    std::fprintf(stderr, "epoll_client: %.*s\n", static_cast<int>(why.size()), why.data());
    return 1;
}

bool watch(int epoll, int descriptor) {
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.fd = descriptor;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &interest) == 0;
}

int make_timer() {
    itimerspec every_millisecond{};
    every_millisecond.it_value.tv_nsec = every_millisecond.it_interval.tv_nsec = 1'000'000;
    const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer >= 0) timerfd_settime(timer, 0, &every_millisecond, nullptr);
    return timer;
}

accel::status ask(accel::channel& channel) {
    const auto call = channel.begin();
    if (!call) return call.error();
    std::memcpy(call->request.data(), question.data(), question.size());
    const auto sent = channel.submit(call->id, question.size());
    if (sent != accel::status::ok) channel.release(call->id);
    return sent;
}

/// Takes what is there. False on a call that failed.
bool take_answers(accel::channel& channel, int& answers) {
    std::array<accel::completion, 8> done;
    while (const std::size_t count = channel.poll(done)) {
        for (std::size_t i = 0; i < count; ++i) {
            if (done[i].status != accel::status::ok) return false;
            ++answers;
        }
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    const int wanted = argc > 2 ? std::atoi(argv[2]) : 100;
    auto context = accel::context::open();
    if (!context) return fail(context.error().message);
    auto channel = accel::channel::connect(*context, argc > 1 ? argv[1] : "tcp://127.0.0.1:5555?insecure=true");
    if (!channel) return fail(channel.error().message);

    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    const int timer = make_timer();
    if (!watch(epoll, timer) || !watch(epoll, channel->event_fd())) return fail("epoll_ctl failed");

    int asked = 0;
    int answers = 0;
    while (answers < wanted) {
        if (!take_answers(*channel, answers)) return fail("a call failed");
        // Sleep only when `arm` says that nothing is ready; else poll again.
        if (!channel->arm()) continue;
        std::array<epoll_event, 2> ready;
        const int count = epoll_wait(epoll, ready.data(), ready.size(), 5'000);
        if (count == 0) return fail("nothing happened for 5 s");
        std::uint64_t ticks = 0;
        if (asked < wanted && read(timer, &ticks, sizeof ticks) == sizeof ticks) {
            const auto sent = ask(*channel);
            if (sent == accel::status::ok) ++asked;
            // `again`: every slot is in use; the next tick will do.
            if (sent != accel::status::ok && sent != accel::status::again) return fail(accel::to_string(sent));
        }
    }
    std::printf("%d answers\n", answers);
    close(timer);
    close(epoll);
}
