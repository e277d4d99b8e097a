// SPDX-License-Identifier: Apache-2.0
#include "core/layout_allocator.hpp"
#include "kernels/graph/recorded_graph.hpp"
#include "kernels/service/gpu_service_state.hpp"
#include "staging/stream_wait.hpp"

#include <accel_transport/device/detail/graph/steps.hpp>
#include <accel_transport/gpu_graph.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Services made of recorded kernels: their memory and recordings. The accelerator records them.
namespace accel {
namespace {

constexpr std::uint32_t max_batch = 1024;
constexpr std::uint32_t max_instances = 64;

/// One recording and its memory.
struct instance {
    core::accelerator_device* gpu = nullptr;
    std::byte* memory = nullptr;
    std::unique_ptr<gpu::recorded_graph> iterations;
    bool started = false;
    bool ended = false;
    device::detail::graph_state last;  ///< once it has

    explicit instance(core::accelerator_device* of) noexcept : gpu(of) {}
    instance(const instance&) = delete;
    instance& operator=(const instance&) = delete;
    ~instance() {
        iterations.reset();
        if (memory != nullptr) gpu->release(memory);
    }
};

std::size_t lay_out(std::byte* base, const gpu_graph_options& options, bool owns,
                    device::detail::graph_memory& out) noexcept {
    core::layout_allocator parts(base);
    out.state = parts.take<device::detail::graph_state>(1);
    out.exchanges = parts.take<device::exchange_ref>(options.batch);
    out.iteration.answers = parts.take<device::iteration_answer>(options.batch);
    std::byte* const input = parts.take<std::byte>(options.input_bytes * options.batch);
    std::byte* const output = parts.take<std::byte>(options.output_bytes * options.batch);
    out.iteration.input = options.input_bytes > 0 ? input : nullptr;
    out.iteration.output = options.output_bytes > 0 ? output : nullptr;
    out.iteration.input_bytes = options.input_bytes;
    out.iteration.output_bytes = options.output_bytes;
    out.iteration.batch = options.batch;
    if (base != nullptr) out.iteration.count = &out.state->count;
    out.iteration.exchanges = out.exchanges;
    if (owns) out.owned = parts.take<device::owned_sessions>(1);
    out.instances = options.instances;
    return parts.used();
}

result<void> check(const gpu_graph_options& options) {
    if (options.batch < 1 || options.batch > max_batch || options.instances < 1 || options.instances > max_instances) {
        return error{status::invalid_argument, 0,
                     fmt::format("gpu_graph: batch must be 1 to {}, and instances 1 to {}", max_batch, max_instances)};
    }
    const std::size_t largest = std::max(options.input_bytes, options.output_bytes);
    if (largest > wire::max_payload_bytes) {
        return error{status::invalid_argument, 0,
                     fmt::format("gpu_graph: {} bytes are longer than any message", largest)};
    }
    return {};
}

using duration_counts = std::array<std::uint64_t, device::detail::duration_classes>;

/// The longest duration of the class in which `percent` of all iterations are done.
std::chrono::nanoseconds percentile(const duration_counts& of, std::uint64_t all, std::uint64_t percent) {
    std::uint64_t done = 0;
    std::uint32_t number = 0;
    for (; number + 1 < of.size(); ++number)
        if ((done += of[number]) * 100 >= all * percent) break;
    return std::chrono::nanoseconds{device::detail::shortest_of_class(number + 1) - 1};
}

/// The state that the last iteration has left.
result<void> read_state(instance& of, core::nanoseconds deadline) {
    return core::copy_and_wait(*of.gpu, reinterpret_cast<std::byte*>(&of.last), of.memory, sizeof of.last, deadline);
}

}  // namespace

struct gpu_graph::state : gpu::service_server {
    explicit state(const gpu::service_server& of) : service_server(of) {}

    std::shared_ptr<const void> owner;  ///< of the service's sessions, where they have one
    std::vector<std::unique_ptr<instance>> instances;
    mutable std::mutex mutex;  ///< of the instances that have ended

