#pragma once

#include "verbs/device.hpp"
#include "verbs/queue_pair.hpp"

#include <accel_transport/device/detail/engine.hpp>
#include <accel_transport/status.hpp>

#include <cstdint>
#include <memory>

namespace accel::tests {

/// A queue pair and what the device code keeps to post to it; the host's memory, all of it.
class harness_connection {
  public:
    virtual ~harness_connection() = default;
    [[nodiscard]] virtual verbs::queue_pair& queue_pair() noexcept = 0;
    [[nodiscard]] virtual const device::send_port& sends() const noexcept = 0;
    /// Before it is connected: completions will name it by its place, or its queue pair's number.
    [[nodiscard]] virtual result<void> open(std::uint32_t place) = 0;
    /// It makes no more completions, and what is still posted goes nowhere. On the polling thread.
    virtual void quiet() noexcept = 0;
};

/// How a worker that is in a kernel's place reaches its device: the queues of one poller.
class harness_engine {
  public:
    virtual ~harness_engine() = default;
    [[nodiscard]] virtual device::completion_port completions() const noexcept = 0;
    /// Empty where the engine looks after receives.
    [[nodiscard]] virtual mlx5::shared_receive_queue_ref receives() const noexcept = 0;
    /// No more arrivals than so many can be waiting to be taken.
    [[nodiscard]] virtual std::uint32_t most_arrivals() const noexcept = 0;

    /// Any thread. Deep enough for a message from each of `slots`; where the device cannot, messages wait.
    [[nodiscard]] virtual result<std::unique_ptr<harness_connection>> connect(
        ibv_pd* domain, std::uint32_t slots, verbs::async_listener* listener) = 0;

    // On the polling thread.
    /// What a kernel's host has to do for it. Before completions are looked for. False: there was nothing.
    virtual bool turn() noexcept { return false; }
    /// It is of no use to any session any more. Where nobody but `turn` would notice.
    [[nodiscard]] virtual bool has_failed() const noexcept { return false; }
    /// Readable when there is a completion, provided that `arm` said true.
    [[nodiscard]] virtual int event_fd() const noexcept = 0;
    [[nodiscard]] virtual bool arm() noexcept = 0;
    virtual void disarm() noexcept = 0;
};

/// The device's own queues, where it is driven directly. `listener` hears of a completion queue's overrun.
[[nodiscard]] result<std::unique_ptr<harness_engine>> make_direct_engine(std::shared_ptr<verbs::device> on,
                                                                         verbs::async_listener* listener);
/// Rings, and the proxy that posts by libibverbs, on the worker's thread too: no kernel has to be waited for.
[[nodiscard]] result<std::unique_ptr<harness_engine>> make_proxied_engine(std::shared_ptr<verbs::device> on);

}  // namespace accel::tests
