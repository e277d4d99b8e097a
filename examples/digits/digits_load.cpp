// SPDX-License-Identifier: Apache-2.0
#include "digits/digits_load.hpp"

#include "digits/digits_service.hpp"
#include "report/cpu_time.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

namespace accel::examples::digits {
namespace {

using clock = std::chrono::steady_clock;

/// Frames are large: each client draws this many and sends them in turn.
constexpr std::size_t max_inputs = 64;

/// One client: what it holds and what came of it. Used by its own thread only.
struct client {
    channel to;
    digit_inputs inputs;
    std::vector<timeline> timelines;
    std::uint64_t correct = 0;
    std::string failure;
};

std::string failure_text(const completion& done) {
    std::string text{to_string(done.status)};
    if (!done.response.empty()) {
        text += ": ";
        text.append(reinterpret_cast<const char*>(done.response.data()), done.response.size());
    }
    return text;
}

result<client> make_client(context& ctx, const load_options& options, std::size_t number) {
    channel_options wanted = options.channel;
    wanted.slots = 2;
    wanted.request_bytes = request_bytes(options.form);
    wanted.response_bytes = 256;  // an answer, or the sentence of a refusal
    auto to = channel::connect(ctx, options.uri, wanted);
    if (!to) return to.error();
    const std::size_t count = std::min<std::size_t>(options.requests, max_inputs);
    auto inputs = digit_inputs::make(ctx, options.form, number * count, count);
    if (!inputs) return inputs.error();
    client made{std::move(to).value(), std::move(inputs).value(), {}, 0, {}};
    made.timelines.reserve(options.requests);
    return made;
}

/// Sends one request and takes its answer. False, with the reason in `failure`, where that did not go well.
bool ask(client& self, std::size_t which) {
    const auto call = self.to.begin();
    status now = call.code();
    if (now == status::ok) now = self.to.submit(call->id, self.inputs.request(which));
    std::array<completion, 1> done;
    if (now == status::ok && self.to.wait(done, std::chrono::seconds{30}) == 0) now = status::timed_out;
    if (now != status::ok) {
        self.failure = to_string(now);
        return false;
    }
    digit_answer answer;
    bool answered = done[0].status == status::ok && done[0].response.size() == sizeof answer;
    if (answered) {
        std::memcpy(&answer, done[0].response.data(), sizeof answer);
        const failure refused = refusal_of(answer.label);
        answered = refused == failure::none;
        if (!answered) self.failure = describe(refused);
    }
    if (answered) {
        self.timelines.push_back(done[0].timeline);
        if (answer.label == static_cast<std::uint32_t>(self.inputs.label(which))) ++self.correct;
    } else if (self.failure.empty()) {
        self.failure = failure_text(done[0]);
    }
    done[0].release();
    return answered;
}

void run_client(client& self, std::uint32_t requests, load_progress& progress) {
    for (std::uint32_t i = 0; i < requests && ask(self, i % self.inputs.size()); ++i)
        progress.answered.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

result<load_outcome> run_load(context& ctx, const load_options& options, load_progress& progress) {
    std::vector<client> clients;
    for (std::size_t i = 0; i < options.clients; ++i) {
        auto made = make_client(ctx, options, i);
        if (!made) return made.error();
        clients.push_back(std::move(made).value());
    }
    load_outcome outcome;
    outcome.scheme = clients.front().to.scheme();

    if (progress.on_start) progress.on_start();
    const auto cpu_before = report::cpu_time();
    const auto start = clock::now();
    {
        std::vector<std::jthread> threads;
        threads.reserve(clients.size());
        for (client& each : clients)
            threads.emplace_back([&each, &options, &progress] { run_client(each, options.requests, progress); });
    }
    outcome.wall = clock::now() - start;
    outcome.cpu = report::cpu_time() - cpu_before;

    for (client& each : clients) {
        outcome.timelines.insert(outcome.timelines.end(), each.timelines.begin(), each.timelines.end());
        outcome.correct += each.correct;
        if (!each.failure.empty() && outcome.failure.empty()) outcome.failure = each.failure;
    }
    outcome.failed = std::uint64_t{options.clients} * options.requests - outcome.timelines.size();
    return outcome;
}

}  // namespace accel::examples::digits
