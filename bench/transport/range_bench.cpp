// SPDX-License-Identifier: Apache-2.0
// How long `submit` takes for a request of many ranges, and how long until its answer:
//     range_bench [URI [RANGES [BYTES [ROUNDS [MOST_MS]]]]]
// The server runs in this process, on a thread of its own. No two ranges are neighbours in memory. Exit status 1 if
// even the quickest `submit` took longer than MOST_MS.
#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace accel;
using clock_type = std::chrono::steady_clock;

struct plan {
    std::string uri = "local://ranges";
    std::size_t ranges = 15'000;
    std::size_t bytes = 8 << 10;
    std::size_t rounds = 7;
    double most_ms = 0;  ///< of the quickest `submit`; 0: any
};

double milliseconds(clock_type::duration taken) {
    return std::chrono::duration<double, std::milli>(taken).count();
}

double median(std::vector<double> all) {
    std::ranges::sort(all);
    return all[all.size() / 2];
}

/// Every other stretch of the region, in an order that no prefetcher knows.
std::vector<slice> spread(const region& memory, const plan& of) {
    std::vector<slice> out;
    for (std::size_t i = 0; i < of.ranges; ++i)
        out.push_back(memory.part(2 * (i * 7'919 % of.ranges) * of.bytes, of.bytes).value());
    return out;
}

void row(const char* what, const std::vector<double>& all) {
    std::printf("%-10s median %8.3f ms, least %8.3f ms, most %8.3f ms\n", what, median(all), std::ranges::min(all),
                std::ranges::max(all));
}

int measure(const plan& of) {
    const std::size_t all_bytes = of.ranges * of.bytes;
    auto ctx = context::open().value();
    server_options served;
    served.max_request_bytes = std::max(served.max_request_bytes, all_bytes);
    const bool local = of.uri.starts_with("local:") || of.uri.starts_with("shm:");
    const std::string insecure = local ? "" : "?insecure=true";
    auto service = server::listen(
                       ctx, {of.uri + insecure}, [](exchange request) { request.reply(0); }, served)
                       .value();
    channel_options options;
    options.request_bytes = all_bytes;
    options.slots = 2;
    options.call_timeout = std::chrono::minutes{1};
    auto made = channel::connect(ctx, service.endpoints().front() + insecure, options);
    if (!made) {
        std::fprintf(stderr, "%s\n", made.error().message.c_str());
        return 1;
    }
    channel& to = *made;
    const region memory = ctx.allocate(2 * all_bytes).value();
    std::ranges::fill(memory.whole().bytes(), std::byte{1});
    const std::vector<slice> list = spread(memory, of);
    std::vector<double> submits;
    std::vector<double> answers;
    for (std::size_t i = 0; i <= of.rounds; ++i) {
        const auto call = to.begin();
        if (!call) return 1;
        const auto start = clock_type::now();
        if (to.submit(call->id, list) != status::ok) return 1;
        const auto submitted = clock_type::now();
        completion c;
        if (to.wait({&c, 1}, std::chrono::minutes{1}) != 1 || c.status != status::ok) return 1;
        const auto answered = clock_type::now();
        c.release();
        if (i == 0) continue;  // registers memory
        submits.push_back(milliseconds(submitted - start));
        answers.push_back(milliseconds(answered - start));
    }
    std::printf("%s: %zu ranges of %zu bytes, %zu rounds\n", std::string(to.scheme()).c_str(), of.ranges, of.bytes,
                of.rounds);
    row("submit", submits);
    row("answered", answers);
    if (of.most_ms == 0 || std::ranges::min(submits) <= of.most_ms) return 0;
    std::fprintf(stderr, "submit took longer than %g ms\n", of.most_ms);
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    plan of;
    if (argc > 1) of.uri = argv[1];
    if (argc > 2) of.ranges = std::strtoull(argv[2], nullptr, 10);
    if (argc > 3) of.bytes = std::strtoull(argv[3], nullptr, 10);
    if (argc > 4) of.rounds = std::strtoull(argv[4], nullptr, 10);
    if (argc > 5) of.most_ms = std::strtod(argv[5], nullptr);
    if (of.ranges == 0 || of.ranges > max_ranges || of.bytes == 0 || of.rounds == 0) {
        std::fprintf(stderr, "range_bench [URI [RANGES [BYTES [ROUNDS [MOST_MS]]]]]\n");
        return 2;
    }
    return measure(of);
}
