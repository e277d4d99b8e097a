// SPDX-License-Identifier: Apache-2.0
#include "gpu/write_combiner.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace accel::softnic::gpu {

bool write_combiner::write(std::uint64_t to, const std::byte* from, std::size_t size) {
    const bool continues = count_ != 0 && to == kept(count_ - 1).start + kept(count_ - 1).size;
    if (!continues) submit();
    if (!continues && size <= inline_bytes) {
        job small;
        small.size = static_cast<std::uint32_t>(size);
        small.memory = to;
        small.payload = from;
        if (size == 0) return !lane_.broken();
        bytes_ += size;
        submit(small);
        last_ = lane_.last();
        return !lane_.broken();
    }
    while (size != 0) {
        if (count_ == 0 && !open(to, false)) return false;
        kept(count_ - 1).loose = false;
        const std::size_t part = append(count_ - 1, from, size);
        to += part;
        from += part;
        size -= part;
    }
    if (lane_.idle()) submit();
    return !lane_.broken();
}

bool write_combiner::write_loose(std::uint64_t to, const std::byte* from, std::size_t size) {
    while (size != 0) {
        std::size_t behind = count_;  // of the pieces that end here the newest: marks of a message do not go back
        while (behind != 0 && to != kept(behind - 1).start + kept(behind - 1).size) --behind;
        if (behind == 0 && count_ == most_open) submit_oldest();
        if (behind == 0 && !open(to, true)) return false;
        const std::size_t part = append((behind == 0 ? count_ : behind) - 1, from, size);
        to += part;
        from += part;
        size -= part;
    }
    if (lane_.idle()) submit();
    return !lane_.broken();
}

bool write_combiner::has_room() {
    const std::uint32_t done = lane_.next() - 1;
    const std::uint32_t oldest = lane_.last() - lane_depth;  // what is older has lost its place
    if (static_cast<std::int32_t>(oldest - counted_) > 0) counted_ = oldest;
    while (counted_ != done) bytes_ -= std::exchange(bytes_of_[++counted_ % lane_depth], 0);
    return bytes_ < enough_bytes && lane_.outstanding() + count_ < buffers - 1;
}

bool write_combiner::flush() {
    submit();
    return lane_.wait(lane_.last()) && !lane_.broken();
}

std::size_t write_combiner::append(std::size_t at, const std::byte* from, std::size_t size) {
    piece& to = kept(at);
    const std::size_t part = std::min(size, buffer_bytes - to.size);
    std::memcpy(buffer_of(to) + to.size, from, part);
    to.size += part;
    bytes_ += part;
    last_ = lane_.last() + 1 + static_cast<std::uint32_t>(at);
    if (to.size == buffer_bytes)
        for (std::size_t older = 0; older <= at; ++older) submit_oldest();
    return part;
}

bool write_combiner::open(std::uint64_t to, bool loose) {
    kept(count_++) = {to, 0, next_buffer_, loose};
    const bool free = lane_.wait(used_by_[next_buffer_]);
    next_buffer_ = (next_buffer_ + 1) % buffers;
    return free;
}

void write_combiner::submit() {
    while (count_ != 0) submit_oldest();
}

void write_combiner::submit(const job& what) {
    static_cast<void>(lane_.submit(what));
    bytes_ -= std::exchange(bytes_of_[lane_.last() % lane_depth], what.size);
}

void write_combiner::submit_oldest() {
    const piece& oldest = kept(0);
    job what;
    what.size = static_cast<std::uint32_t>(oldest.size);
    what.memory = oldest.start;
    what.host = reinterpret_cast<std::uint64_t>(buffer_of(oldest));
    what.loose = oldest.loose;
    submit(what);
    used_by_[oldest.buffer] = lane_.last();
    first_ = (first_ + 1) % most_open;
    --count_;
}

}  // namespace accel::softnic::gpu
