// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/stream_reader.hpp"
#include "backends/tcp/wire.hpp"
#include "tcp_bytes.hpp"
#include "tcp_pair.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// The parser, without sockets.
namespace accel::tcp {
namespace {

using namespace testing;
using core::fragment_header;

constexpr std::uint32_t slots = 4;
constexpr std::size_t capacity = 2000;

/// What a slot's next message is like, and how far it has come.
struct in_slot {
    enum class phase { idle, open, begun, written };
    phase now = phase::idle;
    std::uint32_t generation = 0;
    std::uint64_t room = capacity;      ///< the longest payload that may come
    std::unique_ptr<torn_memory> into;  ///< none: it goes to the slot
    bool scattered = false;
    bool given_up = false;
    slot_header header;
    bytes extension;
    bytes payload;
    std::size_t left = 0;  ///< of the payload, to be written into the stream
};

/// A record that no correct peer sends while a slot is in that phase.
struct offence {
    const char* name;
    in_slot::phase when;
    void (*spoil)(slot_header&, const in_slot&);               ///< a message of one byte
    void (*spoil_fragment)(fragment_header&, const in_slot&);  ///< the next byte of the slot's message
};

using phase = in_slot::phase;
constexpr offence offences_of_all[] = {
    {"another version", phase::open, [](slot_header& h, const in_slot&) { h.version = 2; }, nullptr},
    {"a kind that is not known", phase::open, [](slot_header& h, const in_slot&) { h.kind = message_kind{9}; },
     nullptr},
    {"the kind of the other end", phase::open,
     [](slot_header& h, const in_slot&) {
         h.kind = h.kind == message_kind::request ? message_kind::response : message_kind::request;
     },
     nullptr},
    {"a slot beyond the last", phase::open, [](slot_header& h, const in_slot&) { h.slot = slots; }, nullptr},
    {"a message longer than its room", phase::open, [](slot_header& h, const in_slot& at) { h.length = at.room + 1; },
     nullptr},
    {"half an extension", phase::open, [](slot_header& h, const in_slot&) { h.extension_bytes = 4; }, nullptr},
    {"extensions longer than their room", phase::open, [](slot_header& h, const in_slot&) { h.extension_bytes = 200; },
     nullptr},
    {"fragments of nothing", phase::open,
     [](slot_header& h, const in_slot&) {
         h.length = 0;
         h.flags = core::header_flag::fragmented;
     },
     nullptr},
    {"both flags of parts", phase::open, [](slot_header& h, const in_slot&) { h.flags = core::header_flag::of_parts; },
     nullptr},
    {"a message into a busy slot", phase::idle, [](slot_header&, const in_slot&) {}, nullptr},
    {"a message into a busy slot", phase::begun, [](slot_header&, const in_slot&) {}, nullptr},
    {"a fragment of no message", phase::open, nullptr, [](fragment_header&, const in_slot&) {}},
    {"a fragment behind its message", phase::idle, nullptr, [](fragment_header&, const in_slot&) {}},
    {"a fragment of another version", phase::begun, nullptr, [](fragment_header& f, const in_slot&) { f.version = 2; }},
    {"a fragment with more fields", phase::begun, nullptr, [](fragment_header& f, const in_slot&) { f.reserved = 1; }},
    {"a fragment of another message", phase::begun, nullptr,
     [](fragment_header& f, const in_slot&) { f.generation += 1; }},
    {"an empty fragment", phase::begun, nullptr, [](fragment_header& f, const in_slot&) { f.length = 0; }},
    {"a fragment beyond its message", phase::begun, nullptr,
     [](fragment_header& f, const in_slot& at) { f.length = static_cast<std::uint32_t>(at.left + 1); }},
    {"a fragment of a slot beyond the last", phase::begun, nullptr,
     [](fragment_header& f, const in_slot&) { f.slot = slots; }},
    {"half a goodbye", phase::open, nullptr,
     [](fragment_header& f, const in_slot&) {
         f = make_goodbye();
         f.length = 1;
     }},
};
constexpr offence offences_of_clients[] = {
    {"room for a part, with bytes", phase::open,
     [](slot_header& h, const in_slot&) { h.flags = core::header_flag::more; }, nullptr},
};
constexpr offence offences_of_servers[] = {
    {"a part of a request", phase::open, [](slot_header& h, const in_slot&) { h.flags = core::header_flag::parts; },
     nullptr},
    {"an answer to another call", phase::open, [](slot_header& h, const in_slot&) { h.generation += 1; }, nullptr},
    {"a goodbye", phase::open, nullptr, [](fragment_header& f, const in_slot&) { f = make_goodbye(); }},
};

/// One reader, and the stream of its peer: messages in records of any size in any order, cut anywhere, while the
/// reader's owner expects, takes and gives up.
class stream_game {
  public:
    stream_game(message_kind kind, std::uint32_t seed)
        : kind_(kind), random_(seed + 1), memory_(make_slots(slots, capacity)), reader_(kind, memory_) {
        for (in_slot& each : at_) each.now = kind == message_kind::request ? phase::open : phase::idle;
    }
    void play(int steps) {
        for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) step();
        pass(left());
        EXPECT_TRUE(order_.empty()) << "a message did not arrive";
    }
    /// Its peer goes too far, and the reader need not see more than the header. False: no slot is in that phase.
    [[nodiscard]] bool refuses(const offence& what) {
        const auto fits = std::ranges::find(at_, what.when, &in_slot::now);
        if (fits == at_.end()) return false;
        const auto slot = static_cast<std::uint32_t>(fits - at_.begin());
        bytes stream;
        if (what.spoil != nullptr) {
            slot_header h = request(slot, fits->generation, 1);
            h.kind = kind_;
            what.spoil(h, *fits);
            append(stream, h);
        } else {
            fragment_header f = fragment(slot, fits->generation, 1);
            what.spoil_fragment(f, *fits);
            append(stream, f);
        }
        const feed_result got = feed(reader_, stream, 1 + pick(200), false);
        EXPECT_TRUE(got.violation && got.messages.empty()) << what.name;
        return true;
    }
    [[nodiscard]] bool says_goodbye() {
        bytes last;
        append(last, make_goodbye());
        const feed_result got = feed(reader_, last, 1 + pick(20));
        return got.goodbye && got.messages.empty();
    }

