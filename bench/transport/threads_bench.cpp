// SPDX-License-Identifier: Apache-2.0
// Threads that call one server, each with one blocking call after the other, in every way that the library has:
//     threads_bench [URI [THREADS[,THREADS...] [BYTES [SECONDS [ROUNDS]]]]]
// The server runs in this process, on one worker. The ways take turns; the table has medians of the rounds.
#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace accel;
using clock_type = std::chrono::steady_clock;
using request_bytes = std::span<const std::byte>;

struct plan {
    std::string uri = "tcp://127.0.0.1:0";
    std::vector<int> threads{4, 200};
    std::size_t bytes = 64;
    double seconds = 2;
    std::size_t rounds = 5;
};

struct figures {
    double calls = 0;  ///< a second
    double median_us = 0;
    double p99_us = 0;
    std::uint64_t failed = 0;
};

/// How threads call: `start` makes what one thread calls with, on that thread. True: the call was answered.
struct way {
    std::string name;
    std::function<std::function<bool(request_bytes)>()> start;
};

template <class Made>
Made taken(result<Made> made) {
    if (!made) throw std::runtime_error(made.error().message);
    return std::move(made).value();
}

std::vector<way> ways_to(context& ctx, const std::string& uri, const channel_options& options,
                         std::shared_ptr<shared_channel> shared, std::shared_ptr<channel_pool> pool) {
    const auto own = [&ctx, uri, options] {
        auto mine = std::make_shared<channel>(taken(channel::connect(ctx, uri, options)));
        return [mine](request_bytes request) { return mine->call(request).ok(); };
    };
    const auto one = [shared] { return [shared](request_bytes request) { return shared->call(request).ok(); }; };
    const auto pooled = [pool] { return [pool](request_bytes request) { return pool->call(request).ok(); }; };
    return {{"a channel each", own}, {"shared_channel", one}, {"channel_pool", pooled}};
}

double at(std::vector<double>& all, double part) {
    const auto place = static_cast<std::size_t>(part * static_cast<double>(all.size() - 1));
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(place), all.end());
    return all[place];
}

struct tally {
    std::vector<double> microseconds;
    std::uint64_t failed = 0;
};

figures measure(const way& by, int threads, const plan& of) {
    std::vector<tally> tallies(static_cast<std::size_t>(threads));
    std::atomic<int> ready{0};
    std::atomic<bool> go{false}, stop{false};
    std::vector<std::thread> all;
    for (tally& mine : tallies) {
        all.emplace_back([&] {
            const std::vector<std::byte> request(of.bytes);
            const auto call = by.start();
            mine.failed += !call(request);
            ++ready;
            go.wait(false);
            for (auto before = clock_type::now(); !stop;) {
                mine.failed += !call(request);
                const auto after = clock_type::now();
                mine.microseconds.push_back(std::chrono::duration<double, std::micro>(after - before).count());
                before = after;
            }
        });
    }
    while (ready < threads) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    go = true;
    go.notify_all();
    std::this_thread::sleep_for(std::chrono::duration<double>{of.seconds});
    stop = true;
    for (std::thread& each : all) each.join();
    figures out;
    std::vector<double> times;
    for (const tally& each : tallies) {
        times.insert(times.end(), each.microseconds.begin(), each.microseconds.end());
        out.failed += each.failed;
    }
    if (times.empty()) return out;
    out.calls = static_cast<double>(times.size()) / of.seconds;
    out.median_us = at(times, 0.5);
    out.p99_us = at(times, 0.99);
    return out;
}

double median(const std::vector<figures>& rounds, double figures::*which) {
    std::vector<double> all;
    for (const figures& each : rounds) all.push_back(each.*which);
    return at(all, 0.5);
}

void run(const plan& of) {
    auto ctx = taken(context::open());
    const bool local = of.uri.starts_with("local:") || of.uri.starts_with("shm:");
    const std::string insecure = local ? "" : "?insecure=true";
    auto served = taken(server::listen(ctx, {of.uri + insecure}, [](exchange one) {
        const std::size_t length = one.request().size();
        if (length > 0) std::memcpy(one.response().data(), one.request().data(), length);
        one.reply(length);
    }));
    channel_options options;
    options.request_bytes = options.response_bytes = std::max<std::size_t>(of.bytes, 64);
    const std::string uri = served.endpoints().front() + insecure;
    channel_options wide = options;
    wide.slots = 256;  // a server's most, so that calls of 200 threads do not wait for slots
    auto shared = std::make_shared<shared_channel>(taken(shared_channel::connect(ctx, uri, wide)));
    auto pool = std::make_shared<channel_pool>(taken(channel_pool::open(ctx, uri, options)));
    const std::vector<way> ways = ways_to(ctx, uri, options, shared, pool);
    std::printf("%-8s %-16s %12s %12s %12s %8s\n", "threads", "by", "calls/s", "median us", "p99 us", "failed");
    for (const int threads : of.threads) {
        std::vector<std::vector<figures>> all(ways.size());
        for (std::size_t round = 0; round < of.rounds; ++round)
            for (std::size_t i = 0; i < ways.size(); ++i) all[i].push_back(measure(ways[i], threads, of));
        for (std::size_t i = 0; i < ways.size(); ++i) {
            std::uint64_t failed = 0;
            for (const figures& each : all[i]) failed += each.failed;
            std::printf("%-8d %-16s %12.0f %12.1f %12.1f %8llu\n", threads, ways[i].name.c_str(),
                        median(all[i], &figures::calls), median(all[i], &figures::median_us),
                        median(all[i], &figures::p99_us), static_cast<unsigned long long>(failed));
        }
    }
}

std::vector<int> numbers(const std::string& text) {
    std::vector<int> out;
    std::istringstream in(text);
    for (std::string each; std::getline(in, each, ',');) out.push_back(std::atoi(each.c_str()));
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    plan of;
    if (argc > 1) of.uri = argv[1];
    if (argc > 2) of.threads = numbers(argv[2]);
    if (argc > 3) of.bytes = static_cast<std::size_t>(std::atoll(argv[3]));
    if (argc > 4) of.seconds = std::atof(argv[4]);
    if (argc > 5) of.rounds = static_cast<std::size_t>(std::atoll(argv[5]));
    try {
        run(of);
    } catch (const std::exception& why) {
        std::fprintf(stderr, "threads_bench: %s\n", why.what());
        return 1;
    }
}
