#include "backends/gpu/proxy_queues.hpp"

#include "core/server/thread_times.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

namespace accel::gpu {

proxy_queues::proxy_queues(std::shared_ptr<verbs::device> on, const service_sizes& sizes) noexcept
    : device_(std::move(on)),
      sizes_(sizes),
      sends_(std::min(
          {sizes.sends(), static_cast<std::uint32_t>(device_->limits().max_qp_wr), proxy::max_entries})),
      ring_count_(std::bit_ceil(sends_)),
      completion_count_(std::bit_ceil(std::min(sizes.receives(), proxy::max_entries))) {}

result<std::unique_ptr<service_queues>> proxy_queues::create(std::shared_ptr<verbs::device> on,
                                                             const service_sizes& sizes,
                                                             kernel_memory& memory) {
    std::unique_ptr<proxy_queues> made(new proxy_queues(std::move(on), sizes));
    if (auto ready = made->allocate(memory); !ready) return ready.error();
    if (auto ready = made->make_engine(); !ready) return ready.error();
    return std::unique_ptr<service_queues>(std::move(made));
}

result<void> proxy_queues::allocate(kernel_memory& memory) {
    const std::size_t descriptors = std::size_t{sizes_.sessions} * ring_count_;
    auto rings = memory.allocate_shared(descriptors * sizeof(proxy::send_descriptor) +
                                        completion_count_ * sizeof(proxy::completion_entry));
    if (!rings) return rings.error();
    descriptors_ = reinterpret_cast<proxy::send_descriptor*>(*rings);
    completions_ = reinterpret_cast<proxy::completion_entry*>(descriptors_ + descriptors);
    auto words = memory.allocate_shared((sizes_.sessions + 1) * sizeof(lone_word) + sizeof(lone_failure));
    if (!words) return words.error();
    released_ = reinterpret_cast<lone_word*>(*words);
    consumed_ = released_ + sizes_.sessions;
    first_failure_ = reinterpret_cast<lone_failure*>(consumed_ + 1);
    return {};
}

result<void> proxy_queues::make_engine() {
    verbs::proxy_options wanted;
    wanted.receives = sizes_.receives();
    wanted.sends = sizes_.sessions * sends_;
    const verbs::proxy_completion_ring ring{{completions_, completion_count_}, &consumed_->value, 0};
    auto made = verbs::proxy_engine::create(device_, ring, wanted);
    if (!made) return made.error();
    engine_ = std::move(*made);
    if (engine_->receive_depth() >= sizes_.in_flight() && engine_->send_depth() >= wanted.sends) return {};
    return error{status::invalid_argument, 0,
                 fmt::format("gpu: {} sessions of {} slots are more than {} has queues for ({} receives, {} "
                             "work requests); ask for fewer",
                             sizes_.sessions, sizes_.slots, device_->describe(), engine_->receive_depth(),
                             engine_->send_depth())};
}

device::detail::send_port proxy_queues::send_port(const connection& place) const {
    device::detail::send_port out;
    out.by = device::detail::engine::proxy;
    out.proxied.ring = ring_of(place);
    out.proxied.count = ring_count_;
    out.proxied.queue_pair = place.index;
    out.proxied.released = &released_[place.index].value;
    return out;
}

device::detail::completion_port proxy_queues::completion_port() const {
    device::detail::completion_port out;
    out.by = device::detail::engine::proxy;
    out.proxied.entries = completions_;
    out.proxied.count = completion_count_;
    out.proxied.consumed = &consumed_->value;
    out.proxied.first_failure = &first_failure_->value;
    return out;
}

/// Known to the engine before it is connected: nothing that arrives is missed.
result<void> proxy_queues::open(connection& place) {
    verbs::queue_sizes wanted;
    wanted.send = sends_;
    auto made = verbs::queue_pair::create(device_, place.domain->get(), engine_->completions(),
                                          engine_->receives(), wanted, &place);
    if (!made) return made.error();
    const verbs::proxy_send_ring ring{
        {ring_of(place), ring_count_}, &released_[place.index].value, 0, place.index};
    if (auto added = engine_->add(*made, ring); !added) return added;
    place.queue_pair.emplace(std::move(*made));
    return {};
}

/// What kernels put into the ring from now on stays there.
result<void> proxy_queues::close(connection& place) {
    if (!place.queue_pair) return {};
    engine_->remove(*place.queue_pair);
    place.queue_pair.reset();
    return {};
}

core::nanoseconds proxy_queues::cpu_time() const {
    const core::thread_times used = core::times_of(engine_->thread_id());
    return used.user + used.kernel;
}

}  // namespace accel::gpu
