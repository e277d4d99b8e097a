#include "backends/gpu/direct_queues.hpp"

#include "verbs/mlx5_driver.hpp"

#include <bit>
#include <utility>

#include <fmt/format.h>

namespace accel::gpu {

result<std::unique_ptr<service_queues>> direct_queues::create(std::shared_ptr<verbs::device> on,
                                                              const service_sizes& sizes,
                                                              verbs::async_listener* listener) {
    std::unique_ptr<direct_queues> made(new direct_queues(std::move(on), sizes));
    if (auto ready = made->make_queues(listener); !ready) return ready.error();
    return std::unique_ptr<service_queues>(std::move(made));
}

result<void> direct_queues::make_queues(verbs::async_listener* listener) {
    auto receives = verbs::receive_queue::create(device_, sizes_.receives());
    if (!receives) return receives.error();
    receives_ = std::move(*receives);
    if (receives_->depth() < sizes_.in_flight()) {
        return error{status::invalid_argument, 0,
                     fmt::format("gpu: {} sessions of {} slots are more than the {} receives of {}",
                                 sizes_.sessions, sizes_.slots, receives_->depth(), device_->describe())};
    }
    verbs::empty_receives chain;
    (void)receives_->post(receives_->depth(), chain);
    // Also those that nobody asked for complete when a queue pair fails.
    const std::uint32_t needed = receives_->depth() + sizes_.sessions * sizes_.sends();
    auto completions = verbs::completion_queue::create(device_, needed, listener);
    if (!completions) return completions.error();
    completions_ = std::move(*completions);
    if (completions_->depth() >= needed) return {};
    return error{
        status::invalid_argument, 0,
        fmt::format("gpu: {} sessions of {} slots need {} completions, and {} has {}; ask for fewer",
                    sizes_.sessions, sizes_.slots, needed, device_->describe(), completions_->depth())};
}

result<void> direct_queues::prepare(connection& place) {
    verbs::queue_sizes wanted;
    wanted.send = sizes_.sends();
    auto made = verbs::queue_pair::create(device_, place.domain->get(), completions_->get(), receives_->get(),
                                          wanted, &place);
    if (!made) return made.error();
    place.queue_pair.emplace(std::move(*made));
    sends_.push_back(place.queue_pair->located()->sends);
    if (sends_.back().wqebbs == sends_.front().wqebbs) return {};
    return error{status::unsupported, 0, "gpu: the driver makes send queues of different sizes"};
}

result<void> direct_queues::start(kernel_memory& with) {
    /// What a doorbell takes.
    constexpr std::uint32_t doorbell_bytes = 8;
    const auto& completions = completions_->located();
    const auto& receives = receives_->located();
    const std::size_t receive_ring = std::size_t{std::bit_ceil(receives_->depth() + 1)} * receives.stride;
    const auto all = {
        with.share(completions.entries, std::size_t{completions.count} * completions.entry_bytes),
        with.share(completions.doorbell_record, 2 * sizeof(mlx5::be32)),
        with.share(receives.ring, receive_ring),
        with.share(receives.doorbell_record, sizeof(mlx5::be32)),
    };
    for (const auto& each : all) {
        if (!each) return each;
    }
    for (const mlx5::send_queue_ref& each : sends_) {
        auto ring = with.share(each.ring, std::size_t{each.wqebbs} * mlx5::wqebb_bytes);
        if (!ring) return ring;
        auto record = with.share(each.doorbell_record, sizeof(mlx5::be32));
        if (!record) return record;
        auto registers = with.share_registers(each.doorbell, doorbell_bytes);
        if (!registers) return registers;
    }
    return {};
}

device::detail::send_port direct_queues::send_port(const connection& place) const {
    device::detail::send_port out;
    out.by = device::detail::engine::direct;
    out.direct.queue = sends_[place.index];
    return out;
}

device::detail::completion_port direct_queues::completion_port() const {
    device::detail::completion_port out;
    out.by = device::detail::engine::direct;
    out.direct = completions_->located();
    return out;
}

result<void> direct_queues::close(connection& place) {
    return place.queue_pair->reset();
}

}  // namespace accel::gpu
