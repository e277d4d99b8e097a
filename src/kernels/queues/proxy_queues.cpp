// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"
#include "core/thread_times.hpp"
#include "kernels/left_behind.hpp"
#include "kernels/proxy/proxy.hpp"
#include "kernels/queues/queue_set.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace accel::gpu {
namespace {

/// A word with a cache line of its own.
template <class Word>
struct alignas(128) lone {
    Word value{};
};

/// The word behind a ring that says how many entries are done.
std::uint32_t* released_word(const proxy::send_queue_ref& port) noexcept {
    return &reinterpret_cast<lone<std::uint32_t>*>(port.ring + port.count)->value;
}

/// How long the end of a session waits for the proxy; then it goes on, or tries again later.
constexpr std::chrono::seconds longest_removal{1};
/// An engine on a shared thread posts so many descriptors before the others are served: some 25 µs of work.
constexpr std::uint32_t shared_round = 128;

class proxy_queues final : public queue_set {
  public:
    proxy_queues(std::shared_ptr<verbs::device> on, proxy_sharing by, bool host_takes_failures) noexcept
        : device_(std::move(on)), by_(std::move(by)), host_takes_failures_(host_takes_failures) {
        completions_.by = device::detail::engine::proxy;
    }
    ~proxy_queues() override;
    proxy_queues(const proxy_queues&) = delete;
    proxy_queues& operator=(const proxy_queues&) = delete;
    [[nodiscard]] result<void> make(const queue_depths& wanted, kernel_memory& memory);
    void listen_for(std::uint32_t index, session_queue* queue);

    [[nodiscard]] queue_depths depths() const noexcept override {
        return {engine_->receive_depth(), engine_->send_depth()};
    }
    [[nodiscard]] device::detail::completion_port completion_port() const override { return completions_; }

    [[nodiscard]] result<void> prepare(session_queue& queue, kernel_memory& memory) override;
    [[nodiscard]] bool discard(session_queue& queue) noexcept override { return close(queue).ok(); }
    [[nodiscard]] result<void> open(session_queue& queue) override;
    [[nodiscard]] result<void> close(session_queue& queue) override;
    [[nodiscard]] result<void> start(kernel_memory&) override {
        return is_shared() ? by_.threads->add(*engine_, by_.count) : engine_->start();
    }
    [[nodiscard]] core::nanoseconds cpu_time() const override;

    void catch_up() noexcept override { (void)engine_->catch_up(longest_removal); }
    void take_failures() noexcept override;

    bool progress() noexcept override { return engine_->progress(); }
    [[nodiscard]] bool has_failed() const noexcept override { return engine_->has_failed(); }
    [[nodiscard]] int event_fd() const noexcept override { return engine_->event_fd(); }
    [[nodiscard]] bool arm() noexcept override { return engine_->arm(); }
    void disarm() noexcept override { engine_->disarm(); }

  private:
    [[nodiscard]] bool is_shared() const noexcept { return by_.count > 0 && by_.threads != nullptr; }

