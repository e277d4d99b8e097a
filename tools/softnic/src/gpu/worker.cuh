// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/copy_engine.hpp"
#include "gpu/driver.cuh"
#include "gpu/neighbours.hpp"
#include "gpu/plugin.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

namespace accel::softnic::gpu {

/// The thread that calls CUDA for one GPU: the device itself only reads and writes pinned memory, since a
/// call of the driver may wait for locks of the program. Launches the copy kernel when there is work and none
/// is there, or does the copies by itself. Lives as long as the process.
class worker final : public server {
  public:
    /// Null after a complaint on stderr. `others` outlives it.
    static std::unique_ptr<worker> start(const driver& calls, const gpu_range& where,
                                         const softnic_cuda_options& options, neighbours& others);

    void wake(lane& which) override;
    [[nodiscard]] bool alive() override;
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
    bool launch(lane& which, CUstream stream);
    [[nodiscard]] bool prefers_copies(lane& which);
    void take_over(std::size_t at);
    void give_up_service(std::size_t at);
    void copy_for(std::size_t at, bool& any);
    bool copy_one(const std::array<std::uint32_t, content_words>& content, CUstream stream);
    void copy_until_quiet();
    bool check(CUresult result, const char* what);
    [[nodiscard]] bool wait_for_copy(CUstream stream);

    const driver& calls_;
    gpu_range where_;
    softnic_cuda_options options_;
    neighbours& neighbours_;
    CUfunction kernel_ = nullptr;
    std::array<CUstream, 2> streams_{};
    std::byte* pinned_ = nullptr;
    std::byte* bounce_ = nullptr;
    std::array<std::unique_ptr<lane>, 2> lanes_;
    std::unique_ptr<copy_engine> engine_;
    std::array<std::uint32_t, 2> services_{};  ///< by this thread; 0: the lane is not its own now

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
