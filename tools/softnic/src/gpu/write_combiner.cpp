// SPDX-License-Identifier: Apache-2.0
#include "gpu/write_combiner.hpp"

#include <algorithm>
#include <cstring>

namespace accel::softnic::gpu {

bool write_combiner::write(std::uint64_t to, const std::byte* from, std::size_t size) {
    const bool continues = size_ != 0 && to == start_ + size_;
    if (!continues) submit();
    if (!continues && size <= inline_bytes) {
        job small;
        small.size = static_cast<std::uint32_t>(size);
        small.memory = to;
        small.payload = from;
        if (size != 0) lane_.submit(small);
        return !lane_.broken();
    }
    while (size != 0) {
        if (size_ == 0 && !open(to)) return false;
        const std::size_t part = std::min(size, buffer_bytes - size_);
        std::memcpy(buffer() + size_, from, part);
        size_ += part;
        to += part;
        from += part;
        size -= part;
        if (size_ == buffer_bytes) submit();
    }
    if (size_ >= enough_bytes || lane_.idle()) submit();
    return !lane_.broken();
}

bool write_combiner::flush() {
    submit();
    return lane_.wait(lane_.last()) && !lane_.broken();
}

bool write_combiner::open(std::uint64_t to) {
    current_ = (current_ + 1) % buffers;
    start_ = to;
    return lane_.wait(used_by_[current_]);
}

void write_combiner::submit() {
    if (size_ == 0) return;
    job piece;
    piece.size = static_cast<std::uint32_t>(size_);
    piece.memory = start_;
    piece.host = reinterpret_cast<std::uint64_t>(buffer());
    used_by_[current_] = lane_.submit(piece);
    size_ = 0;
}

}  // namespace accel::softnic::gpu