    /// False: another graph owns the sessions.
    [[nodiscard]] bool own(gpu_service::state& service);
    [[nodiscard]] result<void> record(const gpu_graph_options& options, const recorder& work, std::uint32_t number);
    [[nodiscard]] result<void> start();
    status stop(core::nanoseconds deadline);
};

bool gpu_graph::state::own(gpu_service::state& service) {
    if (kernels().service().exclusive.sessions == nullptr) return true;
    const std::lock_guard lock(service.mutex);
    if (!service.graph.expired()) return false;
    owner = std::make_shared<int>();
    service.graph = owner;
    return true;
}

result<void> gpu_graph::state::record(const gpu_graph_options& options, const recorder& work, std::uint32_t number) {
    auto made = std::make_unique<instance>(core->device());
    device::detail::graph_memory memory;
    const bool owns = kernels().service().exclusive.sessions != nullptr;
    const std::size_t bytes = lay_out(nullptr, options, owns, memory);
    auto block = core->device()->allocate(bytes);
    if (!block) return block.error();
    made->memory = *block;
    (void)lay_out(made->memory, options, owns, memory);
    memory.iteration.instance = number;
    auto iterations = gpu::record_on(*core->device(), kernels().service(), memory,
                                     [&work, &memory](CUstream_st* stream) { return work(stream, memory.iteration); });
    if (!iterations) return iterations.error();
    made->iterations = std::move(*iterations);
    instances.push_back(std::move(made));
    return {};
}

result<void> gpu_graph::state::start() {
    for (const auto& each : instances) {
        if (auto started = each->iterations->start(); !started) return started;
        each->started = true;
    }
    return {};
}

status gpu_graph::state::stop(core::nanoseconds deadline) {
    const std::lock_guard lock(mutex);
    for (const auto& each : instances) {
        if (!each->started || each->ended) continue;
        stop_kernels();
        const status ended = core::wait_for_end(*core->device(), each->iterations->native(), deadline);
        if (ended != status::ok) return ended;
        if (auto read = read_state(*each, deadline); !read) return read.error().code;
        each->ended = true;
    }
    return status::ok;
}

gpu_graph::gpu_graph(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
gpu_graph::gpu_graph(gpu_graph&&) noexcept = default;
gpu_graph& gpu_graph::operator=(gpu_graph&& other) noexcept {
    if (this == &other) return *this;
    gpu_graph ended(std::move(*this));
    state_ = std::move(other.state_);
    return *this;
}

/// The destructor of an instance waits for the end of its stream.
gpu_graph::~gpu_graph() {
    core::leave_to_parent(state_);
    if (state_ == nullptr) return;
    const auto runs = [](const auto& each) { return each->started && !each->ended; };
    if (std::any_of(state_->instances.begin(), state_->instances.end(), runs)) state_->stop_kernels();
}

result<gpu_graph> gpu_graph::start(gpu_service& service, const gpu_graph_options& options, const recorder& record) {
    if (service.state_->inherited()) return core::made_before_fork();
    if (auto good = check(options); !good) return good.error();
    auto made = std::make_unique<state>(*service.state_);
    if (made->core->device() == nullptr) {
        return error{status::invalid_argument, 0,
                     "gpu_graph: the memory of the service must be on a GPU (server_options::memory)"};
    }
    if (!made->own(*service.state_)) {
        return error{status::invalid_state, 0,
                     "gpu_graph: another graph owns the sessions of this service; record more instances of one graph"};
    }
    for (std::uint32_t i = 0; i < options.instances; ++i)
        if (auto recorded = made->record(options, record, i); !recorded) return recorded.error();
    if (auto started = made->start(); !started) {
        gpu_graph ended(std::move(made));
        return started.error();
    }
    return gpu_graph{std::move(made)};
}

gpu_graph_statistics gpu_graph::statistics() const {
    if (state_->inherited()) return {};
    const std::lock_guard lock(state_->mutex);
    gpu_graph_statistics out;
    out.nodes = state_->instances.front()->iterations->nodes();
    std::uint64_t total = 0;
    std::uint64_t min = ~std::uint64_t{0};
    std::array<std::uint64_t, device::detail::iteration_points> spent{};
    duration_counts durations{};
    for (const auto& each : state_->instances) {
        out.running += each->ended ? 0U : 1U;
        if (!each->ended) continue;
        out.iterations += each->last.iterations;
        out.requests += each->last.requests;
        total += each->last.total_ns;
        for (std::size_t i = 0; i < spent.size(); ++i) spent[i] += each->last.spent_ns[i];
        for (std::size_t i = 0; i < durations.size(); ++i) durations[i] += each->last.durations[i];
        if (each->last.min_ns != 0) min = std::min(min, each->last.min_ns);
    }
    if (out.iterations == 0) return out;
    out.mean = std::chrono::nanoseconds{total / out.iterations};
    out.min = std::chrono::nanoseconds{min};
    out.p50 = percentile(durations, out.iterations, 50);
    out.p99 = percentile(durations, out.iterations, 99);
    const auto mean_until = [&](device::detail::iteration_point point) {
        return std::chrono::nanoseconds{spent[static_cast<std::size_t>(point)] / out.iterations};
    };
    out.stages = {
        mean_until(device::detail::iteration_point::taken), mean_until(device::detail::iteration_point::copied_in),
        mean_until(device::detail::iteration_point::worked), mean_until(device::detail::iteration_point::copied_out),
        mean_until(device::detail::iteration_point::answered)};
    return out;
}

status gpu_graph::stop(std::chrono::nanoseconds timeout) {
    if (state_->inherited()) return status::invalid_state;
    return state_->stop(core::deadline_after(timeout));
}

}  // namespace accel
