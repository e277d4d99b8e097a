// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/send_queue.hpp"
#include "backends/tcp/wire.hpp"
#include "patience.hpp"
#include "tcp_bytes.hpp"
#include "tcp_pair.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// The queue of messages to send, without sockets, against a list of the records that are to leave.
namespace accel::tcp {
namespace {

using namespace testing;
using core::fragment_header;

constexpr std::uint32_t queue_slots = 80;  // more than a batch has pieces for short messages
constexpr std::size_t fragments_of_largest = send_batch::max_fragments + 2;
constexpr std::size_t longest = fragments_of_largest * fragment_bytes;
constexpr std::size_t no_limit = 64 << 20;

/// A message on its way, as it was given.
struct queued_message {
    std::span<const std::byte> payload;
    bytes head;  ///< header and extensions
    std::optional<bytes> lent;
    std::unique_ptr<torn_memory> ranges;
    std::size_t sent = 0;  ///< payload bytes of finished records
    bool pinned = false;
    bool started = false;

    [[nodiscard]] bool cut() const { return payload.size() > fragment_bytes; }
    [[nodiscard]] bool lends() const { return lent.has_value() || ranges != nullptr; }
    [[nodiscard]] std::size_t body() const { return std::min(payload.size() - sent, fragment_bytes); }
    [[nodiscard]] bytes record_head(std::uint32_t slot) const {
        bytes out = started ? bytes{} : head;
        slot_header first;
        std::memcpy(&first, head.data(), sizeof first);
        if (cut()) append(out, fragment(slot, first.generation, static_cast<std::uint32_t>(body())));
        return out;
    }
    void end_record() {
        sent += body();
        started = true;
    }
};

/// The bytes that leave next, compared piece by piece.
class expected_bytes {
  public:
    void add(bytes head) { spans_.emplace_back(heads_.emplace_back(std::move(head))); }
    void add(std::span<const std::byte> body) { spans_.push_back(body); }
    void skip(std::size_t count) {
        while (count > 0) count -= take(count).size();
    }
    [[nodiscard]] bool begins_with(const std::byte* data, std::size_t size) {
        while (size > 0) {
            if (at_ == spans_.size()) return false;
            const auto next = take(size);
            if (!next.empty() && std::memcmp(next.data(), data, next.size()) != 0) return false;
            data += next.size();
            size -= next.size();
        }
        return true;
    }

  private:
    std::span<const std::byte> take(std::size_t most) {
        std::span<const std::byte>& first = spans_[at_];
        const auto out = first.first(std::min(most, first.size()));
        first = first.subspan(out.size());
        if (first.empty()) ++at_;
        return out;
    }
    std::deque<bytes> heads_;
    std::vector<std::span<const std::byte>> spans_;
    std::size_t at_ = 0;
};

class queue_game {
  public:
    queue_game(std::uint32_t seed, std::shared_ptr<core::slot_memory> memory, const bytes& pool)
        : random_(seed), memory_(std::move(memory)), pool_(pool), in_use_(pick(3) == 0 ? 1 + pick(2) : queue_slots) {}

    void play(int steps) {
        for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
            const std::uint32_t slot = pick(in_use_);
            if (pick(400) == 0) clear();
            if (pick(2) == 0) push(slot);
            if (pick(4) == 0) unlend(slot);
            if (!turns_.empty() && pick(sends_after_) == 0) send();
            check(slot);
        }
        while (!turns_.empty() && !::testing::Test::HasFailure()) send();
        EXPECT_TRUE(queue_.empty());
    }

  private:
    [[nodiscard]] std::uint32_t pick(std::size_t below) { return static_cast<std::uint32_t>(random_() % below); }

