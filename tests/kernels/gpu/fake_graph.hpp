// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/fake_gpu.hpp"
#include "gpu/fake_stream.hpp"
#include "kernels/graph/recorded_graph.hpp"

#include <accel_transport/device/detail/graph/owned_steps.hpp>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace accel::tests {

/// Recorded iterations of the stand-in for a GPU: its stream runs them one after the other, with the
/// library's own steps before and behind what was recorded.
class fake_graph final : public gpu::recorded_graph {
  public:
    fake_graph(const device::service_ref& service, const device::detail::graph_memory& memory,
               std::atomic<bool>& failed, std::atomic<bool>& held, std::atomic<int>& at_work)
        : service_(service), memory_(memory), stream_(failed, held, at_work) {}

    [[nodiscard]] result<void> record(const gpu::graph_work& work) {
        stream_.record_into(&recorded_);
        auto done = work(stream_.native());
        stream_.record_into(nullptr);
        return done;
    }
    [[nodiscard]] CUstream_st* native() const noexcept override { return stream_.native(); }
    [[nodiscard]] std::size_t nodes() const noexcept override { return recorded_.size() + 2; }
    [[nodiscard]] result<void> start() override {
        stream_.launch([this] {
            do iteration();
            while (memory_.state->stopped == 0);
        });
        return {};
    }

  private:
    void iteration() {
        memory_.owned == nullptr ? device::detail::gather(service_, memory_) : gather_owned();
        const std::uint32_t count = memory_.state->count;
        if (memory_.iteration.input != nullptr) device::detail::copy_in(memory_, count, 0, 1);
        device::detail::mark_point(memory_, device::detail::iteration_point::copied_in);
        for (const auto& each : recorded_) each();
        device::detail::mark_point(memory_, device::detail::iteration_point::worked);
        if (memory_.iteration.output != nullptr) device::detail::copy_out(memory_, count, 0, 1);
        device::detail::mark_point(memory_, device::detail::iteration_point::copied_out);
        if (memory_.owned != nullptr) {
            device::detail::end_owned_requests(*memory_.owned, memory_, count);
        } else {
            device::detail::end_requests(service_, memory_, 0, 1);
            device::detail::mark_point(memory_, device::detail::iteration_point::answered);
        }
        device::detail::count_iteration(memory_);
    }
    /// The first node of a recording that owns its sessions. It sleeps now and then: there are few cores here.
    void gather_owned() {
        device::detail::gathered found;
        found.stopped = !device::detail::own_part(service_, memory_, *memory_.owned);
        while (found.count == 0 && !found.stopped) {
            found = device::detail::gather_owned<device::thread_scope>(*memory_.owned, memory_, 100'000);
            if (found.count == 0) std::this_thread::sleep_for(std::chrono::microseconds{100});
        }
        device::detail::tell_gathered(memory_, found);
        device::detail::mark_point(memory_, device::detail::iteration_point::taken);
    }

    device::service_ref service_;
    device::detail::graph_memory memory_;
    std::vector<std::function<void()>> recorded_;
    fake_stream stream_;
};

/// A fake GPU that records, and runs the recorded iterations on a thread.
class fake_recording_device final : public fake_device, public gpu::graph_recorder {
  public:
    using fake_device::fake_device;
    [[nodiscard]] result<std::unique_ptr<gpu::recorded_graph>> record(const device::service_ref& service,
                                                                      const device::detail::graph_memory& memory,
                                                                      const gpu::graph_work& work) override {
        auto made = std::make_unique<fake_graph>(service, memory, failed, held, at_work);
        if (auto recorded = made->record(work); !recorded) return recorded.error();
        return std::unique_ptr<gpu::recorded_graph>(std::move(made));
    }
};

class fake_recording_gpus final : public fake_accelerator {
  protected:
    [[nodiscard]] std::unique_ptr<fake_device> make_device(std::int16_t ordinal) const override {
        return std::make_unique<fake_recording_device>(ordinal);
    }
};

}  // namespace accel::tests
