// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace accel::examples::serving::shared_memory {

struct guarded_range;

/// Another process's file in this one's memory. Where the file's owner shortens it, whoever touches the missing pages
/// here would get SIGBUS. A handler, made with the first mapping, puts zeros of this process's own in the place of all
/// of it, and the access goes on. System calls are not helped (EFAULT). SIGBUS of other causes goes the way that it
/// went before.
class guarded_mapping {
  public:
    /// At most so many at once in a process.
    static constexpr std::size_t max_mappings = 1024;

    /// `bytes` from `offset` on of a file that is readable and writable. `out_of_memory`: too many, or no room.
    [[nodiscard]] static result<std::unique_ptr<guarded_mapping>> map(int file, std::uint64_t offset,
                                                                      std::size_t bytes);
    guarded_mapping(std::byte* pages, std::size_t mapped, std::size_t skipped, guarded_range& guard) noexcept;
    guarded_mapping(const guarded_mapping&) = delete;
    guarded_mapping& operator=(const guarded_mapping&) = delete;
    /// Nobody may touch it any more.
    ~guarded_mapping();

    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {pages_ + skipped_, mapped_ - skipped_}; }
    /// True: pages were missing. They are zeros now, and the file's owner sees nothing of what is written here.
    [[nodiscard]] bool lost() const noexcept;

  private:
    std::byte* pages_;
    std::size_t mapped_;
    std::size_t skipped_;  ///< of the first page
    guarded_range& guard_;
};

}  // namespace accel::examples::serving::shared_memory
