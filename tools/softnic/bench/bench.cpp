// SPDX-License-Identifier: Apache-2.0
// The figures of BENCHMARKS.md: emulation, one process, no network. Run it under softnic:
//   softnic run --mode deterministic -- softnic_bench
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "verbs_pair.hpp"

namespace {

namespace st = accel::softnic::testing;
using steady = std::chrono::steady_clock;

double seconds_since(steady::time_point start) { return std::chrono::duration<double>(steady::now() - start).count(); }

struct bench {
    static constexpr std::size_t region_bytes = 4 << 20;
    static constexpr std::uint32_t depth = 256;

    std::vector<std::byte> from = std::vector<std::byte>(region_bytes);
    std::vector<std::byte> to = std::vector<std::byte>(region_bytes);
    st::context_owner context = st::open_device();
    st::pd_owner pd{ibv_alloc_pd(context.get())};
    st::mr_owner from_mr{ibv_reg_mr(pd.get(), from.data(), from.size(), 7)};
    st::mr_owner to_mr{ibv_reg_mr(pd.get(), to.data(), to.size(), 7)};
    st::cq_owner cq{ibv_create_cq(context.get(), 2 * depth, nullptr, nullptr, 0)};
    st::cq_owner other_cq{ibv_create_cq(context.get(), 16, nullptr, nullptr, 0)};
    st::qp_owner qp = st::make_qp(pd.get(), cq.get(), cq.get(), depth);
    st::qp_owner other = st::make_qp(pd.get(), other_cq.get(), other_cq.get(), depth);

    bench() { st::connect(qp.get(), other.get()); }

    void post(std::uint32_t size, unsigned flags) {
        ibv_sge piece{reinterpret_cast<std::uint64_t>(from.data()), size, from_mr->lkey};
        ibv_send_wr request{};
        ibv_send_wr* bad = nullptr;
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = IBV_WR_RDMA_WRITE;
        request.send_flags = flags;
        request.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(to.data());
        request.wr.rdma.rkey = to_mr->rkey;
        if (ibv_post_send(qp.get(), &request, &bad) != 0) throw std::runtime_error("post failed");
    }

    void wait() {
        ibv_wc completion{};
        while (ibv_poll_cq(cq.get(), 1, &completion) == 0) {}
        if (completion.status != IBV_WC_SUCCESS) throw std::runtime_error(ibv_wc_status_str(completion.status));
    }
};

void latency(bench& on, unsigned flags, const char* what) {
    constexpr int rounds = 200'000;
    std::vector<double> samples;
    samples.reserve(rounds);
    for (int round = 0; round < rounds; ++round) {
        const auto start = steady::now();
        on.post(8, flags | IBV_SEND_SIGNALED);
        on.wait();
        samples.push_back(seconds_since(start) * 1e6);
    }
    std::sort(samples.begin(), samples.end());
    const auto at = [&](double share) { return samples[static_cast<std::size_t>(share * (rounds - 1))]; };
    fmt::print("8 B write, {:<7} post to completion: p50 {:.3f} p99 {:.3f} p99.9 {:.3f} us\n", what, at(0.5), at(0.99),
               at(0.999));
}

void rate(bench& on) {
    constexpr int rounds = 40'000;
    constexpr int batch = 64;
    const auto start = steady::now();
    for (int round = 0; round < rounds; ++round) {
        for (int at = 1; at < batch; ++at) on.post(8, IBV_SEND_INLINE);
        on.post(8, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
        on.wait();
    }
    fmt::print("8 B writes, one signalled in {}: {:.2f} M/s\n", batch, rounds * double{batch} / seconds_since(start) / 1e6);
}

double copy_rate(bench& on, std::size_t size) {
    constexpr int rounds = 4'000;
    const auto start = steady::now();
    for (int round = 0; round < rounds; ++round) {
        std::memcpy(on.to.data(), on.from.data(), size);
        asm volatile("" ::: "memory");
    }
    return double{rounds} * static_cast<double>(size) / seconds_since(start) / 1e9;
}

void bandwidth(bench& on, std::uint32_t size) {
    constexpr int rounds = 4'000;
    const double memcpy_rate = copy_rate(on, size);
    const auto start = steady::now();
    for (int round = 0; round < rounds; ++round) {
        on.post(size, IBV_SEND_SIGNALED);
        on.wait();
    }
    const double rate = double{rounds} * size / seconds_since(start) / 1e9;
    fmt::print("{} KiB writes: {:.2f} GB/s, memcpy {:.2f} GB/s: {:.0f} %\n", size >> 10, rate, memcpy_rate,
               100 * rate / memcpy_rate);
}

}  // namespace

int main() {
    bench on;
    latency(on, IBV_SEND_INLINE, "inline,");
    latency(on, 0, "by key,");
    rate(on);
    bandwidth(on, 1 << 16);
    bandwidth(on, 1 << 20);
}
