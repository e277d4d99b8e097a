// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/lent_range.hpp"
#include "core/protocol.hpp"
#include "core/slot_memory.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <sys/uio.h>

namespace accel::tcp {

/// A message that is complete in its slot (or in the memory that was expected to take it).
struct arrival {
    core::slot_header header;      ///< as sent, but for the `fragmented` flag
    std::span<std::byte> payload;  ///< where it went to a list of ranges: the slot's bytes, which say nothing
};

/// Where the next bytes go, in order.
struct read_targets {
    static constexpr std::size_t max_pieces = 1'024;                   ///< IOV_MAX of Linux
    static constexpr std::size_t enough_bytes = std::size_t{1} << 20;  ///< no range begins behind them

    /// Left uninitialised: they are made for each read.
    std::array<iovec, max_pieces> pieces;
    std::size_t count = 0;
    std::size_t bytes = 0;

    void add(void* to, std::size_t size) noexcept {
        pieces[count++] = {to, size};
        bytes += size;
    }
};

/// Parses the bytes of one connection into messages in slots, and refuses what no correct peer sends. It
/// reads no socket: ask `targets` where the next bytes go, put some there, call `received`, then call `next`
/// until it has nothing. Headers and the first bytes of payloads pass through a staging buffer; the rest of a
/// payload goes straight to its place.
class stream_reader {
  public:
    static constexpr std::size_t staging_bytes = 4096 + 256;

    enum class outcome : std::uint8_t { nothing, message, goodbye, violation };

    /// `kind`: the only kind the peer may send. Requests may come into every slot, responses only where one
    /// is expected.
    stream_reader(core::message_kind kind, std::shared_ptr<core::slot_memory> slots);

    /// Client: expects a response of this generation. It goes into `into`, or into its slot if that is empty,
    /// and is never longer than a slot.
    void expect(std::uint32_t slot, std::uint32_t generation, std::span<std::byte> into) noexcept;
    /// The same into these ranges, of which there are some, one behind the other: `room` bytes together. The list stays
    /// until the response is complete or `redirect`. Why a call failed goes to the slot.
    void expect_scattered(std::uint32_t slot, std::uint32_t generation, std::span<const core::lent_range> ranges,
                          std::uint64_t room) noexcept;
    /// Client: the response goes to its slot instead, with the bytes that have already come.
    void redirect(std::uint32_t slot) noexcept;
    /// Server: the slot may take its next request.
    void consumed(std::uint32_t slot) noexcept;

    /// Where the next bytes go, in at most so many pieces; never nowhere. Only after `next` said `nothing`.
    void targets(read_targets& out, std::size_t most = read_targets::max_pieces) noexcept;
    /// `count` bytes lie in the pieces that `targets` named.
    void received(std::size_t count) noexcept;
    /// `goodbye` (from a client) and `violation` are final: the bytes that follow have no meaning.
    [[nodiscard]] outcome next(arrival& out) noexcept;

    /// True while bytes of an incomplete message are held.
    [[nodiscard]] bool mid_message() const noexcept { return staged() > 0 || open_messages_ > 0; }

  private:
    enum class phase : std::uint8_t { closed, open, receiving };
    enum class section : std::uint8_t { header, extension, payload };
    enum class step : std::uint8_t { more, starved, complete, goodbye, violation };

    struct place {
        std::byte* into = nullptr;  ///< null: the ranges, or else the slot
        std::span<const core::lent_range> ranges;
        core::range_cursor at;  ///< in `ranges`: behind what was received
        std::uint64_t room = 0;
        std::uint64_t received = 0;
        std::uint64_t length = 0;
        std::uint32_t generation = 0;
        phase state = phase::closed;
        bool fragmented = false;
    };

    [[nodiscard]] std::size_t staged() const noexcept { return end_ - begin_; }
    [[nodiscard]] step read_header() noexcept;
    [[nodiscard]] step start_message() noexcept;
    [[nodiscard]] step start_fragment() noexcept;
    [[nodiscard]] step after_extension() noexcept;
    [[nodiscard]] step after_payload() noexcept;
    void aim(std::uint64_t length) noexcept;
    void aim_at_ranges(read_targets& out, std::size_t most) const noexcept;
    void advance(std::size_t count) noexcept;
    void unstage(std::size_t count) noexcept;
    void finish(arrival& out) noexcept;

    core::message_kind kind_;
    std::shared_ptr<core::slot_memory> slots_;
    std::vector<place> places_;
    section section_ = section::header;
    std::uint32_t current_ = 0;    ///< slot of the record being received
    std::byte* target_ = nullptr;  ///< where its next byte goes; null: into the ranges of its place
    std::size_t left_ = 0;         ///< bytes of the section still to come
    std::uint32_t open_messages_ = 0;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    std::array<std::byte, staging_bytes> staging_;
};

}  // namespace accel::tcp
