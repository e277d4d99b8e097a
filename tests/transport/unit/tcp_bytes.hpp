// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/tcp/stream_reader.hpp"
#include "backends/tcp/wire.hpp"
#include "core/lent_range.hpp"
#include "tcp_pair.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

/// The bytes of a tcp data connection, made by hand, and what a reader makes of them.
namespace accel::tcp::testing {

using core::fragment_header;
using bytes = std::vector<std::byte>;

struct received_message {
    slot_header header;
    bytes payload;
};

struct feed_result {
    std::vector<received_message> messages;
    bool violation = false;
    bool goodbye = false;
};

/// Feeds at most `chunk` bytes a time, as a socket would.
inline feed_result feed(stream_reader& reader, std::span<const std::byte> stream, std::size_t chunk,
                        bool consume = true, std::size_t most_pieces = read_targets::max_pieces) {
    feed_result out;
    while (!stream.empty()) {
        read_targets next;
        reader.targets(next, most_pieces);
        std::size_t taken = 0;
        for (std::size_t i = 0; i < next.count && taken < std::min(chunk, stream.size()); ++i) {
            const std::size_t part = std::min({next.pieces[i].iov_len, chunk - taken, stream.size() - taken});
            std::memcpy(next.pieces[i].iov_base, stream.data() + taken, part);
            taken += part;
        }
        EXPECT_GT(taken, 0U);
        reader.received(taken);
        stream = stream.subspan(taken);
        arrival message;
        for (;;) {
            const auto result = reader.next(message);
            if (result == stream_reader::outcome::violation || result == stream_reader::outcome::goodbye) {
                (result == stream_reader::outcome::goodbye ? out.goodbye : out.violation) = true;
                return out;
            }
            if (result == stream_reader::outcome::nothing) break;
            out.messages.push_back({message.header, {message.payload.begin(), message.payload.end()}});
            if (consume) reader.consumed(message.header.slot);
        }
    }
    return out;
}

template <class Layout>
void append(bytes& stream, const Layout& layout) {
    const auto* from = reinterpret_cast<const std::byte*>(&layout);
    stream.insert(stream.end(), from, from + sizeof layout);
}

inline void append(bytes& stream, const bytes& more) {
    stream.insert(stream.end(), more.begin(), more.end());
}

inline slot_header request(std::uint32_t slot, std::uint32_t generation, std::uint64_t length) {
    slot_header h;
    h.slot = slot;
    h.generation = generation;
    h.length = length;
    return h;
}

inline bytes whole(std::uint32_t slot, std::uint32_t generation, const bytes& payload) {
    bytes stream;
    append(stream, request(slot, generation, payload.size()));
    append(stream, payload);
    return stream;
}

inline fragment_header fragment(std::uint32_t slot, std::uint32_t generation, std::uint32_t length) {
    fragment_header f;
    f.slot = slot;
    f.generation = generation;
    f.length = length;
    return f;
}

inline slot_header fragmented(slot_header h) {
    h.flags |= core::header_flag::fragmented;
    return h;
}

/// Ranges with as many bytes between them, which nobody may write.
class torn_memory {
  public:
    torn_memory(std::size_t count, std::size_t each) : bytes_(2 * count * each, gap), each_(each) {
        for (std::size_t i = 0; i < count; ++i) ranges_.push_back({bytes_.data() + 2 * i * each, each, some_region()});
    }
    [[nodiscard]] std::span<const core::lent_range> ranges() const { return ranges_; }
    [[nodiscard]] std::size_t size() const { return ranges_.size() * each_; }
    [[nodiscard]] bytes joined() const {
        bytes out;
        for (const core::lent_range& each : ranges_) out.insert(out.end(), each.data, each.data + each.size);
        return out;
    }
    /// True: the first bytes are these, and all others as they were.
    [[nodiscard]] bool has(const bytes& first) const {
        const bytes all = joined();
        const bool rest = std::all_of(all.begin() + static_cast<std::ptrdiff_t>(first.size()), all.end(),
                                      [](std::byte each) { return each == gap; });
        return rest && same(std::span(all).first(first.size()), first) && gaps();
    }
    void fill(std::byte with) { std::fill(bytes_.begin(), bytes_.end(), with); }
    [[nodiscard]] bool all(std::byte with) const {
        return std::all_of(bytes_.begin(), bytes_.end(), [with](std::byte each) { return each == with; });
    }

  private:
    static constexpr std::byte gap{0xa5};
    [[nodiscard]] bool gaps() const {
        for (const core::lent_range& each : ranges_)
            for (std::size_t i = each_; i < 2 * each_; ++i)
                if (each.data[i] != gap) return false;
        return true;
    }
    bytes bytes_;
    std::size_t each_;
    std::vector<core::lent_range> ranges_;
};

}  // namespace accel::tcp::testing
