// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace accel {

/// Where bytes live: host memory, or the memory of one CUDA device.
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

/// Part of a registered region: an address range that a transport may read or write. Borrows: the region must
/// outlive it, and both must outlive the completion of every call they are lent to.
class slice {
  public:
    constexpr slice() noexcept = default;

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
    /// The region this is part of; null for a default-made slice.
    [[nodiscard]] const core::region_state* region() const noexcept { return region_; }
    /// `length` bytes from `offset`; `invalid_argument` if they do not all lie within this slice.
    [[nodiscard]] ACCEL_API result<slice> part(std::size_t offset, std::size_t length) const;

  private:
    friend class region;
    slice(std::byte* data, std::size_t size, const core::region_state* region) noexcept
        : data_(data), size_(size), region_(region) {}

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    const core::region_state* region_ = nullptr;
};

/// Registered memory, allocated by the library or the application's own. Owner; move-only.
/// Destroying it while a call still uses one of its slices is a misuse that is not detected.
/// A child of fork() cannot lend it, and on kernels before 5.13 may not have its pages.
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
    /// `length` bytes from `offset`; `invalid_argument` if they do not all lie within the region.
    [[nodiscard]] result<slice> part(std::size_t offset, std::size_t length) const;

  private:
    friend struct core::internals;
    explicit region(std::unique_ptr<core::region_state> state) noexcept;

    std::unique_ptr<core::region_state> state_;
};

}  // namespace accel
