// SPDX-License-Identifier: Apache-2.0
#include "gpu/read_ahead.hpp"

#include <algorithm>
#include <cstring>

namespace accel::softnic::gpu {

read_ahead::read_ahead(lane& by, std::byte* staging) : lane_(by) {
    const auto next = [&staging] {
        std::byte* at = staging;
        staging += piece_bytes + 64;
        return at;
    };
    plain_.at = next();
    for (stream& each : streams_)
        for (piece& part : each.pieces) part.at = next();
}

bool read_ahead::read(std::byte* to, std::uint64_t from, std::size_t size) {
    while (size != 0) {
        const std::size_t part = std::min(size, piece_bytes);
        fetch(plain_, from, part);
        if (!lane_.wait(plain_.fetched_by)) return false;
        std::memcpy(to, plain_.at + (from & 15), part);
        to += part;
        from += part;
        size -= part;
    }
    return true;
}

bool read_ahead::read_part(std::byte* to, std::uint64_t from, std::size_t size, std::uint64_t message,
                           std::uint64_t following) {
    stream& in = stream_of(message);
    if (following == 0 && in.message != message) return read(to, from, size);
    in.message = message;
    in.used = ++uses_;
    const std::uint64_t end = from + size + following;
    while (size != 0) {
        piece& found = piece_at(in, from, end - from);
        if (!lane_.wait(found.fetched_by)) return false;
        const std::uint64_t offset = from - found.start;
        const std::size_t part = std::min<std::size_t>(size, found.size - offset);
        std::memcpy(to, found.at + (found.start & 15) + offset, part);
        to += part;
        from += part;
        size -= part;
        const std::uint64_t next = found.start + found.size;
        piece& other = &found == in.pieces.data() ? in.pieces[1] : in.pieces[0];
        if (next < end && !other.contains(next)) fetch(other, next, end - next);
    }
    return true;
}

/// That of this message, or else the one unused for longest, with nothing in it.
read_ahead::stream& read_ahead::stream_of(std::uint64_t message) {
    stream* oldest = streams_.data();
    for (stream& each : streams_) {
        if (each.message == message) return each;
        if (each.used < oldest->used) oldest = &each;
    }
    oldest->message = 0;
    for (piece& part : oldest->pieces) part.size = 0;
    return *oldest;
}

read_ahead::piece& read_ahead::piece_at(stream& in, std::uint64_t address, std::uint64_t left) {
    for (piece& part : in.pieces)
        if (part.contains(address)) return part;
    for (piece& part : in.pieces) part.size = 0;  // the message went back
    fetch(in.pieces[0], address, std::min<std::uint64_t>(left, first_piece_bytes));
    return in.pieces[0];
}

void read_ahead::fetch(piece& into, std::uint64_t from, std::uint64_t size) {
    into.size = 0;
    if (!lane_.wait(into.fetched_by)) return;
    into.start = from;
    into.size = std::min<std::uint64_t>(size, piece_bytes);
    job part;
    part.what = action::read;
    part.size = static_cast<std::uint32_t>(into.size);
    part.memory = from;
    part.host = reinterpret_cast<std::uint64_t>(into.at + (from & 15));
    into.fetched_by = lane_.submit(part);
}

}  // namespace accel::softnic::gpu
