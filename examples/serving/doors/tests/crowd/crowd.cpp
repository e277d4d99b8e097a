// SPDX-License-Identifier: Apache-2.0
/// door_crowd --http HOST:PORT --grpc HOST:PORT --process PID: many clients of the model `double`, which leave at
/// random. Each answer is compared with its request, and the door's process has to hold no more at the end than before.
#include "client.hpp"
#include "report/descriptors.hpp"
#include "report/program.hpp"
#include "watch.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/epoll.h>
#include <unistd.h>

namespace {

namespace crowd = accel::examples::serving::doors::crowd;
using crowd::clock;

constexpr const char* program = "door_crowd";
constexpr std::chrono::milliseconds tick{2};
constexpr std::chrono::milliseconds between_looks{100};

struct choices {
    crowd::target to{.http = {}, .grpc = {}, .pause = {}, .patience = std::chrono::seconds{30}};
    std::uint32_t clients = 200;
    std::uint32_t seconds = 8;
    std::uint32_t rate = 2000;  ///< requests of all clients in a second
    pid_t process = 0;
    /// What the process may gain from the first half to the second: memory that an allocator keeps apart.
    std::size_t growth_kib = 8 << 10;
};

/// All clients, in one thread.
class load {
  public:
    load(const choices& chosen, crowd::tally& seen) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
        using crowd::protocol;
        for (std::uint32_t n = 0; n < chosen.clients; ++n) {
            const bool http = !chosen.to.http.empty() && (chosen.to.grpc.empty() || n % 2 == 0);
            members_.push_back(
                std::make_unique<crowd::client>(n, http ? protocol::http : protocol::grpc, chosen.to, seen));
        }
    }
    load(const load&) = delete;
    load& operator=(const load&) = delete;
    ~load() { close(epoll_); }

    void turn() {
        std::array<epoll_event, 256> ready;
        const int count =
            epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), static_cast<int>(tick.count()));
        for (int i = 0; i < count; ++i) {
            const std::uint64_t number = ready[static_cast<std::size_t>(i)].data.u64;
            if (members_[number]->fd() >= 0) members_[number]->on_ready();
            listen(number);
        }
        const auto now = clock::now();
        for (std::uint64_t number = 0; number < members_.size(); ++number) {
            if (members_[number]->due() > now) continue;
            members_[number]->on_due();
            listen(number);
        }
    }
    void finish() {
        for (const auto& each : members_) each->finish();
    }
    [[nodiscard]] bool done() const {
        return std::ranges::all_of(members_, [](const auto& each) { return each->idle() && each->fd() < 0; });
    }

  private:
    /// A socket that its owner has closed has left epoll by itself; its number may be a new socket's.
    void listen(std::uint64_t number) {
        const int fd = members_[number]->fd();
        if (fd < 0) return;
        epoll_event wanted{.events = EPOLLIN, .data = {.u64 = number}};
        if (members_[number]->wants_to_write()) wanted.events = EPOLLIN | EPOLLOUT;
        if (epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &wanted) != 0)
            static_cast<void>(epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &wanted));
    }

    int epoll_;
    std::vector<std::unique_ptr<crowd::client>> members_;
};

/// Runs the load and looks at the process on the way.
void run(load& all, crowd::watch& door, std::uint32_t seconds) {
    const auto end = clock::now() + std::chrono::seconds{seconds};
    auto look_at = clock::now();
    while (clock::now() < end) {
        all.turn();
        if (clock::now() < look_at) continue;
        door.look();
        look_at += between_looks;
    }
    all.finish();
    const auto patience = clock::now() + std::chrono::seconds{60};
    while (!all.done() && clock::now() < patience) all.turn();
}

nlohmann::json held(const crowd::holdings& what) {
    return {{"descriptors", what.descriptors}, {"memory_kib", what.memory_kib}};
}

int judge(const choices& chosen, const crowd::watch& door, const crowd::tally& seen) {
    const std::size_t half = door.looks() / 2;
    const auto early = door.most(0, half);
    const auto late = door.most(half, door.looks());
    fmt::print("{}\n", nlohmann::json{{"answers", seen.answers},
                                      {"connects", seen.connects},
                                      {"left", seen.left},
                                      {"given_up", seen.given_up},
                                      {"failures", seen.failures},
                                      {"first_half", held(early)},
                                      {"second_half", held(late)}}
                           .dump());
    if (seen.failures > 0) return accel::report::complain(program, seen.first_failure);
    if (seen.answers < chosen.clients) return accel::report::complain(program, "there were hardly any answers");
    if (late.memory_kib > early.memory_kib + chosen.growth_kib)
        return accel::report::complain(program, "the door's memory grows");
    // Of each client one, and those of its last connection that the door is closing.
    if (late.descriptors > early.descriptors + chosen.clients / 2)
        return accel::report::complain(program, "the door's descriptors become more");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    choices chosen;
    CLI::App app{"Many clients of a door at once, which leave at random; each compares its answers."};
    app.add_option("--http", chosen.to.http, "HOST:PORT of the HTTP door; with --grpc, half of the clients use it");
    app.add_option("--grpc", chosen.to.grpc, "HOST:PORT of the gRPC door");
    app.add_option("--process", chosen.process, "PID of the door")->required();
    app.add_option("--clients", chosen.clients, "(default 200)")->check(CLI::Range(1, 100'000));
    app.add_option("--seconds", chosen.seconds, "(default 8)")->check(CLI::Range(1, 100'000));
    app.add_option("--rate", chosen.rate, "Requests of all clients in a second (default 2000)")
        ->check(CLI::Range(1, 1'000'000));
    app.add_option("--growth-kib", chosen.growth_kib, "What the door's memory may gain in the second half");
    CLI11_PARSE(app, argc, argv);
    if (chosen.to.http.empty() && chosen.to.grpc.empty())
        return accel::report::complain(program, "give --http, --grpc or both");
    accel::report::raise_descriptor_limit();  // one for each client
    chosen.to.pause = std::chrono::milliseconds{std::uint64_t{1000} * chosen.clients / chosen.rate};
    crowd::tally seen;
    crowd::watch door{chosen.process};
    {
        load all{chosen, seen};
        run(all, door, chosen.seconds);
    }
    return judge(chosen, door, seen);
}
