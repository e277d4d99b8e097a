// SPDX-License-Identifier: Apache-2.0
#include "gpu/copy_engine.hpp"

#include <algorithm>

namespace accel::softnic::gpu {

copy_engine::copy_engine(lane& writes, lane& reads, std::byte* staging, bool atomics)
    : writes_(writes),
      reads_(reads),
      combiner_(writes, staging),
      ahead_(reads, staging + write_combiner::staging_bytes),
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
    if (!combiner_.pending()) {
        first_ = to;
        end_ = to;
    }
    wrote_ = true;
    first_ = std::min(first_, to);
    end_ = std::max(end_, to + size);
    return combiner_.write(to, static_cast<const std::byte*>(from), size);
}

bool copy_engine::flush() {
    ahead_.settle();
    if (!wrote_) return true;
    wrote_ = false;
    return combiner_.flush();
}

bool copy_engine::before_read(std::uint64_t from, std::uint64_t size) {
    if (from >= end_ || from + size <= first_ || !combiner_.pending()) return true;
    return combiner_.flush();
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
    if (!writes_.wait(writes_.submit(what)) || writes_.broken()) return false;
    previous = writes_.previous();
    return true;
}

}  // namespace accel::softnic::gpu
