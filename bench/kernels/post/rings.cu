// SPDX-License-Identifier: Apache-2.0
// Posting from a GPU to rings that no adapter reads.
#include "batch.hpp"
#include "cuda_host.hpp"
#include "deferred_doorbell.hpp"
#include "gpu_time.cuh"
#include "on_cpu.hpp"
#include "plan.hpp"
#include "rings.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime.h>

namespace accel::bench {
namespace {

constexpr unsigned long long longest_ns = 3'000'000'000;
constexpr unsigned host_patience_ms = 5'000;
constexpr std::uint32_t batches_between_looks = 1024;
constexpr std::size_t ring_bytes = std::size_t{ring_wqebbs} * mlx5::wqebb_bytes;
constexpr std::size_t line_bytes = 64;
constexpr std::uint32_t max_queues_each = 4;  // processor

/// Those of all queues, one behind another; each record and doorbell in a line of its own.
struct ring_set {
    std::byte* rings = nullptr;
    std::byte* records = nullptr;
    std::byte* doorbells = nullptr;
};

struct post_report {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    unsigned long long posted = 0;
    status outcome = status::ok;
};

/// The last two steps. Scopes of several threads know the first two orders alone.
template <class Scope, ordering How, mlx5::queue_place Place>
__device__ __forceinline__ void tell(const mlx5::send_queue_ref& queue, const batch_share& share,
                                     std::uint64_t doorbell, deferred_doorbell& deferred) {
    if constexpr (How == ordering::two_fences) {
        publish<Scope, Place>(queue, share);
        ring<Place>(queue, share, doorbell);
    } else if constexpr (How == ordering::ring_early) {
        ring_early<Scope, Place>(queue, share, doorbell);
    } else if constexpr (How == ordering::deferred_doorbell) {
        publish_and_defer(queue, share.end, doorbell, deferred);
    } else {
        if (How == ordering::two_sequential) __threadfence_system();
        mlx5::store_whole(queue.doorbell_record, mlx5::to_be32(share.end & 0xffffU));
        if (How == ordering::two_sequential)
            __threadfence_system();
        else
            mlx5::order_doorbell_record_before_doorbell<Place>();
        mlx5::store_whole(queue.doorbell, doorbell);
    }
}

/// A block of threads for each queue; `count` requests of each thread that posts make a batch.
template <class Scope, ordering How, bool Carried, mlx5::queue_place Place>
__global__ void post_many(post_plan plan, ring_set memory, kernel_bounds bounds, std::uint32_t count,
                          post_report* reports) {
    const std::uint32_t index = blockIdx.x;
    mlx5::send_queue_state state;
    mlx5::send_queue_ref queue;
    queue.ring = memory.rings + index * ring_bytes;
    queue.wqebbs = ring_wqebbs;
    queue.queue_pair = queue_pair_of(index);
    queue.doorbell_record = reinterpret_cast<mlx5::be32*>(memory.records + index * line_bytes);
    queue.doorbell = reinterpret_cast<std::uint64_t*>(memory.doorbells + index * line_bytes);
    queue.state = &state;
    deferred_doorbell deferred;
    std::uint64_t last = 0;  // of this thread
    post_report report;
    const bool first = Scope::rank() == 0;
    report.begin = gpu_nanoseconds();
    for (std::uint32_t pass = 1; report.posted < plan.requests; ++pass) {
        if (pass % batches_between_looks == 0) {
            const bool over = first && is_over(bounds, report.begin);
            report.outcome = Scope::of_first(over ? 1 : 0) != 0 ? status::timed_out : status::ok;
            if (report.outcome != status::ok) break;
        }
        if (first) play_adapter(queue, plan.batch * plan.wqebbs);
        batch_share share;
        report.outcome = reserve<Scope>(queue, count * plan.wqebbs, share);
        if (report.outcome != status::ok) break;
        const std::uint64_t doorbell = fill_share<Carried>(queue, plan, share, count);
        tell<Scope, How, Place>(queue, share, doorbell, deferred);
        if (share.closes) last = doorbell;
        report.posted += plan.batch;
    }
    ring(queue, deferred);
    if (How == ordering::ring_early && last != 0) mlx5::ring_again<Place>(queue.doorbell, last);
    Scope::meet();
    report.end = gpu_nanoseconds();
    if (first) reports[index] = report;
}

using kernel = void(post_plan, ring_set, kernel_bounds, std::uint32_t, post_report*);

template <class Scope, bool Carried, mlx5::queue_place Place>
kernel* kernel_of_many(ordering how) {
    if (how == ordering::ring_early) return post_many<Scope, ordering::ring_early, Carried, Place>;
    return post_many<Scope, ordering::two_fences, Carried, Place>;
}

template <bool Carried, mlx5::queue_place Place>
kernel* kernel_at(const post_case& what) {
    if (what.who == poster::warp) return kernel_of_many<warp_scope, Carried, Place>(what.how);
    if (what.who == poster::block) return kernel_of_many<block_scope, Carried, Place>(what.how);
    switch (what.how) {
        case ordering::two_fences:
        case ordering::ring_early:
            return kernel_of_many<thread_scope, Carried, Place>(what.how);
        case ordering::two_sequential:
            return post_many<thread_scope, ordering::two_sequential, Carried, Place>;
        case ordering::deferred_doorbell:
            return post_many<thread_scope, ordering::deferred_doorbell, Carried, Place>;
        default:
            return post_many<thread_scope, ordering::one_fence_unsound, Carried, Place>;
    }
}

kernel* kernel_for(const post_case& what) {
    constexpr auto host = mlx5::queue_place::host;
    constexpr auto gpu = mlx5::queue_place::gpu;
    if (what.where == place::gpu) return what.carried ? kernel_at<true, gpu>(what) : kernel_at<false, gpu>(what);
    return what.carried ? kernel_at<true, host>(what) : kernel_at<false, host>(what);
}

std::uint32_t threads_of(const post_case& what) {
    if (what.who == poster::thread) return 1;
    return what.who == poster::warp ? 32 : what.batch;
}

error refused(const char* why) {
    return {status::invalid_argument, 0, why};
}

class rings_on_gpu final : public post_rings {
  public:
    [[nodiscard]] result<void> start(int gpu);
    [[nodiscard]] std::string name() const override { return properties_.name; }
    [[nodiscard]] std::uint32_t processors() const noexcept override {
        return static_cast<std::uint32_t>(properties_.multiProcessorCount);
    }
    [[nodiscard]] result<post_row> measure(const post_case& what, double milliseconds, unsigned repeats) override;
    ~rings_on_gpu() override {
        if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
    }

