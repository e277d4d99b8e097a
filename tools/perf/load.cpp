// SPDX-License-Identifier: Apache-2.0
#include "perf/load.hpp"

#include "perf/command.hpp"
#include "perf/pattern.hpp"
#include "report/cpu_time.hpp"

#include <array>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace accel::perf {
namespace {

using std::chrono::nanoseconds;

nanoseconds now() noexcept {
    return std::chrono::steady_clock::now().time_since_epoch();
}

error failed_call(const completion& done) {
    const std::string_view text{reinterpret_cast<const char*>(done.response.data()), done.response.size()};
    return {done.status, 0,
            fmt::format("a call ended as {}{}{}", to_string(done.status), text.empty() ? "" : ": ", text)};
}

/// Keeps `depth` calls in flight until `count` have completed.
class closed_loop {
  public:
    closed_loop(channel& to, const load& what) : to_(to), what_(what) {}

    [[nodiscard]] result<void> run(std::uint64_t count, std::vector<nanoseconds>* latencies);

  private:
    [[nodiscard]] status submit_next() noexcept;
    [[nodiscard]] result<void> take(const completion& done);

    channel& to_;
    const load& what_;
    std::vector<nanoseconds>* latencies_ = nullptr;
    std::uint64_t issued_ = 0;
    std::uint64_t completed_ = 0;
    std::uint32_t seed_ = 0;
};

status closed_loop::submit_next() noexcept {
    const nanoseconds start = now();
    call_view call;
    if (const status begun = to_.begin(call); begun != status::ok) return begun;
    if (what_.check) fill_pattern(call.request.first(what_.request_bytes), ++seed_ & 0xff'ffff);
    const command wanted{static_cast<std::uint32_t>(what_.response_bytes), seed_, what_.check, false};
    submit_options options;
    options.tag = static_cast<std::uint64_t>(start.count());
    options.trace_id = pack(wanted);
    const status sent = to_.submit(call.id, what_.request_bytes, options);
    if (sent != status::ok) to_.release(call.id);
    return sent;
}

result<void> closed_loop::take(const completion& done) {
    const nanoseconds end = now();
    if (done.status != status::ok) return failed_call(done);
    if (done.response.size() != what_.response_bytes) {
        return error{status::protocol_error, 0,
                     fmt::format("a response has {} bytes in place of {}: is the server an accel_perf?",
                                 done.response.size(), what_.response_bytes)};
    }
    if (what_.check && !holds_pattern(done.response, response_seed(unpack(done.trace_id).seed)))
        return error{status::protocol_error, 0, "a response arrived with wrong bytes: this is a bug, report it"};
    if (latencies_ != nullptr) latencies_->push_back(end - nanoseconds{static_cast<std::int64_t>(done.tag)});
    to_.release(done.id);
    ++completed_;
    return {};
}

result<void> closed_loop::run(std::uint64_t count, std::vector<nanoseconds>* latencies) {
    latencies_ = latencies;
    issued_ = completed_ = 0;
    std::array<completion, 64> done;
    while (completed_ < count) {
        while (issued_ < count && issued_ - completed_ < what_.depth) {
            const status sent = submit_next();
            if (sent == status::again && issued_ > completed_) break;
            if (sent != status::ok) return error{sent, 0, fmt::format("cannot submit a call: {}", to_string(sent))};
            ++issued_;
        }
        const std::size_t ready = to_.wait(done, std::chrono::seconds{30});
        if (ready == 0) return error{status::timed_out, 0, "no completion within 30 s: is the server still there?"};
        for (const completion& each : std::span{done}.first(ready))
            if (auto good = take(each); !good) return good;
    }
    return {};
}

result<nanoseconds> server_cpu(channel& to) {
    submit_options options;
    options.trace_id = pack({.report_cpu = true});
    auto answer = to.call({}, options);
    if (!answer) return answer.error();
    server_report report;
    if (answer->bytes().size() != sizeof report)
        return error{status::protocol_error, 0, "the server does not answer as an accel_perf: start accel_perf serve"};
    std::memcpy(&report, answer->bytes().data(), sizeof report);
    return nanoseconds{static_cast<std::int64_t>(report.cpu_ns)};
}

}  // namespace

result<measurement> run_load(channel& to, const load& what) {
    closed_loop loop{to, what};
    if (auto warm = loop.run(what.warm_up, nullptr); !warm) return warm.error();
    std::vector<nanoseconds> latencies;
    latencies.reserve(what.count);

    const auto server_before = server_cpu(to);
    if (!server_before) return server_before.error();
    const nanoseconds cpu_before = report::cpu_time();
    const nanoseconds start = now();
    if (auto run = loop.run(what.count, &latencies); !run) return run.error();
    const nanoseconds wall = now() - start;
    const nanoseconds client = report::cpu_time() - cpu_before;
    const auto server_after = server_cpu(to);
    if (!server_after) return server_after.error();

    measurement seen{report::summarise(std::move(latencies)), wall, client, std::nullopt};
    if (to.scheme() != "local") seen.server_cpu = server_after.value() - server_before.value();
    return seen;
}

}  // namespace accel::perf
