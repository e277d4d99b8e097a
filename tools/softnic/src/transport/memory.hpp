// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/hca.hpp"

#include <span>

/// Between packets and registered memory.
namespace accel::softnic::memory {

/// Number of a message that is never read ahead of what is asked for.
inline constexpr std::uint64_t alone = 0;

/// Copies bytes [offset, offset + to.size()) of a message out of its segments. `message` numbers it for
/// engines that fetch ahead.
[[nodiscard]] vendor_syndrome gather(hca& nic, const queue_pair& qp, std::span<const segment> segments,
                                     std::span<const std::byte> inlined, std::uint64_t message, std::uint64_t offset,
                                     std::span<std::byte> to);

/// Reads a part of a message of which `left` more bytes follow, out of a region that the caller has checked.
[[nodiscard]] bool read(memory_region& region, std::uint64_t address, std::span<std::byte> to, std::uint64_t message,
                        std::uint64_t left);

/// Where the host finds bytes [offset, offset + size_bytes) of the message, if they are in one piece that it
/// can load from and that is mapped now. Null otherwise, also when something is wrong with them: gather()
/// says what.
[[nodiscard]] const std::byte* locate(hca& nic, const queue_pair& qp, std::span<const segment> segments,
                                      std::uint64_t offset, std::size_t size_bytes);
/// The same for bytes of a region that the caller has checked.
[[nodiscard]] const std::byte* locate(memory_region& region, std::uint64_t address, std::size_t size_bytes);

/// Copies into the segments, from `offset` on. `local_length` when they are too short.
[[nodiscard]] vendor_syndrome scatter(hca& nic, queue_pair& qp, std::span<const segment> segments, std::uint64_t offset,
                                      std::span<const std::byte> from);

/// The segment that has all of bytes [offset, offset + size_bytes) of a message, from the segment's new `offset` on; or
/// null.
[[nodiscard]] const segment* find_piece(std::span<const segment> segments, std::uint64_t& offset,
                                        std::size_t size_bytes);
/// settle() waits for this engine.
void note_deferring(hca& nic, const std::shared_ptr<dma_engine>& engine);
/// ahead::push() looks after this engine's early writes.
void note_early(hca& nic, const std::shared_ptr<dma_engine>& engine, std::uint64_t mark);

/// Writes into a region that the caller has checked, what has not been written ahead of its packet. Strict mode may
/// keep the data back for a while.
[[nodiscard]] bool place(hca& nic, queue_pair& qp, memory_region& region, std::uint64_t address,
                         std::span<const std::byte> from);

/// Puts everything that strict mode still keeps back for this queue pair into memory. Called before anything
/// that hardware orders behind the data: a completion, a read or an atomic on the same queue pair.
void flush_posted(hca& nic, queue_pair& qp);
/// The same when its time has come and nobody is told: without waiting for engines that defer, so perhaps only a part.
void write_posted(hca& nic, queue_pair& qp);

/// Waits for engines that defer their writes. Called at the end of each message, before anybody hears of it.
/// False: some of the data was lost.
[[nodiscard]] bool settle(hca& nic);

/// Nothing that came for a queue pair is written any more: it has ended, and its memory is the program's again.
void drain(hca& nic, queue_pair& qp);

/// Nothing reads or writes the region any more.
void quiesce(hca& nic, const memory_region& region);

}  // namespace accel::softnic::memory