  private:
    [[nodiscard]] result<post_row> run(const post_case& what, const post_plan& plan);
    [[nodiscard]] result<bool> is_as_on_cpu(const post_case& what, post_plan plan, std::uint32_t queue) const;
    [[nodiscard]] result<void> clear();
    [[nodiscard]] ring_set memory_of(place where) const {
        const auto lines = std::size_t{max_queues_} * line_bytes;
        const cuda_memory& from = where == place::gpu ? on_gpu_ : on_host_;
        return {from.data(), from.data() + max_queues_ * ring_bytes, small_.data() + lines};
    }

    cudaDeviceProp properties_{};
    std::uint32_t max_queues_ = 0;
    cudaStream_t stream_ = nullptr;
    cuda_memory on_host_;
    cuda_memory on_gpu_;
    cuda_memory small_;    ///< pinned: abort, then doorbells
    cuda_memory reports_;  ///< pinned
    cuda_memory payload_;  ///< on the GPU: what is carried
};

result<void> rings_on_gpu::start(int gpu) {
    if (auto done = cuda_done(cudaSetDevice(gpu), "the GPU"); !done) return done.error();
    if (auto done = cuda_done(cudaGetDeviceProperties(&properties_, gpu), "the GPU"); !done) return done.error();
    max_queues_ = max_queues_each * processors();
    if (auto done = cuda_done(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"); !done)
        return done.error();
    const std::size_t bytes = max_queues_ * (ring_bytes + line_bytes);
    struct wish {
        cuda_memory& out;
        memory_place where;
        std::size_t bytes;
    };
    for (const wish& each : {wish{on_host_, memory_place::pinned, bytes}, wish{on_gpu_, memory_place::gpu, bytes},
                             wish{small_, memory_place::pinned, 2 * max_queues_ * line_bytes},
                             wish{reports_, memory_place::pinned, max_queues_ * sizeof(post_report)},
                             wish{payload_, memory_place::gpu, max_carried}}) {
        auto made = cuda_memory::allocate(each.where, each.bytes);
        if (!made) return made.error();
        each.out = std::move(*made);
    }
    return cuda_done(cudaMemcpy(payload_.data(), carried_bytes().data(), max_carried, cudaMemcpyHostToDevice),
                     "a copy");
}

result<void> rings_on_gpu::clear() {
    for (cuda_memory* each : {&on_host_, &on_gpu_, &small_, &reports_})
        if (auto done = each->clear(); !done) return done.error();
    return {};
}

result<post_row> rings_on_gpu::run(const post_case& what, const post_plan& plan) {
    if (auto cleared = clear(); !cleared) return cleared.error();
    auto* const abort = small_.as<std::uint32_t>();
    const std::uint32_t threads = threads_of(what);
    post_plan mine = plan;
    if (what.carried) mine.payload = reinterpret_cast<std::uintptr_t>(payload_.data());
    kernel_for(what)<<<what.queues, threads, 0, stream_>>>(mine, memory_of(what.where), {longest_ns, abort},
                                                           what.batch / threads, reports_.as<post_report>());
    if (auto done = cuda_done(cudaGetLastError(), "a kernel"); !done) return done.error();
    if (auto done = wait_for(stream_, abort, host_patience_ms); !done) return done.error();
    const auto* const reports = reports_.as<post_report>();
    unsigned long long begin = ~0ULL;
    unsigned long long end = 0;
    double mean_ns = 0;
    for (std::uint32_t i = 0; i < what.queues; ++i) {
        if (reports[i].outcome != status::ok || reports[i].posted != plan.requests)
            return error{status::timed_out, 0, "a kernel gave up before all was posted"};
        begin = std::min(begin, reports[i].begin);
        end = std::max(end, reports[i].end);
        mean_ns += static_cast<double>(reports[i].end - reports[i].begin) / what.queues;
    }
    const auto requests = static_cast<double>(plan.requests);
    post_row row;
    row.ns_per_request = mean_ns / requests;
    row.requests_per_s = requests * what.queues * 1e9 / static_cast<double>(std::max(end - begin, 1ULL));
    return row;
}

/// The ring, its record and its doorbell against those that the CPU makes.
result<bool> rings_on_gpu::is_as_on_cpu(const post_case& what, post_plan plan, std::uint32_t queue) const {
    cpu_ring wanted(queue_pair_of(queue));
    post_on_cpu(wanted, plan, what.carried);
    const ring_set memory = memory_of(what.where);
    std::vector<std::byte> ring(ring_bytes);
    mlx5::be32 record{};
    std::uint64_t doorbell = 0;
    struct part {
        void* to;
        const std::byte* from;
        std::size_t bytes;
    };
    for (const part& each : {part{ring.data(), memory.rings + queue * ring_bytes, ring_bytes},
                             part{&record, memory.records + queue * line_bytes, sizeof record},
                             part{&doorbell, memory.doorbells + queue * line_bytes, sizeof doorbell}})
        if (auto done = cuda_done(cudaMemcpy(each.to, each.from, each.bytes, cudaMemcpyDefault), "a copy"); !done)
            return done.error();
    return ring == wanted.ring && record == wanted.record && doorbell == wanted.doorbell;
}

result<post_row> rings_on_gpu::measure(const post_case& what, double milliseconds, unsigned repeats) {
    post_plan plan = plan_of(what);
    const std::uint32_t threads = threads_of(what);
    if (what.batch == 0 || what.batch % threads != 0 || threads > 1024 || what.queues > max_queues_)
        return refused("a batch of so many requests, or so many queues, cannot be posted");
    if (what.batch * plan.wqebbs > ring_wqebbs) return refused("the ring cannot hold such a batch");
    if (what.carried && what.payload_bytes > max_carried) return refused("a request cannot carry so much");
    plan.requests = std::uint64_t{what.batch} * 256;
    // Twice: the first loads the kernel.
    for (int i = 0; i < 2; ++i) {
        auto tried = run(what, plan);
        if (!tried) return tried.error();
        if (i == 1) plan.requests = requests_for(milliseconds, tried->ns_per_request, what.batch);
    }
    std::vector<double> each_ns;
    std::vector<double> rates;
    for (unsigned i = 0; i < repeats; ++i) {
        auto done = run(what, plan);
        if (!done) return done.error();
        each_ns.push_back(done->ns_per_request);
        rates.push_back(done->requests_per_s);
    }
    post_row row;
    row.as_on_cpu = true;
    for (const std::uint32_t queue : {std::uint32_t{0}, what.queues - 1}) {
        auto same = is_as_on_cpu(what, plan, queue);
        if (!same) return same.error();
        row.as_on_cpu = row.as_on_cpu && *same;
    }
    const auto middle = [](std::vector<double> values) {
        std::sort(values.begin(), values.end());
        return values[values.size() / 2];
    };
    row.ns_per_request = middle(each_ns);
    row.requests_per_s = middle(rates);
    return row;
}

}  // namespace

result<std::unique_ptr<post_rings>> post_rings::open(int gpu) {
    int count = 0;
    if (auto done = cuda_done(cudaGetDeviceCount(&count), "looking for a GPU"); !done)
        return error{status::unsupported, done.error().native, done.error().message};
    if (gpu < 0 || gpu >= count) return error{status::unsupported, 0, "this machine has no such GPU"};
    auto made = std::make_unique<rings_on_gpu>();
    if (auto started = made->start(gpu); !started) return started.error();
    return std::unique_ptr<post_rings>(std::move(made));
}

}  // namespace accel::bench
