// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/copy_engine.hpp"
#include "gpu/driver.cuh"
#include "gpu/neighbours.hpp"
#include "gpu/plugin.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace accel::softnic::gpu {

/// Writes, reads, and last pieces of messages.
inline constexpr std::size_t lane_count = 3;

/// The thread that calls CUDA for one GPU: the device itself only reads and writes pinned memory, since a
/// call of the driver may wait for locks of the program. Launches the copy kernel when there is work and none
/// is there, and does the copies by itself, with the driver, until the GPU has room for the kernel. Lives as long as
/// the process.
class worker final : public server {
  public:
    /// Null after a complaint on stderr. `others` outlives it.
    static std::unique_ptr<worker> start(const driver& calls, const gpu_range& where,
                                         const softnic_cuda_options& options, neighbours& others);

    void wake(lane& which) override;
    [[nodiscard]] bool alive() override;
    void given_up() override;
    [[nodiscard]] copy_engine& engine() { return *engine_; }
    [[nodiscard]] bool broken() const { return dead_ || engine_->broken(); }
    /// At the end of the process: no call of CUDA after this. Waits for one that is under way, for a while.
    void stop();

  private:
    worker(const driver& calls, const gpu_range& where, const softnic_cuda_options& options, neighbours& others);

    void run();
    bool prepare();
    bool prepare_kernel();
    void work();
    /// A lane, and what this thread does for it.
    struct attended {
        std::unique_ptr<lane> jobs;
        CUstream kernels = nullptr;
        CUstream copies = nullptr;  ///< not those of kernels: they would wait for one that cannot begin
        std::byte* bounce = nullptr;
        bool copying = false;                  ///< the lane is this thread's now
        std::uint32_t service = 0;             ///< under this number, or until the kernel comes: 0
        std::optional<std::uint32_t> running;  ///< the last job whose copy is under way
        std::chrono::steady_clock::time_point since;
    };
    bool prepare(attended& which, lane_memory& memory, std::byte* bounce, int priority);
    bool launch(attended& which);
    [[nodiscard]] bool wants_kernel();
    [[nodiscard]] bool expects_kernel() const;
    void serve_until_quiet();
    /// One look. True: there was something to do.
    bool serve(attended& which);
    void begin_copies(attended& which);
    bool begin_copy(const std::array<std::uint32_t, content_words>& content, const attended& which, std::byte* bounce);
    void finish_copies(attended& which);
    void stop_copying(attended& which);
    bool check(CUresult result, const char* what);

    const driver& calls_;
    gpu_range where_;
    softnic_cuda_options options_;
    neighbours& neighbours_;
    CUfunction kernel_ = nullptr;
    std::byte* pinned_ = nullptr;
    std::array<attended, lane_count> lanes_;
    std::unique_ptr<copy_engine> engine_;

    std::mutex mutex_;
    std::condition_variable changed_;
    bool wanted_ = false;
    bool look_ = false;
    bool stopping_ = false;
    bool parked_ = false;
    enum class stage : std::uint8_t { starting, ready, failed } stage_ = stage::starting;
    std::atomic<bool> dead_{false};
};

}  // namespace accel::softnic::gpu