  private:
    [[nodiscard]] std::uint32_t pick(std::size_t below) { return static_cast<std::uint32_t>(random_() % below); }
    [[nodiscard]] std::size_t left() const { return stream_.size() - passed_; }

    void step() {
        const std::uint32_t slot = pick(slots);
        in_slot& at = at_[slot];
        if (at.now == phase::begun) write_fragment(slot);
        if (at.now == phase::open) begin(slot);
        if (at.now == phase::idle) kind_ == message_kind::request ? consume(slot) : expect(slot);
        if (kind_ == message_kind::response && pick(4) == 0) give_up(pick(slots));
        if (pick(3) != 0) pass(pick(4) == 0 ? left() : 1 + pick(500));
    }
    void consume(std::uint32_t slot) {
        reader_.consumed(slot);
        at_[slot].now = phase::open;
    }
    void expect(std::uint32_t slot) {
        in_slot& at = at_[slot];
        at = {};
        at.generation = pick(1000);
        at.scattered = pick(3) == 0;
        // Sometimes more of them than one read may name.
        if (at.scattered)
            at.into = pick(10) == 0 ? std::make_unique<torn_memory>(read_targets::max_pieces + pick(100), 1)
                                    : std::make_unique<torn_memory>(1 + pick(40), 1 + pick(40));
        if (!at.scattered && pick(2) == 0) at.into = std::make_unique<torn_memory>(1, 1 + pick(capacity));
        if (at.into != nullptr) at.room = at.into->size();
        const std::span<std::byte> whole =
            at.into == nullptr ? std::span<std::byte>{} : std::span(at.into->ranges()[0].data, at.room);
        at.scattered ? reader_.expect_scattered(slot, at.generation, at.into->ranges(), at.room)
                     : reader_.expect(slot, at.generation, whole);
        std::ranges::fill(memory_->room(slot), std::byte{0x77});
        at.now = phase::open;
    }
    /// What has come is not lost, and no more of it goes to the memory that was lent.
    void give_up(std::uint32_t slot) {
        in_slot& at = at_[slot];
        if (at.now == phase::idle || at.into == nullptr) return;
        reader_.redirect(slot);
        if (at.now == phase::open) at.room = capacity;
        at.into->fill(std::byte{2});
        at.given_up = true;
    }
    void begin(std::uint32_t slot) {
        in_slot& at = at_[slot];
        const bool response = kind_ == message_kind::response;
        slot_header& h = at.header = request(slot, response ? at.generation : pick(1000), 0);
        at.generation = h.generation;
        h.kind = kind_;
        if (response && pick(5) == 0) h.code = status::application_error;
        const bool bare = !response && pick(6) == 0;  // room for a part
        if (bare) h.parts_call = core::parts_call_of(pick(slots), pick(1000));
        if (bare || (response && pick(4) == 0)) h.flags = core::header_flag::more;
        if (!response && !bare && pick(4) == 0) h.flags = core::header_flag::parts;
        // The text of a failure has the room of a slot where ranges were lent.
        const std::size_t room = at.scattered && h.code != status::ok ? capacity : at.room;
        if (!bare) h.length = pick(4) == 0 ? room : pick(pick(2) == 0 ? 3 : room + 1) % (room + 1);
        if (!bare) h.extension_bytes = static_cast<std::uint16_t>(8 * pick(core::extension_room / 8 + 1));
        at.payload = random_bytes(h.length, pick(1000));
        at.extension = random_bytes(h.extension_bytes, pick(1000));
        const bool cut = h.length > 0 && pick(2) == 0;
        append(stream_, cut ? fragmented(h) : h);
        append(stream_, at.extension);
        if (!cut) append(stream_, at.payload);
        at.left = cut ? h.length : 0;
        wrote(slot);
    }
    void write_fragment(std::uint32_t slot) {
        in_slot& at = at_[slot];
        const std::size_t size = pick(3) == 0 ? at.left : 1 + pick(at.left);
        append(stream_, fragment(slot, at.generation, static_cast<std::uint32_t>(size)));
        const auto from = at.payload.end() - static_cast<std::ptrdiff_t>(at.left);
        stream_.insert(stream_.end(), from, from + static_cast<std::ptrdiff_t>(size));
        at.left -= size;
        wrote(slot);
    }
    void wrote(std::uint32_t slot) {
        at_[slot].now = at_[slot].left > 0 ? phase::begun : phase::written;
        if (at_[slot].left == 0) order_.push_back(slot);
        const auto begun = [](const in_slot& each) { return each.now == phase::begun; };
        if (std::ranges::none_of(at_, begun)) complete_.insert(stream_.size());
    }
    void pass(std::size_t count) {
        count = std::min(count, left());
        if (count == 0) return;
        const feed_result got = feed(reader_, std::span(stream_).subspan(passed_, count), 1 + pick(3000), false,
                                     pick(2) == 0 ? 1 + pick(3) : read_targets::max_pieces);
        passed_ += count;
        EXPECT_FALSE(got.violation || got.goodbye);
        for (const received_message& each : got.messages) check(each);
        EXPECT_EQ(reader_.mid_message(), !complete_.contains(passed_));
    }
    void check(const received_message& got) {
        ASSERT_FALSE(order_.empty()) << "it was not sent, or came early";
        const std::uint32_t slot = order_.front();
        order_.pop_front();
        in_slot& at = at_[slot];
        at.now = phase::idle;
        EXPECT_EQ(std::memcmp(&got.header, &at.header, sizeof at.header), 0);
        const std::size_t extra = at.extension.size();
        EXPECT_TRUE(same({memory_->header(slot) - extra, extra}, at.extension));
        const bool direct = at.into != nullptr && !at.given_up && !(at.scattered && at.header.code != status::ok);
        if (direct) {
            EXPECT_TRUE(at.into->has(at.payload));
            const auto untouched = [](std::byte each) { return each == std::byte{0x77}; };
            EXPECT_TRUE(std::ranges::all_of(memory_->room(slot), untouched)) << "it was copied";
            return;
        }
        EXPECT_EQ(got.payload, at.payload);
        EXPECT_TRUE(at.into == nullptr || (at.given_up ? at.into->all(std::byte{2}) : at.into->has({})));
    }

