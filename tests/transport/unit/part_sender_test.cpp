// SPDX-License-Identifier: Apache-2.0
// A worker whose client gives room for parts, or sends parts of requests, as no channel of ours would: too late, twice,
// for others, or wrongly.
#include "core/server/worker.hpp"
#include "unit/scripted_client.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

constexpr link_geometry shape{5, 64, 64};

struct scripted_sessions : session_observer {
    scripted_sessions() {
        server_options options;
        options.poll = poll_mode::busy;
        serving = new worker(nullptr, options, [this](exchange one) { held.push_back(std::move(one)); });
        auto made = std::make_unique<session>(*serving, 1, "test", client_identity{"", "peer"}, shape);
        auto path = std::make_unique<scripted_link>(slot_memory::create(shape.slots, shape.request_bytes).value(),
                                                    slot_memory::create(shape.slots, shape.request_bytes).value());
        client = path.get();
        client_session = made.get();
        serving->add_source(std::make_unique<scripted_poller>(*path));
        serving->observe(this);
        made->set_link(std::move(path));
        serving->install(std::move(made));
        (void)serving->progress();
    }
    ~scripted_sessions() override {
        held.clear();
        serving->stop();
        serving->release_ref();
    }
    void session_lost(const session&, status why) noexcept override { lost = why; }
    void session_freed(const session&) noexcept override { client = nullptr; }

    static slot_header request(std::uint32_t slot, std::uint32_t generation) {
        slot_header header;
        header.flags = header_flag::parts;
        header.slot = slot;
        header.generation = generation;
        header.response_room = 64;
        header.deadline_ns = never.count();
        return header;
    }
    static slot_header plain(std::uint32_t slot, std::uint32_t generation) {
        slot_header header = request(slot, generation);
        header.flags = 0;
        return header;
    }
    static slot_header room(std::uint32_t slot, std::uint32_t generation, std::uint32_t call, std::uint32_t of) {
        slot_header header = request(slot, generation);
        header.flags = header_flag::more;
        header.parts_call = parts_call_of(call, of);
        return header;
    }
    static slot_header asking(std::uint32_t slot, std::uint32_t generation) {
        slot_header header = request(slot, generation);
        header.flags = header_flag::continues;
        return header;
    }
    static slot_header part(std::uint32_t slot, std::uint32_t generation, std::uint32_t call, std::uint32_t of,
                            std::uint64_t number) {
        slot_header header = room(slot, generation, call, of);
        header.flags = header_flag::part | header_flag::continues;
        header.response_room = 0;
        header.request_parts_before = number;
        return header;
    }
    static slot_header last(std::uint32_t slot, std::uint32_t generation, std::uint32_t call, std::uint32_t of,
                            std::uint64_t number) {
        slot_header header = part(slot, generation, call, of, number);
        header.flags = header_flag::part;
        return header;
    }
    void arrive(const slot_header& header, std::span<std::byte> payload = {}) {
        link_event event;
        event.payload = payload;
        event.owner = client_session;
        event.header = header;
        client->events.push_back(event);
        (void)serving->progress();
    }
    /// What has left since the last look.
    std::vector<slot_header> sent() {
        (void)serving->progress();
        return std::exchange(client->sent, {});
    }
    static status send(exchange& one, std::size_t length) {
        (void)one.part();
        return one.send(length);
    }
    /// … and nothing of it stays behind.
    void expect_lost() {
        EXPECT_EQ(lost, status::protocol_error);
        held.clear();
        (void)serving->progress();
        EXPECT_EQ(client, nullptr);
    }

    worker* serving = nullptr;
    scripted_link* client = nullptr;
    session* client_session = nullptr;
    std::vector<exchange> held;
    status lost = status::ok;
};

struct sending_parts : ::testing::Test, scripted_sessions {};

TEST_F(sending_parts, room_that_was_not_looked_at_is_not_sent) {
    arrive(request(0, 9));
    EXPECT_TRUE(held.at(0).part().empty());
    arrive(room(1, 1, 0, 9));
    EXPECT_EQ(held.at(0).send(0), status::again) << "nobody has written there";
    EXPECT_EQ(held.at(0).part().size(), 64U);
    EXPECT_EQ(held.at(0).send(0), status::ok);
}

