// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging/accelerator.hpp"
#include "staging/failure_watch.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace accel::cuda {

/// One GPU, used through its primary context, as the CUDA runtime does.
class device final : public core::accelerator_device {
  public:
    [[nodiscard]] static result<std::unique_ptr<device>> open(int ordinal);
    ~device() override = default;
    device(const device&) = delete;
    device& operator=(const device&) = delete;

    [[nodiscard]] memory_kind kind() const noexcept override {
        return memory_kind::cuda(static_cast<std::int16_t>(ordinal_));
    }
    [[nodiscard]] const std::string& name() const noexcept override { return name_; }
    [[nodiscard]] result<std::byte*> allocate(std::size_t bytes) override;
    void release(std::byte* memory) noexcept override;
    [[nodiscard]] result<std::byte*> allocate_shareable(std::size_t bytes) override;
    [[nodiscard]] result<core::unique_fd> share(const std::byte* memory) override;
    [[nodiscard]] result<std::byte*> map_shared(int fd, std::size_t bytes, core::shared_of whose) override;
    [[nodiscard]] result<std::unique_ptr<core::device_stream>> open_stream(stream_priority priority) override;
    [[nodiscard]] result<core::dma_buf> export_memory(const std::byte* memory, std::size_t bytes) override;
    [[nodiscard]] result<void> watch() override;
    [[nodiscard]] bool orders_inbound() const noexcept override { return orders_inbound_; }
    [[nodiscard]] result<void> when_ended(CUstream_st* stream, void (*done)(void*), void* argument) override;
    [[nodiscard]] std::size_t allocated() const noexcept override { return allocated_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool alive() const noexcept override { return !failed_.load(std::memory_order_relaxed); }
    void make_inbound_visible() noexcept override;

  private:
    device(int ordinal, std::string name) noexcept : ordinal_(ordinal), name_(std::move(name)) {}
    [[nodiscard]] result<void> clear(void* memory, std::size_t bytes);
    void keep(std::byte* made, std::size_t bytes, bool mapped);

    int ordinal_;
    std::string name_;
    bool orders_inbound_ = false;
    bool flush_needed_ = false;  ///< kernels do not see an RDMA device's writes by themselves
    std::atomic<bool> failed_{false};
    std::atomic<std::size_t> allocated_{0};
    std::mutex mutex_;
    struct owned {
        std::size_t bytes = 0;
        bool mapped = false;  ///< by `shared_memory`, not by cudaMalloc
    };
    std::unordered_map<std::byte*, owned> owned_;
    std::unique_ptr<core::failure_watch> watch_;  ///< sets `failed_`
};

}  // namespace accel::cuda