    std::shared_ptr<verbs::device> device_;
    proxy_sharing by_;
    device::detail::completion_port completions_;  ///< without its counter, which is the taker's
    std::unique_ptr<proxy_engine> engine_;
    const bool host_takes_failures_;
    std::mutex mutex_;  ///< of what follows
    proxy::completion_queue_state taken_;
    std::vector<session_queue*> open_;  ///< by index
};

/// An engine whose thread a driver keeps is left to that thread.
proxy_queues::~proxy_queues() {
    if (!engine_) return;
    if (is_shared() ? by_.threads->remove(*engine_) : engine_->stop()) return;
    core::log().error("gpu: the driver of {} does not return; the proxy's queues there are not released",
                      device_->name());
    engine_->abandon();
    leave_behind(std::move(engine_));
}

core::nanoseconds proxy_queues::cpu_time() const {
    if (is_shared()) return by_.threads->cpu_time(*engine_);
    const core::thread_times used = core::times_of(engine_->thread_id());
    return used.user + used.kernel;
}

result<void> proxy_queues::make(const queue_depths& wanted, kernel_memory& memory) {
    const std::uint32_t count = std::bit_ceil(std::min(wanted.receives, proxy::max_entries));
    auto ring = memory.allocate_shared(count * sizeof(proxy::completion_entry));
    if (!ring) return ring.error();
    auto words = memory.allocate_shared(sizeof(lone<std::uint32_t>) + sizeof(lone<std::uint64_t>));
    if (!words) return words.error();
    auto* const consumed = reinterpret_cast<lone<std::uint32_t>*>(*words);
    completions_.proxied.entries = reinterpret_cast<proxy::completion_entry*>(*ring);
    completions_.proxied.count = count;
    completions_.proxied.consumed = &consumed->value;
    if (host_takes_failures_) completions_.proxied.state = &taken_;
    completions_.proxied.first_failure = &reinterpret_cast<lone<std::uint64_t>*>(consumed + 1)->value;

    proxy_options options;
    options.receives = wanted.receives;
    options.sends = wanted.sends;
    options.arrivals = !host_takes_failures_;
    if (is_shared()) options.round = shared_round;
    auto made = proxy_engine::create(device_, {{completions_.proxied.entries, count}, &consumed->value, 0}, options);
    if (!made) return made.error();
    engine_ = std::move(*made);
    return {};
}

result<void> proxy_queues::prepare(session_queue& queue, kernel_memory& memory) {
    queue.sends = std::min({queue.sends, static_cast<std::uint32_t>(device_->limits().max_qp_wr), proxy::max_entries});
    const std::uint32_t count = std::bit_ceil(queue.sends);
    auto ring = memory.allocate_shared(count * sizeof(proxy::send_descriptor) + sizeof(lone<std::uint32_t>));
    if (!ring) return ring.error();
    queue.port.by = device::detail::engine::proxy;
    queue.port.proxied.ring = reinterpret_cast<proxy::send_descriptor*>(*ring);
    queue.port.proxied.count = count;
    queue.port.proxied.queue_pair = queue.index;
    queue.port.proxied.released = released_word(queue.port.proxied);
    return {};
}

/// The engine knows the queue pair before it is connected, so that no arrival is missed.
result<void> proxy_queues::open(session_queue& queue) {
    verbs::queue_sizes wanted;
    wanted.send = queue.sends;
    auto made = verbs::queue_pair::create(device_, queue.domain->get(), engine_->completions(), engine_->receives(),
                                          wanted, queue.listener);
    if (!made) return made.error();
    queue.queue_pair.emplace(std::move(*made));
    const proxy::send_queue_ref& port = queue.port.proxied;
    const proxy_send_ring ring{{port.ring, port.count}, released_word(port), 0, queue.index, &queue.answers};
    auto added = engine_->add(*queue.queue_pair, ring);
    if (!added) queue.queue_pair.reset();
    if (added) listen_for(queue.index, &queue);
    return added;
}

void proxy_queues::listen_for(std::uint32_t index, session_queue* queue) {
    const std::lock_guard lock(mutex_);
    if (open_.size() <= index) open_.resize(index + 1);
    open_[index] = queue;
}

void proxy_queues::take_failures() noexcept {
    if (!host_takes_failures_) return;
    const std::lock_guard lock(mutex_);
    const std::uint32_t before = taken_.taken;
    mlx5::completion done;
    while (proxy::take(completions_.proxied, done)) {
        session_queue* const whose = done.queue_pair < open_.size() ? open_[done.queue_pair] : nullptr;
        if (whose != nullptr && whose->listener != nullptr) whose->listener->on_async_event(IBV_EVENT_QP_FATAL);
    }
    if (taken_.taken != before) proxy::publish_taken(completions_.proxied);
}

/// The engine ignores what kernels put into the ring from now on.
result<void> proxy_queues::close(session_queue& queue) {
    if (!queue.queue_pair) return {};
    listen_for(queue.index, nullptr);
    if (!engine_->remove(*queue.queue_pair, longest_removal))
        return error{status::timed_out, 0, fmt::format("the driver of {} does not return", device_->name())};
    take_failures();  // those of this connection must not be taken for the next one's
    queue.queue_pair.reset();
    queue.answers = {};
    return {};
}

}  // namespace

result<std::unique_ptr<queue_set>> make_proxy_queues(std::shared_ptr<verbs::device> on, const queue_depths& wanted,
                                                     kernel_memory& memory, const proxy_sharing& by,
                                                     bool host_takes_failures) {
    auto made = std::make_unique<proxy_queues>(std::move(on), by, host_takes_failures);
    if (auto ready = made->make(wanted, memory); !ready) return ready.error();
    return std::unique_ptr<queue_set>(std::move(made));
}

}  // namespace accel::gpu