/// A call as the application and the handler see it.
struct asked_in_parts {
    call_id id;
    std::uint32_t parts = 0;           ///< of its response that it takes
    bool continues = false;            ///< its request
    std::vector<std::size_t> asked;    ///< lengths of the parts of its request
    std::set<std::uint64_t> arrived;   ///< numbers of those
    std::uint64_t received = 0;        ///< … by the handler
    std::vector<std::size_t> lengths;  ///< of the parts that the handler has sent
    std::optional<status> answer;      ///< by the handler
    std::set<std::uint64_t> came;      ///< numbers of parts
    bool complete = false;             ///< the last part of the request was sent
    bool answer_came = false;
    bool cancelled = false;
    bool ended = false;
    std::uint64_t read = 0;
};

/// A channel and a worker, over a link with little room on which messages pass one another: calls, cancels, releases,
/// parts of requests and responses, and answers in random order.
class parts_sequence {
  public:
    explicit parts_sequence(unsigned seed) : random_(seed) {}
    ~parts_sequence() {
        taken_.clear();
        EXPECT_FALSE(there_.serving->holds_exchanges());
    }
    parts_sequence(const parts_sequence&) = delete;
    parts_sequence& operator=(const parts_sequence&) = delete;

    void step() {
        here_.server->room = below(3) == 0 ? static_cast<int>(below(3)) : 1000;
        there_.client->room = below(3) == 0 ? static_cast<int>(below(3)) : 1000;
        const std::size_t what = below(12);
        if (what == 0) submit();
        if (what == 1 && !calls_.empty()) cancel(calls_[below(calls_.size())]);
        if (what == 2) release();
        if (what == 3 || what == 4) handle(false);
        if (what == 5 && !calls_.empty()) submit_part(calls_[below(calls_.size())]);
        if (what == 6) receive();
        if (what == 7) release_received();
        if (what > 7) what % 2 == 0 ? carry_request() : carry_answer();
        look();
    }
    void finish() {
        here_.server->room = there_.client->room = 1000;
        for (int i = 0; i < 300; ++i) {
            handle(true);
            carry_request();
            carry_answer();
            look();
            release();
            receive();
            release_received();
        }
        for (const asked_in_parts& each : calls_) EXPECT_TRUE(each.ended);
        EXPECT_TRUE(here_.client->idle()) << "a slot does not come back";
        EXPECT_TRUE(here_.client->connected());
        EXPECT_EQ(here_.client->statistics().stale, late_);
        EXPECT_EQ(here_.client->statistics().completed, calls_.size());
        EXPECT_EQ(here_.server->consumed_count, carried_) << "each arrival is given back once";
        EXPECT_EQ(there_.lost, status::ok);
    }
    /// Each call ends once, and nothing stays at either end once no handler has an exchange.
    void lose() {
        here_.watch->end(status::peer_lost);
        lost_ = true;
        look();
        while (!unread_.empty()) release();
        EXPECT_TRUE(here_.client->idle());
        there_.serving->close_session(1, status::closed);
        for (int i = 0; i < 3; ++i) (void)there_.serving->progress();
        EXPECT_EQ(there_.client != nullptr, !there_.held.empty() || !taken_.empty());
        for (exchange& each : there_.held) {
            EXPECT_TRUE(each.part().empty());
            EXPECT_EQ(each.send(0), each.in_parts() ? status::peer_lost : status::unsupported);
            EXPECT_EQ(each.receive().status(), each.continues() ? status::peer_lost : status::invalid_state);
            EXPECT_EQ(each.reply(0), status::peer_lost);
        }
        there_.held.clear();
        (void)there_.serving->progress();
        EXPECT_EQ(there_.client != nullptr, !taken_.empty());
        while (!taken_.empty()) release_received();
        (void)there_.serving->progress();
        EXPECT_EQ(there_.client, nullptr);
    }

  private:
    [[nodiscard]] std::size_t below(std::size_t bound) { return random_() % bound; }

