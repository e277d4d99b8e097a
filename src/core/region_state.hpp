// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/fork_guard.hpp"

#include <accel_transport/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace accel::core {

class accelerator_device;
class context_state;

/// One registered region as the backends see it.
class region_state {
  public:
    /// `on`: null for memory of the host.
    region_state(context_state& context, std::byte* data, std::size_t size, accelerator_device* on,
                 bool owned) noexcept;
    ~region_state();
    region_state(const region_state&) = delete;
    region_state& operator=(const region_state&) = delete;
    std::byte* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    memory_kind kind() const noexcept { return kind_; }
    /// The device of this memory; null: host memory.
    accelerator_device* device() const noexcept { return device_; }
    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept { return stamp_.inherited(); }
    /// The region's id: unique in this process for good, never 0.
    std::uint64_t id() const noexcept { return id_; }

  private:
    std::shared_ptr<context_state> context_;
    std::byte* data_;
    std::size_t size_;
    accelerator_device* device_;
    memory_kind kind_;
    std::uint64_t id_;
    bool owned_;
    process_stamp stamp_;
};

}  // namespace accel::core
