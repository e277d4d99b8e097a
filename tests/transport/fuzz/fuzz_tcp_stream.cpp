// SPDX-License-Identifier: Apache-2.0
// The bytes of a tcp data connection, cut into pieces as the input says. Byte 0: which end reads; then for
// each piece its length and the bytes.
#include "backends/tcp/stream_reader.hpp"
#include "fuzz_target.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

namespace {

using namespace accel;
using tests::require;

constexpr std::uint32_t slots = 4;
constexpr std::size_t capacity = 300;

/// Puts as many of `bytes` where the reader wants them as it has room for now.
std::size_t feed(tcp::stream_reader& reader, std::span<const std::uint8_t> bytes) {
    tcp::read_targets targets;
    reader.targets(targets, 1 + bytes.size() % 4);
    require(targets.count >= 1, "there is always a place for the next byte");
    std::size_t put = 0;
    for (std::size_t i = 0; i < targets.count && put < bytes.size(); ++i) {
        const iovec& piece = targets.pieces[i];
        const std::size_t part = std::min(piece.iov_len, bytes.size() - put);
        if (part > 0) std::memcpy(piece.iov_base, bytes.data() + put, part);
        put += part;
    }
    require(put > 0, "the reader takes at least one byte");
    reader.received(put);
    return put;
}

bool lies_in(std::span<const std::byte> part, std::span<const std::byte> whole) {
    return part.empty() || (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

struct reading_end {
    explicit reading_end(core::message_kind kind)
        : kind_(kind), memory_(core::slot_memory::create(slots, capacity).value()), reader_(kind, memory_) {
        if (kind_ == core::message_kind::request) return;
        for (std::uint32_t i = 0; i < slots; ++i) expect(i, i);
    }
    /// Nothing may be written between ranges.
    ~reading_end() {
        for (std::size_t i = 0; i < ranges_.size(); ++i)
            require(torn_[(i + 1) * 20 - 1] == std::byte{0x5a}, "only the ranges are written");
    }
    reading_end(const reading_end&) = delete;
    reading_end& operator=(const reading_end&) = delete;

    /// False once the stream is given up.
    bool take(std::span<const std::uint8_t> piece, std::uint8_t whim) {
        while (!piece.empty()) {
            piece = piece.subspan(feed(reader_, piece));
            if (!drain(whim)) return false;
        }
        return true;
    }

  private:
    bool drain(std::uint8_t whim) {
        for (;;) {
            tcp::arrival got;
            const auto outcome = reader_.next(got);
            if (outcome == tcp::stream_reader::outcome::nothing) break;
            if (outcome != tcp::stream_reader::outcome::message) return false;
            check(got);
            if (kind_ == core::message_kind::request) {
                if (whim % 2 == 0) reader_.consumed(got.header.slot);
            } else if (whim % 3 == 0) {
                expect(got.header.slot, whim);
            }
        }
        if (kind_ == core::message_kind::response && whim % 5 == 1) reader_.redirect(whim % slots);
        return true;
    }
    /// In its slot, in a room, or in ranges.
    void expect(std::uint32_t slot, std::uint32_t how) {
        if (how % 3 == 2)
            return reader_.expect_scattered(slot, 7 + slot, ranges_, ranges_.size() * ranges_.front().size);
        reader_.expect(slot, 7 + slot,
                       how % 3 == 0 ? std::span<std::byte>{} : std::span<std::byte>{own_}.subspan(slot * 50, 40));
    }
    void check(const tcp::arrival& got) {
        require(got.header.slot < slots, "the slot exists");
        require(got.header.kind == kind_, "only the peer's kind of message comes");
        require(got.payload.size() == got.header.length && got.payload.size() <= capacity, "the length fits the slot");
        require(lies_in(got.payload, memory_->room(got.header.slot)) || lies_in(got.payload, own_),
                "the payload lies in its slot or in the room it was directed to");
    }

    core::message_kind kind_;
    std::shared_ptr<core::slot_memory> memory_;
    tcp::stream_reader reader_;
    std::array<std::byte, 400> own_{};
    std::vector<std::byte> torn_ = std::vector<std::byte>(7 * 20, std::byte{0x5a});
    std::vector<core::lent_range> ranges_ = [this] {
        std::vector<core::lent_range> out;
        for (std::size_t at = 0; at < torn_.size(); at += 20) out.push_back({torn_.data() + at, 19, nullptr});
        return out;
    }();
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    reading_end end(input.byte() % 2 == 0 ? core::message_kind::request : core::message_kind::response);
    while (!input.empty()) {
        const std::uint8_t length = input.byte();
        if (!end.take(input.bytes(std::size_t{length} + 1), length)) break;
    }
    return 0;
}
