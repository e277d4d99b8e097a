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
inline constexpr std::uint32_t remote = remote_read | remote_write | remote_atomic;
inline constexpr std::uint32_t bind_window = 16;
}  // namespace access

/// A memory window has a key of its own to a part of a region. Type 1 serves its protection domain, type 2 (2B of the
/// InfiniBand specification, 10.6.7.2) one queue pair.
enum class window_type : std::uint8_t { none, type_1, type_2 };

/// Registered memory: keys, protection domain, and where the bytes are. Or a window on one.
struct memory_region {
    std::uint32_t key = 0;  ///< lkey and rkey are the same, as on mlx5
    std::uint32_t pd = 0;
    std::uint64_t iova = 0;  ///< the address that work requests use
    std::uint64_t length = 0;
    std::uint64_t base = 0;  ///< the address of the same byte for the engine
    std::uint32_t access = 0;
    bool invalidated = false;            ///< by a SEND with invalidate: remote access is over
    std::shared_ptr<dma_engine> engine;  ///< a window has none

    window_type window = window_type::none;
    std::uint32_t target = 0;   ///< the key of the region behind: of a bound window, or of an alias; 0: none
    std::uint64_t shift = 0;    ///< an alias's: what to add to its addresses for those of the region behind
    std::uint32_t qpn = 0;      ///< a bound window's of type 2
    std::uint32_t windows = 0;  ///< bound to this region

    [[nodiscard]] bool is_window() const { return window != window_type::none; }
    /// A key of its own, with other addresses, to a region.
    [[nodiscard]] bool is_alias() const { return window == window_type::none && target != 0; }
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
    /// Whatever the variant: a work request may name a window by an earlier key of it.
    [[nodiscard]] memory_region* find_any_variant(std::uint32_t key) const;

    struct result {
        access_check status = access_check::bad_key;
        memory_region* region = nullptr;
    };
    /// Who wants to use a key.
    struct user {
        std::uint32_t pd = 0;
        std::uint32_t qpn = 0;
    };
    /// May `size_bytes` at `address` be used through `key`? `needed` is a set of access bits. A remote use
    /// (any of the remote bits) of an invalidated region is refused, and any other use of a window. A window's answer
    /// is the region behind it, which has the same addresses.
    [[nodiscard]] result check(std::uint32_t key, user by, std::uint64_t address, std::uint64_t size_bytes,
                               std::uint32_t needed) const;
    [[nodiscard]] std::size_t size() const { return live_; }

  private:
    static constexpr std::size_t rest_before_reuse = 64;

    [[nodiscard]] std::uint32_t take_index();
    [[nodiscard]] result look_through(const memory_region& window, user by, std::uint32_t needed) const;
    [[nodiscard]] result follow(memory_region& alias, user by, std::uint64_t address, std::uint64_t size_bytes,
                                std::uint32_t needed) const;

    std::vector<std::unique_ptr<memory_region>> regions_;
    std::vector<std::uint8_t> variants_;
    std::deque<std::uint32_t> free_;
    std::size_t live_ = 0;
};

}  // namespace accel::softnic
