// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>

struct CUstream_st;

namespace accel::bench {

/// What CUDA said of the call before: nothing if it went well, else `system_error` with its sentence.
[[nodiscard]] result<void> cuda_done(int code, const char* what);

enum class memory_place : std::uint8_t { pinned, gpu };

/// Zeroed memory of the host (pinned, at the same address for the GPU) or of the GPU.
class cuda_memory {
  public:
    [[nodiscard]] static result<cuda_memory> allocate(memory_place where, std::size_t bytes);
    [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
    template <class Object>
    [[nodiscard]] Object* as(std::size_t offset = 0) const noexcept {
        return reinterpret_cast<Object*>(memory_.get() + offset);
    }
    [[nodiscard]] result<void> clear() noexcept;

  private:
    struct deleter {
        memory_place where = memory_place::pinned;
        void operator()(std::byte* memory) const noexcept;
    };
    std::unique_ptr<std::byte, deleter> memory_{nullptr, deleter{}};
    std::size_t bytes_ = 0;
};

/// Waits until the stream is idle. After `patience_ms` it sets `abort`, and after a second more gives up.
[[nodiscard]] result<void> wait_for(CUstream_st* stream, std::uint32_t* abort, unsigned patience_ms);

/// Pages of the host that a GPU may use while this lives, each registered once: queues may share one.
class registered_pages {
  public:
    registered_pages() = default;
    registered_pages(const registered_pages&) = delete;
    registered_pages& operator=(const registered_pages&) = delete;
    ~registered_pages();
    /// `unsupported`: CUDA does not take them, or gives them another address.
    [[nodiscard]] result<void> add(const void* first, std::size_t bytes);
    /// Of a device's registers; an emulated device's are plain memory.
    [[nodiscard]] result<void> add_registers(const void* first, std::size_t bytes);

  private:
    [[nodiscard]] result<void> add_page(std::uintptr_t page, bool registers);
    std::set<std::uintptr_t> ours_;
};

}  // namespace accel::bench