    [[nodiscard]] std::size_t any_size() {
        if (mostly_cut_) return in_use_ > 2 ? fragment_bytes + pick(3) : longest - pick(2) * fragment_bytes;
        switch (pick(60)) {
            case 0:
                return pick(8) == 0 ? longest - pick(2) * fragment_bytes : 300;
            case 1:
            case 2:
            case 3:
                return 2 * fragment_bytes - 1 + pick(3);
            case 4:
            case 5:
            case 6:
            case 7:
            case 8:
            case 9:
                return fragment_bytes + pick(3);
            default:
                return pick(3) == 0 ? 0 : pick(300);
        }
    }
    void push(std::uint32_t slot) {
        if (messages_[slot]) return;
        queued_message& made = messages_[slot].emplace();
        made.payload = std::span(pool_).subspan(pick(100), any_size());
        const std::size_t size = made.payload.size();
        made.pinned = pick(4) == 0;
        slot_header h = request(slot, pick(1'000), size);
        h.extension_bytes = static_cast<std::uint16_t>(8 * pick(4));
        const bytes extensions = random_bytes(h.extension_bytes, pick(1'000));
        std::byte* const header = memory_->header(slot);
        std::memcpy(header, &h, sizeof h);
        if (!extensions.empty()) std::memcpy(header - extensions.size(), extensions.data(), extensions.size());
        append(made.head, made.cut() ? fragmented(h) : h);
        append(made.head, extensions);
        const auto kind = plain_ ? 2 : pick(3);
        if (kind == 0 && size > 0) {
            // Some have more of them than one batch has pieces, some fill it to the last one with their fragments.
            const std::size_t some = pick(2) == 0 ? 1'024 + pick(16) : size / (1 + pick(1'500)) + 1;
            const std::size_t each = size < 4'000 ? 1 + pick(3) : some;
            made.ranges = std::make_unique<torn_memory>((size + each - 1) / each, each);
            core::range_cursor{}.copy_in(made.ranges->ranges(), made.payload.data(), size);
            queue_.push_gathered(slot, header, made.ranges->ranges(), size, made.pinned);
        } else if (kind == 1) {
            made.lent.emplace(made.payload.begin(), made.payload.end());
            queue_.push(slot, header, *made.lent, true, made.pinned);
        } else {
            made.pinned = false;
            if (size > 0) std::memcpy(memory_->payload(slot), made.payload.data(), size);
            queue_.push(slot, header, {memory_->payload(slot), size}, false, false);
        }
        turns_.push_back(slot);
    }
    /// The rest is copied, and nobody reads what was lent any more.
    void unlend(std::uint32_t slot) {
        queue_.unlend(slot, memory_->payload(slot));
        if (!messages_[slot] || !messages_[slot]->lends()) return;
        queued_message& of = *messages_[slot];
        of.pinned = false;
        if (of.lent && !of.lent->empty()) std::memset(of.lent->data(), 0xee, of.lent->size());
        of.lent.reset();
        of.ranges.reset();
    }
    void clear() {
        queue_.clear();
        for (auto& each : messages_) each.reset();
        turns_.clear();
        record_sent_ = 0;
    }
    void check(std::uint32_t slot) {
        EXPECT_EQ(queue_.empty(), turns_.empty());
        EXPECT_EQ(queue_.front(), turns_.empty() ? send_queue::none : turns_.front());
        EXPECT_EQ(queue_.mid_record(), record_sent_ > 0);
        EXPECT_EQ(queue_.busy(slot), messages_[slot].has_value());
        EXPECT_EQ(queue_.lends(slot), messages_[slot] && messages_[slot]->lends());
    }

    /// Each message's next record, or all of a message that is alone.
    [[nodiscard]] expected_bytes upcoming() const {
        expected_bytes out;
        for (const std::uint32_t slot : turns_) {
            const queued_message& of = *messages_[slot];
            std::size_t end = of.sent + of.body();
            out.add(of.record_head(slot));
            out.add(of.payload.subspan(of.sent, of.body()));
            if (turns_.size() > 1) continue;
            while (end < of.payload.size()) {
                const std::size_t size = std::min(of.payload.size() - end, fragment_bytes);
                slot_header first;
                std::memcpy(&first, of.head.data(), sizeof first);
                bytes head;
                append(head, fragment(slot, first.generation, static_cast<std::uint32_t>(size)));
                out.add(std::move(head));
                out.add(of.payload.subspan(end, size));
                end += size;
            }
        }
        out.skip(record_sent_);
        return out;
    }

    void send() {
        constexpr std::size_t limits[] = {1, 1'000, 2 * fragment_bytes, 1 << 20, no_limit};
        const std::size_t most = limits[pick(std::size(limits))];
        send_batch batch;
        queue_.plan(batch, most);
        std::size_t total = 0;
        expected_bytes expected = upcoming();
        for (std::size_t i = 0; i < batch.count; ++i) {
            const iovec& piece = batch.pieces[i];
            ASSERT_TRUE(expected.begins_with(static_cast<const std::byte*>(piece.iov_base), piece.iov_len));
            total += piece.iov_len;
        }
        ASSERT_EQ(total, batch.bytes);
        ASSERT_GT(total, 0U);
        const queued_message& first = *messages_[turns_.front()];
        if (first.pinned)
            check_pinned(batch, first);
        else
            check_end(batch, first, most);
        book(pick(3) == 0 ? 1 + pick(total) : total);
    }
    /// Header and payload apart: the OS reads pinned bytes later.
    void check_pinned(const send_batch& batch, const queued_message& first) {
        const std::size_t head = first.record_head(turns_.front()).size();
        EXPECT_EQ(batch.pinned, record_sent_ >= head);
        EXPECT_EQ(batch.more, record_sent_ < head);
        const std::size_t rest = batch.pinned ? head + first.body() - record_sent_ : head - record_sent_;
        EXPECT_LE(batch.bytes, rest);
        EXPECT_TRUE(batch.bytes == rest || (first.ranges != nullptr && batch.count == send_batch::max_pieces));
    }
    /// A batch ends with the queue, with its room, or before what goes out in another way.
    void check_end(const send_batch& batch, const queued_message& first, std::size_t most) {
        EXPECT_FALSE(batch.pinned || batch.more);
        const bool gathered = first.ranges != nullptr;
        const std::size_t most_pieces = gathered ? send_batch::max_pieces : send_batch::max_small_pieces;
        ASSERT_LE(batch.count, most_pieces);
        ASSERT_LE(batch.fragment_count, send_batch::max_fragments);
        const std::size_t end = record_sent_ + batch.bytes;
        std::size_t passed = 0;
        std::size_t records = 0;
        std::size_t last = 0;
        bool alone_left = false;
        if (turns_.size() == 1) {
            queued_message at;
            at.payload = first.payload;
            at.head = first.head;
            at.sent = first.sent;
            at.started = first.started;
            do {
                last = at.record_head(turns_.front()).size() + at.body();
                passed += last;
                at.end_record();
                ++records;
            } while (passed < end && at.sent < at.payload.size());
            alone_left = at.sent < at.payload.size();
        } else {
            while (passed < end) {
                const std::uint32_t slot = turns_[records++];
                last = messages_[slot]->record_head(slot).size() + messages_[slot]->body();
                passed += last;
            }
        }
        if (passed != end) {
            EXPECT_TRUE(gathered && batch.count == send_batch::max_pieces) << "a record was cut off";
            return;
        }
        // What was planned before the last record left room for it.
        const std::size_t skipped = gathered ? batch.bytes : end;  // a gathered record begins behind what has left
        EXPECT_TRUE(records == 1 || skipped - last < most);
        const bool full = batch.count + 4 > most_pieces || batch.fragment_count == send_batch::max_fragments ||
                          skipped >= most || (record_sent_ > 0 && batch.count + 7 > most_pieces);
        if (turns_.size() == 1) {
            EXPECT_TRUE(!alone_left || full) << records << " records";
        } else if (gathered) {
            EXPECT_EQ(records, 1U);
        } else if (records < turns_.size()) {
            const queued_message& next = *messages_[turns_[records]];
            EXPECT_TRUE(full || next.pinned || next.ranges != nullptr) << records << " records";
        }
    }
    void book(std::size_t count) {
        std::size_t left = count;
        while (left > 0) {
            std::optional<std::uint32_t> finished;
            while (left > 0 && !finished) {
                const std::uint32_t slot = turns_.front();
                queued_message& of = *messages_[slot];
                const std::size_t record = of.record_head(slot).size() + of.body();
                const std::size_t step = std::min(left, record - record_sent_);
                left -= step;
                record_sent_ += step;
                if (record_sent_ < record) break;
                record_sent_ = 0;
                of.end_record();
                turns_.pop_front();
                if (of.sent < of.payload.size())
                    turns_.push_back(slot);
                else
                    finished = slot;
            }
            EXPECT_EQ(queue_.book(count), finished.value_or(send_queue::none));
            EXPECT_EQ(count, left);
            if (finished) messages_[*finished].reset();
        }
    }

    std::mt19937 random_;
    std::shared_ptr<core::slot_memory> memory_;
    const bytes& pool_;  ///< what payloads are cut from
    std::uint32_t in_use_;
    bool mostly_cut_ = pick(3) == 0;
    bool plain_ = pick(4) == 0;
    std::uint32_t sends_after_ = pick(2) == 0 ? 3 : 100;  ///< steps
    send_queue queue_{queue_slots};
    std::array<std::optional<queued_message>, queue_slots> messages_;
    std::deque<std::uint32_t> turns_;
    std::size_t record_sent_ = 0;
};

TEST(tcp_queue, messages_leave_in_turn_and_in_batches_as_full_as_they_may_be) {
    const auto memory = make_slots(queue_slots, longest);
    const bytes pool = random_bytes(longest + 100, 1);
    const auto seeds = static_cast<std::uint32_t>(tests::effort(200));
    for (std::uint32_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        queue_game(seed, memory, pool).play(400);
    }
}

}  // namespace
}  // namespace accel::tcp
