// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/last_pieces.hpp"
#include "gpu/read_ahead.hpp"
#include "gpu/write_combiner.hpp"

namespace accel::softnic::gpu {

/// Moves bytes to and from the memory of one device over three lanes: what comes in does not wait for what goes out,
/// nor the last piece of a message for those of others.
class copy_engine {
  public:
    static constexpr std::size_t staging_bytes =
        write_combiner::staging_bytes + last_pieces::staging_bytes + read_ahead::staging_bytes;

    /// Staging: pinned, aligned to 64. A server that cannot do atomics must not be asked.
    copy_engine(lane& writes, lane& reads, lane& urgent, std::byte* staging, bool atomics);

    [[nodiscard]] bool read(void* to, std::uint64_t from, std::size_t size);
    [[nodiscard]] bool read_part(void* to, std::uint64_t from, std::size_t size, std::uint64_t message,
                                 std::uint64_t following);
    [[nodiscard]] bool write(std::uint64_t to, const void* from, std::size_t size);
    [[nodiscard]] bool flush();

    enum class start : std::uint8_t { begun, later, refused };
    enum class state : std::uint8_t { under_way, in_memory, lost };
    /// Early writes are done in any order, or behind all before them; who is due may wait for room.
    enum class order : std::uint8_t { any, behind, due_behind };
    /// write() that never waits, unless it is due. `mark` names what was written so far.
    [[nodiscard]] start write_early(std::uint64_t to, const void* from, std::size_t size, order how,
                                    std::uint64_t& mark);
    /// Behind what `after` names, and in front of other early writes. False: nothing was written.
    [[nodiscard]] bool write_last(std::uint64_t to, const void* from, std::size_t size, std::uint64_t after,
                                  std::uint64_t& mark);
    static constexpr std::uint64_t everything = ~std::uint64_t{0};  ///< an `after`
    /// Also begins with what was kept: with all last pieces, if it is the mark of one, and with others if nothing is
    /// under way.
    [[nodiscard]] state state_of(std::uint64_t mark);
    [[nodiscard]] bool fetch_add(std::uint64_t at, std::uint64_t add, std::uint64_t& previous);
    [[nodiscard]] bool compare_swap(std::uint64_t at, std::uint64_t expected, std::uint64_t desired,
                                    std::uint64_t& previous);
    [[nodiscard]] bool broken() const { return writes_.broken() || reads_.broken() || urgent_.broken(); }

  private:
    [[nodiscard]] bool run_atomic(const job& what, std::uint64_t& previous);
    /// A read must see what was written before it; what goes elsewhere need not be waited for.
    [[nodiscard]] bool before_read(std::uint64_t from, std::uint64_t size);
    [[nodiscard]] bool pending() const { return combiner_.pending() || !urgent_.idle(); }
    [[nodiscard]] bool flush_writes();
    void note_range(std::uint64_t to, std::size_t size, bool pending);

    lane& writes_;
    lane& reads_;
    lane& urgent_;
    write_combiner combiner_;
    last_pieces last_pieces_;
    read_ahead ahead_;
    bool atomics_;
    bool wrote_ = false;
    // All that was written since nothing was on its way lies in [first_, end_).
    std::uint64_t first_ = 0;
    std::uint64_t end_ = 0;
};

}  // namespace accel::softnic::gpu
