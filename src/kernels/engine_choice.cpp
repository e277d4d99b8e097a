// SPDX-License-Identifier: Apache-2.0
#include "kernels/engine_choice.hpp"

#include "kernels/kernel_memory.hpp"
#include "verbs/domain.hpp"
#include "verbs/mlx5_driver.hpp"
#include "verbs/queues.hpp"

#include <utility>

#include <fmt/format.h>

namespace accel::gpu {
namespace {

/// One queue pair's doorbell is enough to try: all of them are pages of one range of the device.
result<void> map_registers(const std::shared_ptr<verbs::device>& on, kernel_memory& memory) {
    auto domain = verbs::domain::create(on);
    if (!domain) return domain.error();
    auto completions = verbs::completion_queue::create(on, 1, nullptr);
    if (!completions) return completions.error();
    auto trial = verbs::queue_pair::create(on, (*domain)->get(), (*completions)->get(), nullptr, {1, 1, 0}, nullptr);
    if (!trial) return trial.error();
    auto mapped = memory.share_registers(trial->located()->sends.doorbell, sizeof(std::uint64_t));
    memory.end_sharing();
    return mapped;
}

/// Why kernels cannot drive the device's queues themselves; empty if they can.
std::string obstacle(const std::shared_ptr<verbs::device>& on, const std::shared_ptr<core::accelerator>& gpus,
                     core::accelerator_device* gpu, bool& has_queues) {
    has_queues = on->driver() != nullptr;
    if (!has_queues) {
        auto driver = verbs::mlx5_driver::of(on->context());
        return fmt::format("kernels cannot drive the queues of {}: {}", on->name(),
                           driver ? "direct=false" : driver.error().message);
    }
    if (gpu == nullptr) return {};
    kernel_memory memory(gpus, gpu);
    if (auto mapped = map_registers(on, memory); !mapped)
        return fmt::format("{} cannot ring the doorbells of {}: {}", gpu->name(), on->name(), mapped.error().message);
    return {};
}

result<engine_choice> by_proxy(verbs_options wanted, const std::string& near_host, std::string reason, bool fell_back) {
    wanted.direct = false;
    auto on = verbs::device::open(wanted, near_host);
    if (!on) return on.error();
    return engine_choice{std::move(*on), gpu_engine::proxy, std::move(reason), fell_back};
}

}  // namespace

/// A kernel that stays cannot be told when to look again, and the call that flushes is the host's.
result<void> admit_gpu(core::accelerator_device* gpu, bool host_slots) {
    if (gpu == nullptr) return {};
    if (!host_slots && !gpu->orders_inbound()) {
        return error{status::unsupported, 0,
                     fmt::format("gpu: kernels on {} do not see an adapter's writes in order, so they could read a "
                                 "request before it is complete; use host_slots=true, or handlers over gdr",
                                 gpu->name())};
    }
    return gpu->watch();
}

result<void> check_queues(const kernel_options& wanted, const engine_choice& chosen) {
    const bool exclusive = wanted.sharing == service_sharing::exclusive;
    if (!exclusive || wanted.queues != queue_location::gpu || chosen.engine == gpu_engine::direct) return {};
    return error{status::unsupported, 0, fmt::format("gpu: queues=gpu needs the engine direct: {}", chosen.reason)};
}

result<engine_choice> choose_engine(const verbs_options& options, gpu_engine wanted, const std::string& near_host,
                                    const std::shared_ptr<core::accelerator>& gpus, core::accelerator_device* gpu) {
    if (wanted == gpu_engine::proxy) return by_proxy(options, near_host, "engine=proxy", false);
    if (!options.direct) return by_proxy(options, near_host, "direct=false", false);
    auto on = verbs::device::open(options, near_host);
    if (!on) return on.error();
    bool has_queues = false;
    const std::string why_not = obstacle(*on, gpus, gpu, has_queues);
    if (why_not.empty()) {
        const std::string_view who = gpu != nullptr ? std::string_view{gpu->name()} : "this process";
        return engine_choice{*on, gpu_engine::direct, fmt::format("{} drives the queues of {}", who, (*on)->name()),
                             false};
    }
    if (wanted == gpu_engine::direct)
        return error{status::unsupported, 0, fmt::format("gpu: engine=direct: {}", why_not)};
    if (!has_queues) return engine_choice{*on, gpu_engine::proxy, why_not, false};
    return by_proxy(options, near_host, why_not, true);
}

}  // namespace accel::gpu
