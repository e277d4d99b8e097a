// SPDX-License-Identifier: Apache-2.0
#include "on_cpu.hpp"

#include "report/percentiles.hpp"

#include <algorithm>
#include <chrono>

namespace accel::bench {
namespace {

/// Addresses and keys that look like those of registered memory; nobody follows them.
constexpr std::uint64_t some_local = 0x7f21'3000'0000;
constexpr std::uint64_t some_remote = 0x7e54'8000'0000;
constexpr std::uint32_t some_local_key = 0x0018'2f00;
constexpr std::uint32_t some_remote_key = 0x0019'4a00;
constexpr std::uint64_t max_requests = std::uint64_t{4} << 20;

template <bool Carried>
void post_all(cpu_ring& to, const post_plan& plan) noexcept {
    const std::uint32_t needed = plan.batch * plan.wqebbs;
    for (std::uint64_t posted = 0; posted < plan.requests; posted += plan.batch) {
        play_adapter(to.queue, needed);
        batch_share share;
        if (reserve<thread_scope>(to.queue, needed, share) != status::ok) return;
        const std::uint64_t doorbell = fill_share<Carried>(to.queue, plan, share, plan.batch);
        publish<thread_scope>(to.queue, share);
        ring(to.queue, share, doorbell);
    }
}

double ns_to_post(const post_plan& plan, bool carried) {
    cpu_ring ring(queue_pair_of(0));
    const auto begin = std::chrono::steady_clock::now();
    post_on_cpu(ring, plan, carried);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return took.count() / static_cast<double>(plan.requests);
}

}  // namespace

cpu_ring::cpu_ring(std::uint32_t queue_pair) : ring(std::size_t{ring_wqebbs} * mlx5::wqebb_bytes) {
    queue = {ring.data(), ring_wqebbs, queue_pair, &record, &doorbell, &state};
}

const std::vector<std::byte>& carried_bytes() {
    static const auto made = [] {
        std::vector<std::byte> out(max_carried);
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 31 + 5);
        return out;
    }();
    return made;
}

post_plan plan_of(const post_case& what) {
    post_plan plan;
    plan.batch = what.batch;
    plan.wqebbs = wqebbs_for(what.payload_bytes, what.carried);
    plan.payload_bytes = what.payload_bytes;
    plan.payload = what.carried ? reinterpret_cast<std::uintptr_t>(carried_bytes().data()) : some_local;
    plan.remote = some_remote;
    plan.local_key = some_local_key;
    plan.remote_key = some_remote_key;
    return plan;
}

void post_on_cpu(cpu_ring& to, const post_plan& plan, bool carried) noexcept {
    if (carried) return post_all<true>(to, plan);
    post_all<false>(to, plan);
}

std::uint64_t requests_for(double milliseconds, double ns_per_request, std::uint32_t batch) {
    const double wanted = milliseconds * 1e6 / std::max(ns_per_request, 0.1);
    const auto requests = static_cast<std::uint64_t>(std::min(wanted, static_cast<double>(max_requests)));
    return std::max<std::uint64_t>(requests / batch, 1) * batch;
}

post_row measure_on_cpu(const post_case& what, double milliseconds, unsigned repeats) {
    post_plan plan = plan_of(what);
    plan.requests = std::uint64_t{what.batch} * 256;
    plan.requests = requests_for(milliseconds, ns_to_post(plan, what.carried), what.batch);
    std::vector<double> took;
    for (unsigned i = 0; i < repeats; ++i) took.push_back(ns_to_post(plan, what.carried));
    post_row row;
    row.ns_per_request = report::median(took);
    row.requests_per_s = 1e9 / row.ns_per_request;
    row.as_on_cpu = true;
    return row;
}

}  // namespace accel::bench
