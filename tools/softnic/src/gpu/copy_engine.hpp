// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/read_ahead.hpp"
#include "gpu/write_combiner.hpp"

namespace accel::softnic::gpu {

/// Moves bytes to and from the memory of one device over two lanes, one a direction, so that what comes in
/// does not wait for what goes out.
class copy_engine {
  public:
    static constexpr std::size_t staging_bytes = write_combiner::staging_bytes + read_ahead::staging_bytes;

    /// Staging: pinned, aligned to 64. A server that cannot do atomics must not be asked.
    copy_engine(lane& writes, lane& reads, std::byte* staging, bool atomics);

    [[nodiscard]] bool read(void* to, std::uint64_t from, std::size_t size);
    [[nodiscard]] bool read_part(void* to, std::uint64_t from, std::size_t size, std::uint64_t message,
                                 std::uint64_t following);
    [[nodiscard]] bool write(std::uint64_t to, const void* from, std::size_t size);
    [[nodiscard]] bool flush();
    [[nodiscard]] bool fetch_add(std::uint64_t at, std::uint64_t add, std::uint64_t& previous);
    [[nodiscard]] bool compare_swap(std::uint64_t at, std::uint64_t expected, std::uint64_t desired,
                                    std::uint64_t& previous);
    [[nodiscard]] bool broken() const { return writes_.broken() || reads_.broken(); }

  private:
    [[nodiscard]] bool run_atomic(const job& what, std::uint64_t& previous);
    /// A read must see what was written before it; what goes elsewhere need not be waited for.
    [[nodiscard]] bool before_read(std::uint64_t from, std::uint64_t size);

    lane& writes_;
    lane& reads_;
    write_combiner combiner_;
    read_ahead ahead_;
    bool atomics_;
    bool wrote_ = false;
    // All that was written since nothing was on its way lies in [first_, end_).
    std::uint64_t first_ = 0;
    std::uint64_t end_ = 0;
};

}  // namespace accel::softnic::gpu
