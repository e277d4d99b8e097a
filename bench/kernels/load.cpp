// SPDX-License-Identifier: Apache-2.0
#include "load.hpp"

#include "report/percentiles.hpp"
#include "work.hpp"

#include <cstring>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace accel::bench {
namespace {

using std::chrono::nanoseconds;

/// What one client has seen.
struct tally {
    std::vector<nanoseconds> totals;
    timeline sums;
    std::uint64_t wrong = 0;
    std::string failure;
};

void add(timeline& sum, const timeline& one) {
    sum.total += one.total;
    sum.request += one.request;
    sum.queue += one.queue;
    sum.copy += one.copy;
    sum.inference += one.inference;
    sum.response += one.response;
}

/// One call: the request is that of the slot's last one but for its first word, which is `number`.
class client {
  public:
    explicit client(channel through, std::size_t payload_bytes) : channel_(std::move(through)), bytes_(payload_bytes) {
        const auto call = channel_.begin();
        if (!call) return;
        for (std::size_t at = 0; at < bytes_; ++at) call->request[at] = static_cast<std::byte>(at * 131 + at / 251);
        rest_ = sum_of(call->request.first(bytes_)) - sum_of(call->request.first(8));
        (void)channel_.release(call->id);
    }
    [[nodiscard]] bool call(std::uint64_t number, completion& out) {
        const auto call = channel_.begin();
        if (!call) return false;
        std::memcpy(call->request.data(), &number, sizeof number);
        if (channel_.submit(call->id, bytes_) != status::ok) return false;
        if (channel_.wait({&out, 1}, std::chrono::seconds{30}) != 1) return false;
        std::uint64_t sum = 0;
        const bool answered = out.status == status::ok && out.response.size() == answer_bytes;
        if (answered) std::memcpy(&sum, out.response.data(), sizeof sum);
        out.release();
        return answered && sum == rest_ + number;
    }

  private:
    channel channel_;
    std::size_t bytes_;
    std::uint64_t rest_ = 0;
};

tally run_client(client& one, std::uint64_t first, std::uint64_t calls, bool counted) {
    tally out;
    out.totals.reserve(counted ? calls : 0);
    for (std::uint64_t i = 0; i < calls; ++i) {
        completion done;
        if (!one.call(first + i, done)) ++out.wrong;
        if (!counted) continue;
        out.totals.push_back(done.timeline.total);
        add(out.sums, done.timeline);
    }
    return out;
}

result<std::vector<client>> connect_all(context& ctx, const std::string& uri, const gpu_case& what) {
    channel_options options;
    options.slots = 1;  // the same memory each time, as an application's own buffer would be
    options.request_bytes = what.payload_bytes;
    options.response_bytes = answer_bytes;
    options.connect_timeout = std::chrono::seconds{20};
    options.peer_timeout = std::chrono::seconds{5};
    options.security.insecure = true;
    std::vector<client> all;
    for (unsigned i = 0; i < what.clients; ++i) {
        auto made = channel::connect(ctx, uri, options);
        if (!made) return made.error();
        all.emplace_back(std::move(*made), what.payload_bytes);
    }
    return all;
}

std::vector<tally> run_all(std::vector<client>& clients, std::uint64_t calls, bool counted) {
    std::vector<tally> seen(clients.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < clients.size(); ++i)
        threads.emplace_back([&, i] { seen[i] = run_client(clients[i], i << 40, calls, counted); });
    for (std::thread& each : threads) each.join();
    return seen;
}

}  // namespace

result<gpu_row> measure(context& ctx, const gpu_case& what, memory_kind memory) {
    auto served = gpu_server::start(ctx, what, memory);
    if (!served) return served.error();
    auto clients = connect_all(ctx, served->uri(), what);
    if (!clients) return clients.error();
    gpu_row row;
    for (const tally& each : run_all(*clients, 5, false)) row.wrong += each.wrong;

    auto before = served->used();
    if (!before) return before.error();
    const auto start = std::chrono::steady_clock::now();
    const std::vector<tally> seen = run_all(*clients, what.calls, true);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    auto after = served->used();
    if (!after) return after.error();

    timeline sums;
    std::vector<nanoseconds> totals;
    for (const tally& each : seen) {
        row.wrong += each.wrong;
        add(sums, each.sums);
        totals.insert(totals.end(), each.totals.begin(), each.totals.end());
    }
    row.calls = totals.size();
    const auto count = static_cast<double>(row.calls);
    const auto mean = [count](nanoseconds sum) { return report::microseconds(sum) / count; };
    row.total_us = mean(sums.total);
    row.request_us = mean(sums.request);
    row.queue_us = mean(sums.queue);
    row.copy_us = mean(sums.copy);
    row.inference_us = mean(sums.inference);
    row.response_us = mean(sums.response);
    const auto summary = report::summarise(std::move(totals));
    row.p50_us = report::microseconds(summary.p50);
    row.p99_us = report::microseconds(summary.p99);
    row.cpu_us_per_request = (after->cpu_us - before->cpu_us) / count;
    row.calls_per_s = count / took.count();
    row.ram_bytes = after->ram_bytes;
    row.gpu_bytes = after->gpu_bytes;
    return row;
}

}  // namespace accel::bench
