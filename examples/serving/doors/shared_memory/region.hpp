// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/memory.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace accel::examples::serving::shared_memory {

/// What all regions take together. Belongs to the loop's thread.
struct usage {
    std::size_t regions = 0;
    std::uint64_t bytes = 0;
};

/// A region's share of the limits, until the last call that uses the region has ended.
class claim {
  public:
    claim(std::shared_ptr<usage> of, std::uint64_t bytes);
    claim(const claim&) = delete;
    claim& operator=(const claim&) = delete;
    ~claim();

  private:
    std::shared_ptr<usage> of_;
    std::uint64_t bytes_;
};

/// Memory of a client of this host. The client may take it away at any moment: no access faults, each says so.
/// Whoever calls keeps `offset` and length within the region.
class region {
  public:
    region() = default;
    region(const region&) = delete;
    region& operator=(const region&) = delete;
    virtual ~region() = default;

    /// Copies. `invalid_argument`: the memory is not there any more.
    [[nodiscard]] virtual result<void> read(std::uint64_t offset, std::span<std::byte> to) = 0;
    [[nodiscard]] virtual result<void> write(std::uint64_t offset, std::span<const std::byte> from) = 0;
    /// For a call of a channel; an empty slice: this memory is not lent.
    [[nodiscard]] virtual slice lend(std::uint64_t offset, std::uint64_t bytes) = 0;
    /// Memory was taken away while it was lent: what a call has read there is worth nothing.
    [[nodiscard]] virtual bool lost() const noexcept = 0;
    [[nodiscard]] virtual bool on_gpu() const noexcept = 0;
};

}  // namespace accel::examples::serving::shared_memory
