// SPDX-License-Identifier: Apache-2.0
// The figures of docs/benchmarks.md: emulation, one process, no network. Run it under softnic:
//   softnic run --mode deterministic -- softnic_bench
#include "verbs_pair.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace {

namespace st = accel::softnic::testing;
using steady = std::chrono::steady_clock;

double seconds_since(steady::time_point start) {
    return std::chrono::duration<double>(steady::now() - start).count();
}

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
        while (ibv_poll_cq(cq.get(), 1, &completion) == 0) {
        }
        if (completion.status != IBV_WC_SUCCESS) throw std::runtime_error(ibv_wc_status_str(completion.status));
    }
};

/// Sorted samples of what one round takes, in microseconds. Quantiles, because a shared machine interrupts
/// now and then.
class samples {
  public:
    template <class Round>
    samples(int rounds, Round round) {
        values_.reserve(static_cast<std::size_t>(rounds));
        for (int count = 0; count < rounds; ++count) {
            const auto start = steady::now();
            round();
            values_.push_back(seconds_since(start) * 1e6);
        }
        std::sort(values_.begin(), values_.end());
    }
    [[nodiscard]] double at(double share) const {
        return values_[static_cast<std::size_t>(share * static_cast<double>(values_.size() - 1))];
    }

  private:
    std::vector<double> values_;
};

void latency(bench& on, unsigned flags, const char* what) {
    const samples taken(200'000, [&] {
        on.post(8, flags | IBV_SEND_SIGNALED);
        on.wait();
    });
    fmt::print("8 B write, {:<7} post to completion: p50 {:.3f} p99 {:.3f} p99.9 {:.3f} us\n", what, taken.at(0.5),
               taken.at(0.99), taken.at(0.999));
}

void rate(bench& on) {
    constexpr int batch = 64;
    const samples taken(40'000, [&] {
        for (int at = 1; at < batch; ++at) on.post(8, IBV_SEND_INLINE);
        on.post(8, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
        on.wait();
    });
    fmt::print("8 B writes, one signalled in {}: p50 {:.2f} M/s, p10 {:.2f} M/s\n", batch, batch / taken.at(0.5),
               batch / taken.at(0.9));
}

void bandwidth(bench& on, std::uint32_t size) {
    const samples copies(4'000, [&] {
        std::memcpy(on.to.data(), on.from.data(), size);
        asm volatile("" ::: "memory");
    });
    const samples writes(4'000, [&] {
        on.post(size, IBV_SEND_SIGNALED);
        on.wait();
    });
    const auto rate_of = [size](const samples& taken) { return size / taken.at(0.5) / 1e3; };
    fmt::print("{} KiB writes: {:.2f} GB/s, memcpy {:.2f} GB/s: {:.0f} %\n", size >> 10, rate_of(writes),
               rate_of(copies), 100 * rate_of(writes) / rate_of(copies));
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