    void submit() {
        const auto call = here_.client->begin();
        if (!call) return;
        const auto parts = static_cast<std::uint32_t>(below(4));
        const bool continues = below(2) == 0;
        const submit_options options{.trace_id = calls_.size(), .continues = continues, .parts = parts};
        if (here_.client->submit(call->id, 4, options) != status::ok) {
            EXPECT_EQ(here_.client->release(call->id), status::ok);
            return;
        }
        asked_in_parts& made = calls_.emplace_back();
        made.id = call->id;
        made.parts = parts;
        made.continues = continues;
    }
    void submit_part(asked_in_parts& call) {
        const auto part = here_.client->begin_part(call.id);
        const bool open = call.continues && !call.complete && !call.ended && !lost_;
        EXPECT_TRUE(open ? part.ok() || part.code() == status::again : part.code() == status::invalid_state);
        if (!part) return;
        const std::uint64_t number = call.asked.size();
        const std::size_t length = sizeof number + below(shape.request_bytes - sizeof number);
        std::memcpy(part->request.data(), &number, sizeof number);
        if (below(10) == 0) {
            EXPECT_EQ(here_.client->release(part->id), status::ok);
            return;
        }
        call.complete = below(5) == 0;
        EXPECT_EQ(here_.client->submit_part(part->id, length, {.last = call.complete}), status::ok);
        call.asked.push_back(length);
    }
    /// The next part of a request, if it has arrived.
    void receive() {
        if (there_.held.empty()) return;
        exchange& one = there_.held[below(there_.held.size())];
        asked_in_parts& call = calls_.at(one.trace_id());
        const bool all = !call.continues || (call.complete && call.received == call.asked.size());
        EXPECT_EQ(one.continues(), !all);
        request_part part = one.receive();
        if (!call.arrived.contains(call.received)) {
            EXPECT_EQ(part.status(), all ? status::invalid_state : status::again);
            return;
        }
        ASSERT_EQ(part.status(), status::ok);
        std::uint64_t number = 0;
        std::memcpy(&number, part.bytes().data(), sizeof number);
        EXPECT_EQ(number, call.received);
        EXPECT_EQ(part.bytes().size(), call.asked.at(call.received++));
        EXPECT_EQ(part.last(), call.complete && call.received == call.asked.size());
        taken_.emplace_back(std::move(part), number);
    }
    void release_received() {
        if (taken_.empty()) return;
        std::swap(taken_[below(taken_.size())], taken_.back());
        const auto& [part, expected] = taken_.back();
        std::uint64_t number = 0;
        std::memcpy(&number, part.bytes().data(), sizeof number);
        EXPECT_EQ(number, expected) << "it is in place until its release";
        taken_.pop_back();
    }
    void cancel(asked_in_parts& call) {
        EXPECT_EQ(here_.client->cancel(call.id), call.ended ? status::invalid_state : status::ok);
        call.cancelled = call.cancelled || !call.ended;
    }
    void release() {
        if (unread_.empty()) return;
        std::swap(unread_[below(unread_.size())], unread_.back());
        EXPECT_EQ(here_.client->release(unread_.back()), status::ok);
        unread_.pop_back();
    }
    /// A part, as far as there is room, or an answer.
    void handle(bool ends) {
        if (there_.held.empty()) return;
        const std::size_t at = below(there_.held.size());
        exchange& one = there_.held[at];
        asked_in_parts& call = calls_.at(one.trace_id());
        EXPECT_EQ(one.in_parts(), call.parts > 0);
        const std::span<std::byte> room = one.part();
        const std::size_t length = sizeof(std::uint64_t) + below(shape.response_bytes);
        if (!ends && call.parts > 0 && below(4) != 0) {
            const std::uint64_t number = call.lengths.size();
            if (!room.empty()) std::memcpy(room.data(), &number, sizeof number);
            const bool fits = length <= room.size();
            EXPECT_EQ(one.send(length), fits ? status::ok : room.empty() ? status::again : status::message_too_large);
            if (fits) call.lengths.push_back(length);
            return;
        }
        call.answer = std::array{status::ok, status::overloaded, status::abandoned}.at(below(3));
        if (call.answer == status::ok) {
            (void)one.continues();  // it knows of parts
            EXPECT_EQ(one.reply(0), status::ok);
        } else if (call.answer == status::overloaded) {
            EXPECT_EQ(one.fail(status::overloaded), status::ok);
        }
        there_.held.erase(there_.held.begin() + static_cast<std::ptrdiff_t>(at));
    }

