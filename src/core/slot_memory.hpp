// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/protocol.hpp"

#include <accel_transport/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace accel::core {

class accelerator;
class accelerator_device;

/// The device of the slots' payloads; none: the host.
struct slot_place {
    std::shared_ptr<accelerator> devices;
    accelerator_device* device = nullptr;
    bool shareable = false;  ///< by another process that maps them, where the device can
};

/// The slots of one direction of one session. On the host they are one mapping, and slot i is
/// [extension room 192 | header 64 | payload `capacity`], so that header and payload leave in one piece; its
/// pages are touched on first use: an idle session costs address space, not memory. With payloads on a device
/// the headers stay on the host, and behind each there is room for a short text (`text_room`).
class slot_memory {
  public:
    [[nodiscard]] static result<std::shared_ptr<slot_memory>> create(std::uint32_t count, std::size_t capacity,
                                                                     slot_place place = {});
    /// Over memory of another owner, on the host or a device: slot i begins at `base + i * stride`, in one piece.
    [[nodiscard]] static std::shared_ptr<slot_memory> over(std::byte* base, std::uint32_t count, std::size_t capacity,
                                                           std::size_t stride);
    ~slot_memory();
    slot_memory(const slot_memory&) = delete;
    slot_memory& operator=(const slot_memory&) = delete;

    [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }  ///< payload bytes a slot
    [[nodiscard]] std::byte* header(std::uint32_t i) const noexcept { return base_ + i * stride_ + extension_room; }
    [[nodiscard]] std::byte* payload(std::uint32_t i) const noexcept { return payloads_ + i * payload_stride_; }
    [[nodiscard]] std::span<std::byte> room(std::uint32_t i) const noexcept { return {payload(i), capacity_}; }

    /// Header and payload are not in one piece.
    [[nodiscard]] bool split() const noexcept { return place_.device != nullptr; }
    [[nodiscard]] accelerator_device* device() const noexcept { return place_.device; }
    /// Behind a header on the host, where the payloads are on a device.
    static constexpr std::size_t text_room = 192;

    /// The part on the host: all of it, or the headers.
    [[nodiscard]] std::byte* base() const noexcept { return base_; }
    [[nodiscard]] std::size_t stride() const noexcept { return stride_; }
    [[nodiscard]] std::size_t size_bytes() const noexcept { return stride_ * count_; }
    /// The payloads, where they are on a device.
    [[nodiscard]] std::byte* payloads() const noexcept { return payloads_; }
    [[nodiscard]] std::size_t payload_stride() const noexcept { return payload_stride_; }
    [[nodiscard]] std::size_t payload_bytes() const noexcept { return payload_stride_ * count_; }

    /// Locks the part on the host into RAM, for the copies of devices, as long as it lives. Touches every page.
    [[nodiscard]] result<void> pin(const std::shared_ptr<accelerator>& devices);

    /// From one payload to the next, where they are on a device.
    [[nodiscard]] static std::size_t device_stride(std::size_t capacity) noexcept;
    /// The bytes that `create` would map on the host, for checking a limit first.
    [[nodiscard]] static std::size_t size_bytes(std::uint32_t count, std::size_t capacity) noexcept;

  private:
    slot_memory(std::uint32_t count, std::size_t capacity, slot_place place) noexcept;
    [[nodiscard]] result<void> map();

    std::byte* base_ = nullptr;
    std::byte* payloads_ = nullptr;
    std::uint32_t count_;
    std::size_t capacity_;
    std::size_t stride_;
    std::size_t payload_stride_;
    slot_place place_;
    std::shared_ptr<accelerator> pinned_by_;
    bool owned_ = true;
};

}  // namespace accel::core
