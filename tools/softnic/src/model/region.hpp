// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/engine.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace accel::softnic {

/// Bits of ibv_access_flags that the device looks at.
namespace access {
inline constexpr std::uint32_t local_write = 1;
inline constexpr std::uint32_t remote_write = 2;
inline constexpr std::uint32_t remote_read = 4;
inline constexpr std::uint32_t remote_atomic = 8;
}  // namespace access

/// Registered memory: keys, protection domain, and where the bytes are.
struct memory_region {
    std::uint32_t key = 0;  ///< lkey and rkey are the same, as on mlx5
    std::uint32_t pd = 0;
    std::uint64_t iova = 0;  ///< the address that work requests use
    std::uint64_t length = 0;
    std::uint64_t base = 0;  ///< the address of the same byte for the engine
    std::uint32_t access = 0;
    bool invalidated = false;  ///< by a SEND with invalidate: remote access is over
    std::shared_ptr<dma_engine> engine;

    [[nodiscard]] std::uint64_t engine_address(std::uint64_t address) const { return base + (address - iova); }
};

enum class access_check : std::uint8_t { ok, bad_key, wrong_domain, denied, out_of_bounds };

/// All regions of a device, by key. A key is index << 8 | variant; the variant changes when an index is used
/// again, so that a stale key does not open somebody else's memory.
class region_table {
  public:
    /// Assigns the key. The reference is valid until remove().
    memory_region& add(memory_region region);
    /// The same with a variant that the program chose.
    memory_region& add(memory_region region, std::uint8_t variant);
    bool remove(std::uint32_t key);
    [[nodiscard]] memory_region* find(std::uint32_t key) const;

    struct result {
        access_check status = access_check::bad_key;
        memory_region* region = nullptr;
    };
    /// May `size_bytes` at `address` be used through `key`? `needed` is a set of access bits. A remote use
    /// (any of the remote bits) of an invalidated region is refused.
    [[nodiscard]] result check(std::uint32_t key, std::uint32_t pd, std::uint64_t address, std::uint64_t size_bytes,
                               std::uint32_t needed) const;
    [[nodiscard]] std::size_t size() const { return live_; }

  private:
    static constexpr std::size_t rest_before_reuse = 64;

    [[nodiscard]] std::uint32_t take_index();

    std::vector<std::unique_ptr<memory_region>> regions_;
    std::vector<std::uint8_t> variants_;
    std::deque<std::uint32_t> free_;
    std::size_t live_ = 0;
};

}  // namespace accel::softnic
