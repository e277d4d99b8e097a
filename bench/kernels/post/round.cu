// SPDX-License-Identifier: Apache-2.0
// One GPU thread on a stock queue pair: post, wait for the completion, again.
#include "cuda_host.hpp"
#include "gpu_time.cuh"
#include "plan.hpp"
#include "rings.hpp"

#include <accel_transport/detail/mlx5/completion_queue.hpp>
#include <accel_transport/detail/mlx5/send_queue.hpp>

#include <string>

#include <cuda_runtime.h>

namespace accel::bench {
namespace {

constexpr unsigned long long longest_ns = 5'000'000'000;
constexpr unsigned host_patience_ms = 7'000;
constexpr std::uint32_t polls_between_looks = 64;

struct round_report {
    unsigned long long rounds = 0;
    unsigned long long ns = 0;
    long long cycles = 0;
    long long post_cycles = 0;
    unsigned long long failure = 0;  ///< `completion_queue_state::first_failure`
    status outcome = status::ok;
};

__device__ status await(const mlx5::completion_queue_ref& completions, mlx5::completion& done,
                        const kernel_bounds& bounds, unsigned long long since) {
    for (std::uint32_t polls = 1; !mlx5::take(completions, done); ++polls)
        if (polls % polls_between_looks == 0 && is_over(bounds, since)) return status::timed_out;
    mlx5::publish_taken(completions);
    return done.failure == mlx5::syndrome::none ? status::ok : status::protocol_error;
}

__global__ void go_round(mlx5::send_queue_ref sends, mlx5::completion_queue_ref completions, post_plan plan,
                         kernel_bounds bounds, round_report* out) {
    mlx5::send_queue_state sent;
    mlx5::completion_queue_state taken;
    sends.state = &sent;
    completions.state = &taken;
    round_report report;
    const unsigned long long begin = gpu_nanoseconds();
    const long long first = clock64();
    while (report.outcome == status::ok && report.rounds < plan.requests) {
        const long long before = clock64();
        mlx5::local_range range;
        report.outcome = mlx5::post(sends, request_at<false>(plan, 0, true, range));
        report.post_cycles += clock64() - before;
        if (report.outcome != status::ok) break;
        mlx5::completion done;
        report.outcome = await(completions, done, bounds, begin);
        if (!mlx5::release_to(sends, sent.reserved)) report.outcome = status::protocol_error;
        report.rounds += report.outcome == status::ok ? 1 : 0;
    }
    report.cycles = clock64() - first;
    report.ns = gpu_nanoseconds() - begin;
    report.failure = taken.first_failure;
    *out = report;
}

result<void> register_queues(registered_pages& pages, const stock_queues& queues) {
    const mlx5::send_queue_ref& sends = queues.sends;
    const mlx5::completion_queue_ref& completions = queues.completions;
    const std::size_t entries = std::size_t{completions.count} * completions.entry_bytes;
    if (auto done = pages.add(sends.ring, std::size_t{sends.wqebbs} * mlx5::wqebb_bytes); !done) return done;
    if (auto done = pages.add(sends.doorbell_record, sizeof(mlx5::be32)); !done) return done;
    if (auto done = pages.add(completions.entries, entries); !done) return done;
    if (auto done = pages.add(completions.doorbell_record, 2 * sizeof(mlx5::be32)); !done) return done;
    return pages.add_registers(sends.doorbell, sizeof(std::uint64_t));
}

}  // namespace

result<round_row> measure_rounds(const stock_queues& queues, std::uint32_t payload_bytes, std::uint64_t rounds) {
    constexpr std::size_t report_at = 64;
    auto small = cuda_memory::allocate(memory_place::pinned, report_at + sizeof(round_report));
    if (!small) return small.error();
    registered_pages pages;
    if (auto done = register_queues(pages, queues); !done) return done.error();
    cudaStream_t stream = nullptr;
    if (auto done = cuda_done(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream"); !done)
        return done.error();
    post_plan plan;
    plan.requests = rounds;
    plan.payload_bytes = payload_bytes;
    plan.payload = queues.local;
    plan.remote = queues.remote;
    plan.local_key = queues.local_key;
    plan.remote_key = queues.remote_key;
    auto* const abort = small->as<std::uint32_t>();
    const auto* const report = small->as<round_report>(report_at);
    go_round<<<1, 1, 0, stream>>>(queues.sends, queues.completions, plan, {longest_ns, abort},
                                  small->as<round_report>(report_at));
    const cudaError_t launched = cudaGetLastError();
    const auto waited = wait_for(stream, abort, host_patience_ms);
    static_cast<void>(cudaStreamDestroy(stream));
    if (auto done = cuda_done(launched, "a kernel"); !done) return done.error();
    if (!waited) return waited.error();
    if (report->outcome != status::ok) {
        return error{report->outcome, 0,
                     "after " + std::to_string(report->rounds) + " rounds: " + std::string{to_string(report->outcome)} +
                         ", first failure " + std::to_string(report->failure)};
    }
    const auto count = static_cast<double>(report->rounds);
    const double ns = static_cast<double>(report->ns);
    const double share = static_cast<double>(report->post_cycles) / static_cast<double>(report->cycles);
    return round_row{ns * share / count, ns / count, report->rounds};
}

}  // namespace accel::bench
