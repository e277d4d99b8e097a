// SPDX-License-Identifier: Apache-2.0
#include "load.hpp"

#include "report/percentiles.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include <sys/epoll.h>
#include <unistd.h>

namespace accel::bench {

namespace clients = examples::serving::doors::clients;

namespace {

constexpr std::chrono::seconds call_patience{10};

error broken_call(const std::string& address) {
    return {status::peer_lost, 0, address + ": a call failed, or had a wrong answer"};
}

}  // namespace

door_load::door_load(door_load&& other) noexcept
    : epoll_(std::exchange(other.epoll_, -1)),
      request_(std::move(other.request_)),
      members_(std::move(other.members_)) {}

door_load::~door_load() {
    if (epoll_ >= 0) ::close(epoll_);
}

result<door_load> door_load::open(const std::string& address, std::size_t connections, std::size_t size_bytes) {
    door_load made;
    made.epoll_ = epoll_create1(EPOLL_CLOEXEC);
    made.request_.resize(size_bytes);
    for (std::size_t i = 0; i < size_bytes; ++i) made.request_[i] = static_cast<std::byte>(i * 37 + i / 251);
    const clients::vector_model model{"echo", size_bytes / sizeof(float)};
    for (std::size_t i = 0; i < connections; ++i) {
        auto to = clients::line::connect(address);
        if (!to) return broken_call(address);
        made.members_.push_back({std::move(*to), clients::grpc_talk(model)});
    }
    for (member& each : made.members_) {
        epoll_event wanted{.events = EPOLLIN,
                           .data = {.u64 = static_cast<std::uint64_t>(&each - made.members_.data())}};
        static_cast<void>(epoll_ctl(made.epoll_, EPOLL_CTL_ADD, each.line.fd(), &wanted));
    }
    if (auto first = made.run(std::chrono::milliseconds{1}); !first)
        return error{status::peer_lost, 0, address + ": " + first.error().message};
    return made;
}

void door_load::ask(member& one) {
    one.talk->ask(request_);
    one.waits = true;
    one.began = clock::now();
}

/// Writes what can be written, reads what is there.
bool door_load::go_on(member& one, std::vector<double>& times) {
    std::size_t most = std::numeric_limits<std::size_t>::max();
    if (!one.line.write(*one.talk, most) || !one.line.read(*one.talk)) return false;
    if (!one.talk->unsent().empty() && !one.line.write(*one.talk, most)) return false;
    if (!one.waits || !one.talk->ended()) return true;
    times.push_back(report::microseconds(clock::now() - one.began));
    one.waits = false;
    const std::string_view got = one.talk->elements();
    return got.size() == request_.size() && std::memcmp(got.data(), request_.data(), got.size()) == 0;
}

void door_load::listen(member& one) {
    const bool write = !one.talk->unsent().empty();
    if (write == std::exchange(one.wants_to_write, write)) return;
    epoll_event wanted{.events = EPOLLIN, .data = {.u64 = static_cast<std::uint64_t>(&one - members_.data())}};
    if (write) wanted.events = EPOLLIN | EPOLLOUT;
    static_cast<void>(epoll_ctl(epoll_, EPOLL_CTL_MOD, one.line.fd(), &wanted));
}

result<std::vector<double>> door_load::run(std::chrono::milliseconds how_long) {
    std::vector<double> times;
    const auto until = clock::now() + how_long;
    const auto step = [&](member& one) {
        if (!one.waits && clock::now() < until) ask(one);
        bool good = go_on(one, times);
        if (good && !one.waits && clock::now() < until) {
            ask(one);
            good = go_on(one, times);
        }
        listen(one);
        return good;
    };
    const error failed{status::peer_lost, 0, "a call failed, or had a wrong answer"};
    for (member& each : members_)
        if (!step(each)) return failed;
    std::array<epoll_event, 64> ready;
    while (std::ranges::any_of(members_, &member::waits)) {
        const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()),
                                     static_cast<int>(std::chrono::milliseconds{call_patience}.count()));
        if (count <= 0) return failed;
        for (int i = 0; i < count; ++i)
            if (!step(members_[ready[static_cast<std::size_t>(i)].data.u64])) return failed;
    }
    return times;
}

}  // namespace accel::bench
