#pragma once

#include "core/protocol.hpp"

#include <accel_transport/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace accel::core {

/// The slots of one direction of one session, in one registered mapping. Slot i is
/// [extension room 192 | header 64 | payload `capacity`], so header and payload leave in one piece.
/// Pages are touched on first use: an idle session costs address space, not memory.
class slot_memory {
  public:
    [[nodiscard]] static result<std::shared_ptr<slot_memory>> create(std::uint32_t count,
                                                                     std::size_t capacity, memory_kind kind);
    ~slot_memory();
    slot_memory(const slot_memory&) = delete;
    slot_memory& operator=(const slot_memory&) = delete;

    [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }  ///< payload bytes a slot
    [[nodiscard]] std::byte* header(std::uint32_t i) const noexcept {
        return base_ + i * stride_ + extension_room;
    }
    [[nodiscard]] std::byte* payload(std::uint32_t i) const noexcept { return header(i) + header_bytes; }
    [[nodiscard]] std::span<std::byte> room(std::uint32_t i) const noexcept {
        return {payload(i), capacity_};
    }

    [[nodiscard]] std::byte* base() const noexcept { return base_; }
    [[nodiscard]] std::size_t stride() const noexcept { return stride_; }
    [[nodiscard]] std::size_t size_bytes() const noexcept { return stride_ * count_; }
    /// What `create` would map, for checking a limit first.
    [[nodiscard]] static std::size_t size_bytes(std::uint32_t count, std::size_t capacity) noexcept;

  private:
    slot_memory(std::byte* base, std::uint32_t count, std::size_t capacity, std::size_t stride) noexcept
        : base_(base), count_(count), capacity_(capacity), stride_(stride) {}
    std::byte* base_;
    std::uint32_t count_;
    std::size_t capacity_;
    std::size_t stride_;
};

}  // namespace accel::core
