#pragma once

#include "gpu/fake_stream.hpp"

#include <accel_transport/device/detail/graph_steps.hpp>

#include <functional>
#include <vector>

namespace accel::tests {

/// Recorded turns of the stand-in for a GPU: its stream runs them one after the other, with the library's own
/// steps before and behind what was recorded.
class fake_turns final : public core::recorded_turns {
  public:
    fake_turns(const device::service_ref& service, const device::graph_memory& memory,
               std::atomic<bool>& failed, std::atomic<bool>& held, std::atomic<int>& at_work)
        : service_(service), memory_(memory), stream_(failed, held, at_work) {}

    [[nodiscard]] result<void> record(const std::function<result<void>(CUstream_st*)>& work) {
        stream_.record_into(&recorded_);
        auto done = work(stream_.native());
        stream_.record_into(nullptr);
        return done;
    }
    [[nodiscard]] CUstream_st* native() const noexcept override { return stream_.native(); }
    [[nodiscard]] std::size_t nodes() const noexcept override { return recorded_.size() + 2; }
    [[nodiscard]] result<void> start() override {
        stream_.launch([this] {
            do turn();
            while (memory_.state->stopped == 0);
        });
        return {};
    }

  private:
    void turn() {
        device::gather(service_, memory_);
        if (memory_.turn.input != nullptr) device::copy_in(memory_, 0, 1);
        device::mark_turn(memory_, device::turn_point::copied_in);
        for (const auto& each : recorded_) each();
        device::mark_turn(memory_, device::turn_point::worked);
        if (memory_.turn.output != nullptr) device::copy_out(memory_, 0, 1);
        device::mark_turn(memory_, device::turn_point::copied_out);
        device::end_requests(service_, memory_, 0, 1);
        device::mark_turn(memory_, device::turn_point::answered);
        device::count_turn(memory_);
    }

    device::service_ref service_;
    device::graph_memory memory_;
    std::vector<std::function<void()>> recorded_;
    fake_stream stream_;
};

}  // namespace accel::tests
