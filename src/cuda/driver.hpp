// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>

struct CUctx_st;

/// The few calls that only the CUDA driver has. It is found when the program runs: nothing links against it.
namespace accel::cuda {

/// Whether this process has loaded the driver; no pointer can be a GPU's before that.
[[nodiscard]] bool driver_loaded() noexcept;

/// A call of the driver's, to be cast to its type. Null: the driver is older than the call.
[[nodiscard]] void* find_entry_point(const char* name) noexcept;

/// Makes a device the calling thread's current one, and on destruction whatever was current before: the thread may be
/// the application's.
class current_device {
  public:
    explicit current_device(int ordinal) noexcept;
    ~current_device();
    current_device(const current_device&) = delete;
    current_device& operator=(const current_device&) = delete;

    /// The result of `cudaSetDevice`; 0 is success.
    [[nodiscard]] int code() const noexcept { return code_; }

  private:
    CUctx_st* before_ = nullptr;  ///< none, where the thread has not used a device yet
    int code_;
};

struct allocation {
    std::uintptr_t base = 0;
    std::size_t bytes = 0;
};
/// The allocation that holds an address of a GPU's memory.
[[nodiscard]] result<allocation> find_allocation(std::uintptr_t address);

/// A dma-buf over a range of whole host pages; the caller closes it. `pcie`: reached over PCIe, also where
/// the default would be another way.
[[nodiscard]] result<int> export_dma_buf(std::uintptr_t begin, std::size_t bytes, bool pcie);

}  // namespace accel::cuda
