// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace accel::examples::serving {

/// What one GPU was doing meanwhile.
struct gpu_use {
    std::uint64_t memory_bytes = 0;     ///< the most that was in use, by all processes
    std::optional<double> utilisation;  ///< mean, in %; a part of a GPU (MIG) has none
};

/// Asks NVML ten times a second, on a thread of its own, until it is destroyed. NVML is loaded at run time.
class gpu_watch {
  public:
    virtual ~gpu_watch() = default;
    [[nodiscard]] virtual gpu_use seen() const = 0;

    /// Null: there is no driver of NVIDIA's, or no GPU of this number.
    [[nodiscard]] static std::unique_ptr<gpu_watch> start(int gpu);
};

}  // namespace accel::examples::serving