    /// Any message of the channel.
    void carry_request() {
        auto& sent = here_.server->sent;
        if (sent.empty()) return;
        const auto at = sent.begin() + static_cast<std::ptrdiff_t>(below(2) == 0 ? 0 : below(sent.size()));
        const slot_header next = *at;
        sent.erase(at);
        EXPECT_EQ(check_header(next, message_kind::request), status::ok);
        const bool part = (next.flags & header_flag::part) != 0;
        const bool further = part || next.flags == header_flag::more;
        const auto call = further ? next.parts_call : parts_call_of(next.slot, next.generation);
        const auto of = std::ranges::find(
            calls_, call, [](const auto& each) { return parts_call_of(each.id.slot, each.id.generation); });
        ASSERT_NE(of, calls_.end());
        if (part) {
            EXPECT_TRUE(of->arrived.insert(next.request_parts_before).second);
        }
        const had sent_by{of - calls_.begin(), part};
        EXPECT_TRUE(had_.emplace(parts_call_of(next.slot, next.generation), sent_by).second);
        there_.arrive(next, {here_.server->send().payload(next.slot), next.length});
    }
    /// Any message of the worker.
    void carry_answer() {
        if (answers_.empty()) return;
        std::swap(answers_[below(answers_.size())], answers_.back());
        link_event event;
        event.header = answers_.back();
        answers_.pop_back();
        const slot_header& header = event.header;
        EXPECT_EQ(check_header(header, message_kind::response), status::ok);
        const auto of = had_.find(parts_call_of(header.slot, header.generation));
        ASSERT_NE(of, had_.end()) << "a slot comes back twice";
        asked_in_parts& call = calls_.at(static_cast<std::size_t>(of->second.call));
        const bool part = of->second.part;
        had_.erase(of);
        std::byte* const to = here_.server->receive().payload(header.slot);
        std::memcpy(to, there_.client->send().payload(header.slot), header.length);
        event.payload = {to, header.length};
        here_.server->events.push_back(event);
        ++carried_;
        if (header.flags == header_flag::more) {
            EXPECT_TRUE(call.came.insert(header.parts_before).second);
        } else if (header.slot != call.id.slot || header.generation != call.id.generation) {
            EXPECT_EQ(header.code, part ? status::ok : status::cancelled);
            EXPECT_EQ(header.length, 0U);
        } else {
            EXPECT_EQ(header.parts_before,
                      call.parts > 0 ? call.lengths.size() : static_cast<std::size_t>(&call - calls_.data()));
            late_ += call.cancelled ? 1 : 0;
            call.answer_came = true;
        }
    }

    /// Parts are handed out as soon as all before them have come, and the answer after the last.
    void look() {
        for (const slot_header& each : there_.sent()) answers_.push_back(each);
        std::array<completion, shape.slots> got;
        for (std::size_t count = here_.client->poll(got); count > 0; count = here_.client->poll(got))
            for (completion& each : std::span{got}.first(count)) on_completion(each);
        for (const asked_in_parts& call : calls_) {
            const bool more = call.came.contains(call.read);
            EXPECT_TRUE(call.ended || !more) << "a part is kept back";
            const bool all = call.answer_came && call.read == call.lengths.size();
            EXPECT_EQ(call.ended, lost_ || call.cancelled || all);
        }
    }
    void on_completion(completion& each) {
        asked_in_parts& call = calls_.at(each.trace_id);
        EXPECT_EQ(each.call, call.id);
        EXPECT_FALSE(call.ended);
        unread_.push_back(each.detach());
        if (each.more) {
            std::uint64_t number = 0;
            std::memcpy(&number, each.response.data(), sizeof number);
            EXPECT_EQ(number, call.read);
            EXPECT_EQ(each.response.size(), call.lengths.at(call.read++));
            return;
        }
        call.ended = true;
        EXPECT_EQ(each.status, call.cancelled ? status::cancelled : lost_ ? status::peer_lost : call.answer);
    }

    std::mt19937 random_;
    scripted_client here_{shape.slots, shape.response_bytes};
    scripted_sessions there_;
    std::vector<asked_in_parts> calls_;
    struct had {
        std::ptrdiff_t call;
        bool part;  ///< of a request
    };
    std::map<std::uint64_t, had> had_;  ///< slots that the worker has, and whose call each is for
    std::vector<std::pair<request_part, std::uint64_t>> taken_;  ///< by handlers, with their numbers
    std::vector<slot_header> answers_;                           ///< on their way to the channel
    std::vector<call_id> unread_;
    std::uint64_t late_ = 0;
    std::uint64_t carried_ = 0;
    bool lost_ = false;
};

