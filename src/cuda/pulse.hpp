// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging/failure_watch.hpp"

#include <accel_transport/status.hpp>

#include <memory>
#include <string>

struct CUevent_st;
struct CUstream_st;

namespace accel::cuda {

/// Asks a GPU whether it still works, with an event of its own: a stream that has nothing to do may not hear of a
/// fault elsewhere in its context. By one thread at a time.
class pulse {
  public:
    /// `name` is the GPU's, for people.
    [[nodiscard]] static result<std::unique_ptr<pulse>> create(int ordinal, std::string name);
    ~pulse();
    pulse(const pulse&) = delete;
    pulse& operator=(const pulse&) = delete;

    /// Some microseconds, unless the driver is held up. Logs what ends the GPU. A kernel that fills the GPU may keep
    /// the event waiting; it counts as busy.
    [[nodiscard]] core::gpu_sight look();

  private:
    pulse(int ordinal, std::string name) noexcept : ordinal_(ordinal), name_(std::move(name)) {}
    [[nodiscard]] int beat() noexcept;

    int ordinal_;
    std::string name_;
    CUstream_st* stream_ = nullptr;
    CUevent_st* event_ = nullptr;
};

}  // namespace accel::cuda