    message_kind kind_;
    std::minstd_rand random_;
    std::shared_ptr<core::slot_memory> memory_;
    stream_reader reader_;
    std::array<in_slot, slots> at_;
    bytes stream_;
    std::size_t passed_ = 0;           ///< bytes of the stream that the reader has
    std::deque<std::uint32_t> order_;  ///< slots of the messages that are written and have not arrived
    std::set<std::size_t> complete_;   ///< lengths of the stream at which no message is cut off
};

void play_and_offend(message_kind kind, std::span<const offence> own) {
    std::vector<const offence*> all;
    for (const std::span<const offence> some : {std::span<const offence>(offences_of_all), own})
        for (const offence& each : some) all.push_back(&each);
    std::set<const offence*> untried(all.begin(), all.end());
    for (std::uint32_t seed = 0; seed < 500 && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        stream_game game(kind, seed);
        game.play(60);
        const offence* const last = all[seed % all.size()];
        if (game.refuses(*last)) untried.erase(last);
    }
    for (const offence* each : untried) ADD_FAILURE() << "never tried: " << each->name;
}

TEST(tcp_stream, requests_in_any_pieces_arrive_until_a_client_goes_too_far) {
    play_and_offend(message_kind::request, offences_of_clients);
    stream_game game(message_kind::request, 500);
    game.play(60);
    EXPECT_TRUE(game.says_goodbye());
}

TEST(tcp_stream, responses_in_any_pieces_arrive_until_a_server_goes_too_far) {
    play_and_offend(message_kind::response, offences_of_servers);
}

}  // namespace
}  // namespace accel::tcp
