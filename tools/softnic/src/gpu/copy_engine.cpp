// SPDX-License-Identifier: Apache-2.0
#include "gpu/copy_engine.hpp"

#include <algorithm>

namespace accel::softnic::gpu {
namespace {

/// Marks: the number of a job, and whether it is an urgent one.
std::uint64_t mark_of(std::uint32_t job, bool urgent) {
    return std::uint64_t{job} << 1 | (urgent ? 1 : 0);
}
bool is_urgent(std::uint64_t mark) {
    return (mark & 1) != 0;
}
std::uint32_t job_of(std::uint64_t mark) {
    return static_cast<std::uint32_t>(mark >> 1);
}

}  // namespace

copy_engine::copy_engine(lane& writes, lane& reads, lane& urgent, std::byte* staging, bool atomics)
    : writes_(writes),
      reads_(reads),
      urgent_(urgent),
      combiner_(writes, staging),
      last_pieces_(urgent, staging + write_combiner::staging_bytes),
      ahead_(reads, staging + write_combiner::staging_bytes + last_pieces::staging_bytes),
      atomics_(atomics) {}

bool copy_engine::read(void* to, std::uint64_t from, std::size_t size) {
    return before_read(from, size) && ahead_.read(static_cast<std::byte*>(to), from, size);
}

bool copy_engine::read_part(void* to, std::uint64_t from, std::size_t size, std::uint64_t message,
                            std::uint64_t following) {
    return before_read(from, size + following) &&
           ahead_.read_part(static_cast<std::byte*>(to), from, size, message, following);
}

bool copy_engine::write(std::uint64_t to, const void* from, std::size_t size) {
    note_range(to, size, pending());
    return combiner_.write(to, static_cast<const std::byte*>(from), size);
}

void copy_engine::note_range(std::uint64_t to, std::size_t size, bool pending) {
    if (!pending) {
        first_ = to;
        end_ = to;
    }
    wrote_ = true;
    first_ = std::min(first_, to);
    end_ = std::max(end_, to + size);
}

copy_engine::start copy_engine::write_early(std::uint64_t to, const void* from, std::size_t size, order how,
                                            std::uint64_t& mark) {
    const bool full = how != order::due_behind && !combiner_.has_room();
    if (full && !writes_.look(writes_.last()) && !broken()) return start::later;
    if (broken()) return start::refused;
    note_range(to, size, pending());
    const auto* bytes = static_cast<const std::byte*>(from);
    if (!(how == order::any ? combiner_.write_loose(to, bytes, size) : combiner_.write(to, bytes, size)))
        return start::refused;
    mark = mark_of(combiner_.last(), false);
    return start::begun;
}

bool copy_engine::write_last(std::uint64_t to, const void* from, std::size_t size, std::uint64_t after,
                             std::uint64_t& mark) {
    if (broken()) return false;
    const auto* bytes = static_cast<const std::byte*>(from);
    const bool all_there = !combiner_.pending();
    if (after == everything && !all_there && !urgent_.idle()) return false;  // two lanes have no order
    const bool overtakes = after == everything ? all_there : is_urgent(after) || writes_.is_done(job_of(after));
    const bool was_pending = pending();
    if (overtakes && !last_pieces_.write(to, bytes, size)) return false;
    note_range(to, size, was_pending);
    if (!overtakes && !combiner_.write(to, bytes, size)) return false;
    if (!overtakes) combiner_.submit();
    mark = overtakes ? mark_of(urgent_.last(), true) : mark_of(combiner_.last(), false);
    return true;
}

copy_engine::state copy_engine::state_of(std::uint64_t mark) {
    if (is_urgent(mark)) last_pieces_.push();
    if (writes_.idle()) combiner_.submit();
    lane& by = is_urgent(mark) ? urgent_ : writes_;
    if (by.look(job_of(mark))) return state::in_memory;
    return broken() ? state::lost : state::under_way;
}

bool copy_engine::flush() {
    ahead_.settle();
    if (!wrote_) return true;
    wrote_ = false;
    return flush_writes();
}

bool copy_engine::flush_writes() {
    last_pieces_.push();
    const bool there = combiner_.flush();
    return urgent_.wait(urgent_.last()) && !urgent_.broken() && there;
}

bool copy_engine::before_read(std::uint64_t from, std::uint64_t size) {
    if (from >= end_ || from + size <= first_ || !pending()) return true;
    return flush_writes();
}

bool copy_engine::fetch_add(std::uint64_t at, std::uint64_t add, std::uint64_t& previous) {
    job what;
    what.what = action::fetch_add;
    what.memory = at;
    what.operand = add;
    return run_atomic(what, previous);
}

bool copy_engine::compare_swap(std::uint64_t at, std::uint64_t expected, std::uint64_t desired,
                               std::uint64_t& previous) {
    job what;
    what.what = action::compare_swap;
    what.memory = at;
    what.operand = desired;
    what.expected = expected;
    return run_atomic(what, previous);
}

bool copy_engine::run_atomic(const job& what, std::uint64_t& previous) {
    if (!atomics_ || (what.memory & 7) != 0 || !before_read(what.memory, 8)) return false;
    combiner_.submit();  // whose pieces know their numbers
    if (!writes_.wait(writes_.submit(what)) || writes_.broken()) return false;
    previous = writes_.previous();
    return true;
}

}  // namespace accel::softnic::gpu