TEST(parts_at_random, parts_come_once_and_in_order_and_all_slots_come_back) {
    for (unsigned seed = 0; seed < 300; ++seed) {
        SCOPED_TRACE(seed);
        parts_sequence random(seed);
        for (int i = 0; i < 150; ++i) {
            random.step();
            if (::testing::Test::HasFailure()) FAIL() << "step " << i;
        }
        seed % 3 == 0 ? random.lose() : random.finish();
    }
}

/// Late parts go back, also while a later call is open in that slot, and where they came too early for one that is.
TEST_F(sending_parts, a_part_of_a_call_that_has_ended_goes_back_at_once) {
    arrive(asking(0, 9));
    EXPECT_EQ(held.at(0).reply(0), status::ok);
    arrive(asking(0, 10));
    arrive(part(1, 1, 0, 10, 1));
    (void)sent();
    arrive(part(2, 1, 0, 9, 0));
    const auto left = sent();
    ASSERT_EQ(left.size(), 1U);
    EXPECT_EQ(left.at(0).slot, 2U);
    EXPECT_EQ(left.at(0).code, status::ok);
    EXPECT_EQ(left.at(0).flags, 0U);
    EXPECT_EQ(held.at(1).receive().status(), status::again);
    EXPECT_EQ(held.at(1).reply(0), status::ok);
    EXPECT_EQ(sent().size(), 2U) << "the answer, and the part that nobody has taken";
}

/// Until then a request may be on its way to a handler.
TEST_F(sending_parts, a_worker_is_drained_after_its_next_poll) {
    serving->refuse_requests();
    EXPECT_FALSE(serving->drained());
    arrive(plain(0, 1));
    EXPECT_TRUE(held.empty());
    EXPECT_TRUE(serving->drained());
}

