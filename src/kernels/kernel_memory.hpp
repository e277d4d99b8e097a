// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging/accelerator.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

namespace accel::gpu {

/// Memory that kernels use: the GPU's own, shared host memory, and pages of an adapter's queues. All of it is
/// allocated before the kernels run and freed after they have ended, because some of the calls would wait for
/// kernels. Without a GPU a thread of the host acts as the kernel, and all memory is the host's.
class kernel_memory {
  public:
    /// `on` may be null.
    kernel_memory(std::shared_ptr<core::accelerator> gpus, core::accelerator_device* on) noexcept;
    ~kernel_memory();
    kernel_memory(const kernel_memory&) = delete;
    kernel_memory& operator=(const kernel_memory&) = delete;

    /// Memory of the kernels: zeroed, 256-byte aligned.
    [[nodiscard]] result<std::byte*> allocate(std::size_t bytes);
    /// Host memory that both use: zeroed, page-aligned.
    [[nodiscard]] result<std::byte*> allocate_shared(std::size_t bytes);
    /// For slots: either kind.
    [[nodiscard]] result<std::byte*> allocate_slots(std::size_t bytes, bool on_host) {
        return on_host ? allocate_shared(bytes) : allocate(bytes);
    }
    /// Lets kernels use the pages of memory that was allocated elsewhere. A page may be named more than once.
    [[nodiscard]] result<void> share(const void* memory, std::size_t bytes);
    /// The same for registers of an adapter.
    [[nodiscard]] result<void> share_registers(const void* where, std::size_t bytes);
    /// Ends all sharing. Call it before the shared queues are destroyed.
    void end_sharing() noexcept;
    /// Nothing of it is freed any more: somebody may still write there.
    void leave_behind() noexcept;
    /// Writes what has been allocated, before the kernels run.
    [[nodiscard]] result<void> upload(std::byte* to, std::span<const std::byte> bytes);
    /// Reads it, after the kernels have ended.
    [[nodiscard]] result<void> download(std::span<std::byte> to, const std::byte* from);

    [[nodiscard]] core::accelerator_device* gpu() const noexcept { return gpu_; }
    /// It has failed, and no kernel of this process runs there any more.
    [[nodiscard]] bool gpu_lost() const noexcept { return gpu_ != nullptr && !gpu_->alive(); }

  private:
    struct mapping {
        void* base = nullptr;
        std::size_t bytes = 0;
    };
    [[nodiscard]] result<void> copy(std::byte* to, const std::byte* from, std::size_t bytes);
    template <class Pin>
    [[nodiscard]] result<void> share_pages(const void* memory, std::size_t bytes, Pin&& pin);

    std::shared_ptr<core::accelerator> gpus_;
    core::accelerator_device* gpu_;
    std::vector<std::byte*> on_gpu_;
    std::vector<mapping> on_host_;
    std::set<std::uintptr_t> known_;  ///< pages
    std::vector<void*> pinned_;
};

}  // namespace accel::gpu
