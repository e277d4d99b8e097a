// SPDX-License-Identifier: Apache-2.0
#include "load.hpp"

#include "report/percentiles.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <utility>

#include <fmt/format.h>

namespace accel::bench {
namespace {

using std::chrono::nanoseconds;

/// Algorithms may differ from one way to another, and with them the order of sums in reduced precision.
constexpr double too_far = 0.02;

/// Requests, and what they are answered with; that of torch's networks is what the first way says.
struct questions {
    explicit questions(const network_choice& what, std::size_t bytes) : choice(what) {
        for (std::size_t i = 0; i < input_count; ++i) {
            inputs[i] = make_input(what, i, bytes);
            answers[i] = answer_of_host(what, inputs[i]);
        }
    }
    network_choice choice;
    std::array<std::vector<std::byte>, input_count> inputs;
    std::array<std::vector<std::byte>, input_count> answers;
};

/// One client, one call in flight.
class inference_client {
  public:
    inference_client(channel through, questions& asks) : channel_(std::move(through)), asks_(asks) {}

    /// The call of `number`; how far its answer is off, or 1.
    [[nodiscard]] double call(std::size_t number, timeline& times) {
        const std::size_t which = number % input_count;
        const std::vector<std::byte>& input = asks_.inputs[which];
        const auto call = channel_.begin();
        if (!call) return 1;
        std::memcpy(call->request.data(), input.data(), input.size());
        if (channel_.submit(call->id, input.size()) != status::ok) return 1;
        completion done;
        if (channel_.wait({&done, 1}, std::chrono::seconds{60}) != 1) return 1;
        const double off = done.status == status::ok ? compare(which, done.response) : 1;
        if (done.status != status::ok) complain(done);
        times = done.timeline;
        return off;
    }

  private:
    /// Once; a failure's response is its message.
    void complain(const completion& done) {
        if (std::exchange(complained_, true)) return;
        const auto* const text = reinterpret_cast<const char*>(done.response.data());
        std::cerr << fmt::format("inference_bench: a call ends as {}: {}\n", to_string(done.status),
                                 std::string_view{text, done.response.size()});
    }
    [[nodiscard]] double compare(std::size_t which, std::span<const std::byte> answer) {
        std::vector<std::byte>& expected = asks_.answers[which];
        if (expected.empty()) expected.assign(answer.begin(), answer.end());
        return distance(asks_.choice, answer, expected);
    }

    channel channel_;
    questions& asks_;
    bool complained_ = false;
};

result<channel> connect(context& ctx, const std::string& uri, const inference_server& served) {
    channel_options options;
    options.slots = 1;
    options.request_bytes = served.input_bytes();
    options.response_bytes = std::max<std::size_t>(served.output_bytes(), 64);
    options.connect_timeout = std::chrono::seconds{20};
    options.call_timeout = std::chrono::seconds{60};
    options.peer_timeout = std::chrono::seconds{5};
    options.security.insecure = true;
    return channel::connect(ctx, uri, options);
}

/// Means from sums.
void divide(inference_row& row, double calls) {
    for (double* each : {&row.total_us, &row.request_us, &row.queue_us, &row.copy_us, &row.preprocessing_us,
                         &row.inference_us, &row.response_us, &row.server_us, &row.cpu_us_per_request})
        *each /= calls;
}

void add(inference_row& row, const timeline& one) {
    row.total_us += report::microseconds(one.total);
    row.request_us += report::microseconds(one.request);
    row.queue_us += report::microseconds(one.queue);
    row.copy_us += report::microseconds(one.copy);
    row.preprocessing_us += report::microseconds(one.preprocessing);
    row.inference_us += report::microseconds(one.inference);
    row.response_us += report::microseconds(one.response);
    row.server_us += report::microseconds(one.server);
}

result<inference_row> measure(context& ctx, const inference_server& served, const serving& how, questions& asks,
                              const inference_settings& wanted) {
    auto through = connect(ctx, served.uris().at(how), served);
    if (!through) return through.error();
    inference_client client(std::move(*through), asks);
    inference_row row;
    row.what = asks.choice;
    row.how = how;
    row.payload_bytes = served.input_bytes();
    timeline times;
    for (std::uint64_t i = 0; i < wanted.warm_up; ++i)
        if (client.call(i, times) >= 1) return error{status::application_error, 0, "no right answer"};
    auto before = served.cpu_time();
    if (!before) return before.error();
    std::vector<nanoseconds> totals;
    totals.reserve(wanted.calls);
    for (std::uint64_t i = 0; i < wanted.calls; ++i) {
        const double off = client.call(i, times);
        if (off > too_far) {
            ++row.wrong;
            if (row.wrong > 100) return error{status::application_error, 0, "a hundred wrong answers"};
            continue;
        }
        row.farthest = std::max(row.farthest, off);
        totals.push_back(times.total);
        add(row, times);
    }
    auto after = served.cpu_time();
    if (!after) return after.error();
    row.calls = totals.size();
    row.cpu_us_per_request = report::microseconds(*after - *before);
    divide(row, static_cast<double>(std::max<std::uint64_t>(row.calls, 1)));
    const auto summary = report::summarise(std::move(totals));
    row.p50_us = report::microseconds(summary.p50);
    row.p99_us = report::microseconds(summary.p99);
    return row;
}

/// The GPU's own times where it serves by itself; what clients are told is the whole of them.
void take_stages(inference_row& row, const graph_times& times) {
    row.queue_us = times.waiting;
    row.copy_us = times.copy_in + times.copy_out;
    row.inference_us = times.work;
    row.graph = times;
}

void measure_all(context& ctx, const network_choice& choice, const std::string& who, std::optional<questions>& asks,
                 const inference_settings& wanted, std::vector<inference_row>& rows) {
    auto served = inference_server::start(choice, who);
    if (!served) {
        std::cerr << fmt::format("inference_bench: {}: {}\n", choice.text(), served.error().message);
        return;
    }
    if (!asks) asks.emplace(choice, served->input_bytes());
    const std::size_t first = rows.size();
    std::vector<serving> ways;
    for (const auto& each : served->uris()) ways.push_back(each.first);
    std::sort(ways.begin(), ways.end(), [](const serving& a, const serving& b) {
        return std::pair{a.way, b.scheme} < std::pair{b.way, a.scheme};  // launched first, rdma before gdr
    });
    for (const serving& each : ways) {
        auto row = measure(ctx, *served, each, *asks, wanted);
        if (!row) {
            std::cerr << fmt::format("inference_bench: {}, {} {} is left out: {}\n", choice.text(), each.scheme,
                                     each.way, row.error().message);
            continue;
        }
        std::cerr << fmt::format("{}, {} {}: {:.0f} us\n", choice.text(), each.scheme, each.way, row->total_us);
        rows.push_back(std::move(*row));
    }
    const auto times = served->stop();
    if (who == by_handlers) return;
    if (!times) std::cerr << "inference_bench: the GPU-resident service did not end as it should\n";
    for (std::size_t i = first; times && i < rows.size(); ++i) take_stages(rows[i], *times);
}

}  // namespace

std::vector<inference_row> measure_network(context& ctx, const network_choice& choice,
                                           const inference_settings& wanted) {
    std::vector<inference_row> rows;
    std::optional<questions> asks;
    for (const char* who : {by_handlers, host_slots, gpu_resident}) measure_all(ctx, choice, who, asks, wanted, rows);
    return rows;
}

}  // namespace accel::bench
