// SPDX-License-Identifier: Apache-2.0
#include "cases.hpp"

#include "on_cpu.hpp"

#include <fmt/format.h>

namespace accel::bench {
namespace {

constexpr std::uint32_t warp_threads = 32;
constexpr std::uint32_t block_threads = 256;

post_case of_thread(std::uint32_t batch, place where = place::host) {
    post_case out;
    out.batch = batch;
    out.where = where;
    return out;
}
post_case of_warps(std::uint32_t queues, place where = place::host) {
    post_case out;
    out.who = poster::warp;
    out.batch = warp_threads;
    out.queues = queues;
    out.where = where;
    return out;
}
post_case ordered(post_case out, ordering how) {
    out.how = how;
    return out;
}
post_case with_payload(post_case out, std::size_t bytes, bool carried) {
    out.payload_bytes = static_cast<std::uint32_t>(bytes);
    out.carried = carried;
    return out;
}

}  // namespace

std::vector<post_case> post_cases(std::uint32_t processors) {
    std::vector<post_case> all;
    for (const place where : {place::host, place::gpu}) {
        for (const ordering how : {ordering::two_fences, ordering::ring_early, ordering::deferred_doorbell,
                                   ordering::two_sequential, ordering::one_fence_unsound})
            all.push_back(ordered(of_thread(1, where), how));
        for (const std::uint32_t batch : thread_batches)
            if (batch > 1) all.push_back(of_thread(batch, where));
        all.push_back(of_warps(1, where));
        all.push_back(ordered(of_thread(warp_threads, where), ordering::ring_early));
        all.push_back(ordered(of_warps(1, where), ordering::ring_early));
        post_case block = of_warps(1, where);
        block.who = poster::block;
        block.batch = block_threads;
        all.push_back(block);
        all.push_back(of_warps(processors, where));
        all.push_back(of_warps(4 * processors, where));
    }
    return all;
}

std::vector<post_case> payload_cases(const std::vector<std::size_t>& payloads, std::uint32_t processors) {
    std::vector<post_case> all;
    for (const bool carried : {false, true}) {
        for (const std::size_t bytes : payloads) {
            if (carried && bytes > max_carried) continue;
            for (const post_case& each : {of_thread(1), of_warps(1), of_warps(processors)})
                all.push_back(with_payload(each, bytes, carried));
        }
    }
    return all;
}

std::vector<post_case> cpu_cases(const std::vector<std::size_t>& payloads) {
    std::vector<post_case> all;
    for (const std::uint32_t batch : thread_batches) all.push_back(of_thread(batch));
    for (const bool carried : {false, true}) {
        for (const std::size_t bytes : payloads) {
            if (carried && bytes > max_carried) continue;
            for (const std::uint32_t batch : {1U, warp_threads})
                all.push_back(with_payload(of_thread(batch), bytes, carried));
        }
    }
    return all;
}

std::string poster_text(const post_case& of) {
    if (of.who == poster::thread) return "thread";
    if (of.who == poster::block) return fmt::format("block of {}", of.batch);
    return of.queues == 1 ? "warp" : "warps on all SMs";
}

std::string order_text(ordering how) {
    switch (how) {
        case ordering::two_fences:
            return "two fences";
        case ordering::ring_early:
            return "one, rings early";
        case ordering::deferred_doorbell:
            return "one, doorbell deferred";
        case ordering::two_sequential:
            return "two, sequential";
        case ordering::one_fence_unsound:
            return "one, UNSOUND";
    }
    return {};
}

std::string text_of(const post_case& what) {
    return fmt::format("{}, {} queues, {} memory, {}, {} a doorbell, {} B{}", poster_text(what), what.queues,
                       what.where == place::gpu ? "GPU" : "host", order_text(what.how), what.batch, what.payload_bytes,
                       what.carried ? " carried" : "");
}

}  // namespace accel::bench
