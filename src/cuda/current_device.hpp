// SPDX-License-Identifier: Apache-2.0
#pragma once

struct CUctx_st;

namespace accel::cuda {

/// Makes a device the calling thread's current one, and on destruction whatever was current before: the
/// thread may be the application's.
class current_device {
  public:
    explicit current_device(int ordinal) noexcept;
    ~current_device();
    current_device(const current_device&) = delete;
    current_device& operator=(const current_device&) = delete;

    /// Of `cudaSetDevice`; 0 is success.
    [[nodiscard]] int code() const noexcept { return code_; }

  private:
    CUctx_st* before_ = nullptr;  ///< none, where the thread has not used a device yet
    int code_;
};

}  // namespace accel::cuda
