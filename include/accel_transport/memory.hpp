// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace accel {

/// Where memory is: on the host, or on one CUDA device.
struct memory_kind {
    enum class type : std::uint8_t { host, cuda };
    type where = type::host;
    std::int16_t ordinal = 0;  ///< CUDA device number; 0 for host

    static constexpr memory_kind host() noexcept { return {}; }
    static constexpr memory_kind cuda(std::int16_t device) noexcept { return {type::cuda, device}; }
    friend constexpr bool operator==(memory_kind, memory_kind) noexcept = default;
};

namespace core {
class region_state;
struct internals;
}  // namespace core

/// Part of a registered region: an address range that a transport may read or write. Borrows: the region must outlive
/// the slice, and both must outlive the completion of every call that lends the slice.
class slice {
  public:
    constexpr slice() noexcept = default;

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
    /// The region of this slice; null for a default-constructed slice.
    [[nodiscard]] const core::region_state* region() const noexcept { return region_; }
    /// `length` bytes from `offset`. `invalid_argument`: not all of them are within this slice.
    [[nodiscard]] ACCEL_API result<slice> part(std::size_t offset, std::size_t length) const;

  private:
    friend class region;
    slice(std::byte* data, std::size_t size, const core::region_state* region) noexcept
        : data_(data), size_(size), region_(region) {}

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    const core::region_state* region_ = nullptr;
};

/// Registered memory, allocated by the library or by the application. Owner; move-only.
/// Destroying a region while a call still uses one of its slices is an error that the library does not detect.
/// A child of fork() cannot lend it; on Linux before 5.13 its pages may be missing in the child.
class ACCEL_API region {
  public:
    region() noexcept;
    region(region&&) noexcept;
    region& operator=(region&&) noexcept;
    ~region();

    [[nodiscard]] std::byte* data() const noexcept;
    [[nodiscard]] std::size_t size() const noexcept;  ///< bytes
    [[nodiscard]] memory_kind kind() const noexcept;
    [[nodiscard]] slice whole() const noexcept;
    /// `length` bytes from `offset`. `invalid_argument`: not all of them are within the region.
    [[nodiscard]] result<slice> part(std::size_t offset, std::size_t length) const;

  private:
    friend struct core::internals;
    explicit region(std::unique_ptr<core::region_state> state) noexcept;

    std::unique_ptr<core::region_state> state_;
};

}  // namespace accel