/// What no correct client sends ends the session, and nothing of it stays; what is next to it does not.
TEST(refused_room, messages_of_no_correct_client_end_the_session) {
    const auto with_room = [](slot_header header, std::size_t bytes) {
        header.response_room = static_cast<std::uint32_t>(bytes);
        return header;
    };
    const auto with_flags = [](slot_header header, std::uint16_t flags) {
        header.flags = flags;
        return header;
    };
    const auto with_length = [](slot_header header, std::size_t bytes) {
        header.length = bytes;
        return header;
    };
    constexpr auto ask = scripted_sessions::request;
    constexpr auto asking = scripted_sessions::asking;
    constexpr auto part = scripted_sessions::part;
    constexpr auto last = scripted_sessions::last;
    constexpr auto plain = scripted_sessions::plain;
    constexpr auto room = scripted_sessions::room;
    struct row {
        const char* what;
        bool good;
        std::vector<slot_header> messages;
        bool sends = false;  ///< the handler, before the last message
    };
    const row all[] = {
        {"room before and after its request", true, {room(1, 1, 0, 9), ask(0, 9), room(2, 1, 0, 9)}},
        {"a call without parts after room for it", false, {room(1, 1, 0, 9), plain(0, 9), room(2, 1, 0, 9)}},
        {"room for an open call without parts", false, {plain(0, 9), room(1, 1, 0, 9)}},
        {"room in a slot that has room", false, {room(1, 1, 0, 9), room(1, 2, 0, 9)}},
        {"room under the next generation", true, {room(1, 1, 0, 9), ask(0, 9), room(1, 2, 0, 9)}, true},
        {"room under its last generation", false, {room(1, 1, 0, 9), ask(0, 9), room(1, 1, 0, 9)}, true},
        {"room of another generation of an open call", false, {ask(0, 9), room(1, 1, 0, 10)}},
        {"room of two calls in one slot", false, {room(1, 1, 0, 9), room(2, 1, 0, 10)}},
        {"a call in a slot with room of another one", false, {room(1, 1, 0, 9), ask(0, 10)}},
        {"a call in a slot of room", false, {room(1, 1, 0, 9), ask(1, 2)}},
        {"room for a slot of room", false, {room(1, 1, 0, 9), room(2, 1, 1, 1)}},
        {"room for itself", false, {room(1, 1, 1, 5)}},
        {"room for the last slot", true, {room(1, 1, shape.slots - 1, 5)}},
        {"room for a slot that does not exist", false, {room(1, 1, shape.slots, 5)}},
        {"room in a slot that does not exist", false, {room(shape.slots, 1, 0, 9)}},
        {"a call in a slot that does not exist", false, {ask(shape.slots, 1)}},
        {"room for generation 0", false, {room(1, 1, 0, 0)}},
        {"a call of generation 0", false, {ask(0, 0)}},
        {"room as large as agreed", true, {with_room(room(1, 1, 0, 9), shape.response_bytes)}},
        {"room larger than agreed", false, {with_room(room(1, 1, 0, 9), shape.response_bytes + 1)}},
        {"both flags", false, {with_flags(ask(0, 9), header_flag::more | header_flag::parts)}},
        {"parts before and after their request", true, {part(1, 1, 0, 9, 0), asking(0, 9), last(2, 1, 0, 9, 1)}},
        {"parts in any order", true, {asking(0, 9), last(1, 1, 0, 9, 2), part(2, 1, 0, 9, 1), part(3, 1, 0, 9, 0)}},
        {"a part of a whole request", false, {plain(0, 9), part(1, 1, 0, 9, 0)}},
        {"a part of a request whose response comes in parts", false, {ask(0, 9), part(1, 1, 0, 9, 0)}},
        {"a part in a slot in use", false, {asking(0, 9), part(1, 1, 0, 9, 0), part(1, 2, 0, 9, 1)}},
        {"a part under the last generation", false, {plain(1, 7), asking(0, 9), part(1, 7, 0, 9, 0)}},
        {"a part of itself", false, {part(1, 1, 1, 5, 0)}},
        {"a part of a part", false, {part(1, 1, 0, 9, 0), part(2, 1, 1, 1, 0)}},
        {"a part of a slot that does not exist", false, {part(1, 1, shape.slots, 5, 0)}},
        {"a part of generation 0", false, {part(1, 1, 0, 0, 0)}},
        {"a part in a slot that does not exist", false, {part(shape.slots, 1, 0, 9, 0)}},
        {"parts of two calls in one slot", false, {part(1, 1, 0, 9, 0), part(2, 1, 0, 10, 0)}},
        {"a part of a later call in an open slot", false, {asking(0, 9), part(1, 1, 0, 10, 0)}},
        {"a request after parts of another one", false, {part(1, 1, 0, 9, 0), asking(0, 10)}},
        {"a request that continues, of generation 0", false, {asking(0, 0)}},
        {"a number twice", false, {asking(0, 9), part(1, 1, 0, 9, 0), part(2, 1, 0, 9, 0)}},
        {"an early number twice", false, {asking(0, 9), part(1, 1, 0, 9, 1), part(2, 1, 0, 9, 1), part(3, 1, 0, 9, 0)}},
        {"the highest number that can come", true, {asking(0, 9), part(1, 1, 0, 9, shape.slots - 1)}},
        {"a number too high", false, {asking(0, 9), part(1, 1, 0, 9, shape.slots)}},
        {"the highest number", false, {asking(0, 9), part(1, 1, 0, 9, ~std::uint64_t{0})}},
        {"a part after the last", false, {asking(0, 9), last(1, 1, 0, 9, 0), part(2, 1, 0, 9, 1)}},
        {"a last part before another", false, {asking(0, 9), part(1, 1, 0, 9, 2), last(2, 1, 0, 9, 1)}},
        {"two last parts", false, {asking(0, 9), last(1, 1, 0, 9, 1), last(2, 1, 0, 9, 0)}},
        {"a part with room",
         false,
         {asking(0, 9), with_flags(part(1, 1, 0, 9, 0), header_flag::part | header_flag::more)}},
        {"a part whose response may come in parts",
         false,
         {asking(0, 9), with_flags(part(1, 1, 0, 9, 0), header_flag::part | header_flag::parts)}},
        {"a part longer than its bytes", false, {asking(0, 9), with_length(part(1, 1, 0, 9, 0), 1)}},
    };
    for (const row& each : all) {
        SCOPED_TRACE(each.what);
        scripted_sessions server;
        for (const slot_header& message : each.messages) {
            if (each.sends && &message == &each.messages.back()) {
                EXPECT_EQ(scripted_sessions::send(server.held.at(0), 0), status::ok);
                EXPECT_EQ(server.sent().size(), 1U);
            }
            server.arrive(message);
        }
        if (!each.good) {
            server.expect_lost();
            continue;
        }
        EXPECT_EQ(server.lost, status::ok);
        EXPECT_NE(server.client, nullptr);
    }
}

}  // namespace
}  // namespace accel::core
