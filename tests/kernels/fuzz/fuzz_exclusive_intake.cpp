// SPDX-License-Identifier: Apache-2.0
// A service whose sessions have one owner each, over queues in the fuzzer's hands: clients that write any header
// and any last word, at any time; completions of any kind; sessions that come and go. Byte 0: how many owners,
// whether there is more than one slot, whether there are more than an owner keeps at hand, and who posts.
#include "fake_client.hpp"
#include "fake_clock.hpp"
#include "fake_queues.hpp"
#include "fuzz_target.hpp"

#include <accel_transport/device/service.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

namespace {

using namespace accel;
using device::detail::session_phase;
using tests::fake_client;
using tests::require;

constexpr std::uint32_t max_opened = 12;
using device::detail::engine;

/// `slot_bits` leaves numbers that no slot has.
struct geometry {
    std::uint32_t sessions = 3;
    std::uint32_t slots = 3;
    std::uint32_t slot_bits = 2;
};
constexpr geometry one_slot{1, 1, 0};
constexpr geometry many_slots{3, 6, 3};
static_assert((many_slots.sessions << many_slots.slot_bits) > device::detail::max_at_hand);

geometry shape_of(std::uint8_t choice) {
    if (choice % 2 != 0) return one_slot;
    return choice / 4 % 2 != 0 ? many_slots : geometry{};
}

/// One place for a session: its queues, and a client that the input plays.
struct place {
    place(tests::input_reader& input, engine by, std::uint32_t index, std::span<std::byte> requests)
        : sends(by, 0x4fe + index), completions(by), client(input, index, requests) {}
    tests::fake_sends sends;
    tests::fake_completions completions;
    fake_client client;
    bool open = false;    ///< the host's word: its client is connected
    bool ended = true;    ///< the owner has released it
    bool stalls = false;  ///< its adapter does nothing
    bool lied = false;    ///< … has told of a request that may follow
    bool failed = false;  ///< … or fails all that is posted
    std::uint64_t handed_over = 0;
};

/// An exchange, and who has it.
struct held_exchange {
    std::uint32_t owner = 0;
    device::exchange_ref is;
};

class owner_rig {
  public:
    owner_rig(tests::input_reader& input, engine by, const geometry& shape, std::uint32_t owners)
        : input_(input),
          by_(by),
          shape_(shape),
          requests_(std::size_t{shape.sessions} * shape.slots * fake_client::stride),
          sessions_(shape.sessions),
          watches_(std::size_t{shape.sessions} << shape.slot_bits),
          prepared_(watches_.size()),
          parts_(watches_.size()),
          orders_of_(shape.sessions),
          offers_(shape.sessions),
          reports_(shape.sessions),
          owners_(owners) {
        const std::size_t bytes = shape.slots * fake_client::stride;
        for (std::uint32_t i = 0; i < shape.sessions; ++i) {
            places_.push_back(std::make_unique<place>(input, by, i, std::span(requests_).subspan(i * bytes, bytes)));
            device::detail::exclusive_session& session = sessions_[i];
            proxy::completion_queue_state none;
            session.sends = places_[i]->sends.port().direct.queue;
            session.proxied = places_[i]->sends.port().proxied;
            session.completions = places_[i]->completions.port(session.completions_state, none).direct;
            session.limit = tests::fake_sends::count;
        }
        locate();
        own();
    }

    void run() {
        for (int step = 0; step < 150 && !input_.empty(); ++step) {
            act(input_.byte() % 16);
            work();
            check();
        }
        end();
    }

  private:
    void locate() {
        device::detail::exclusive_ref& at = service_.exclusive;
        at.sessions = sessions_.data();
        at.watches = watches_.data();
        at.prepared = prepared_.data();
        at.parts = parts_.data();
        at.requests = places_[0]->client.header_at(0);
        at.slot_stride = fake_client::stride;
        at.session_stride = shape_.slots * fake_client::stride;
        at.slots = shape_.slots;
        at.slot_bits = shape_.slot_bits;
        at.orders = orders_of_.data();
        at.by = by_;
        service_.session_count = shape_.sessions;
        service_.orders = &orders_;
        service_.offers = offers_.data();
        service_.report = &report_;
        service_.session_reports = reports_.data();
    }
    /// Kernels begin. Those before left nothing unanswered.
    void own() {
        const auto parts = static_cast<std::uint32_t>(owners_.size());
        for (std::uint32_t i = 0; i < parts; ++i)
            require(device::own(service_, i, parts, owners_[i]) == status::ok, "its sessions have an owner");
    }
    [[nodiscard]] std::uint32_t owner_of(std::uint32_t session) const {
        return session % static_cast<std::uint32_t>(owners_.size());
    }

    void act(unsigned what) {
        switch (what) {
            case 0:
            case 1:
                return open(pick());
            case 2:
                return close(pick());
            case 3:
            case 4:
            case 5:
            case 6:
            case 7:
                return play_client(what, pick());
            case 8:
                return complete_anything(pick());
            case 9:
            case 10:
            case 11:
                return take();
            case 12:
            case 13:
                if (!held_.empty()) answer(input_.byte());
                return;
            case 14:
                return pass(std::chrono::microseconds{input_.byte() * 100});
            default:
                return change(pick());
        }
    }
    std::uint32_t pick() { return input_.byte() % shape_.sessions; }
    void pass(std::chrono::nanoseconds time) { clock_.pass(time); }

    // The host.
    void order(std::uint32_t index, std::uint32_t open) {
        mlx5::store_flag(&orders_of_[index], ++orders_.commands << 1 | open);
    }
    void open(std::uint32_t index) {
        place& of = *places_[index];
        if (of.open || !of.ended || opened_ == max_opened) return;
        ++opened_;
        of.sends.restart();
        of.open = true;
        of.ended = of.stalls = of.lied = of.failed = false;
        offers_[index] = of.client.connect();
        of.sends.answers = device::detail::answer_way_of(offers_[index]);
        reports_[index].closed = reports_[index].failure = 0;
        order(index, 1);
    }
    void close(std::uint32_t index) {
        place& of = *places_[index];
        if (!of.open) return;
        of.open = false;
        order(index, 0);
    }
    void change(std::uint32_t index) {
        switch (input_.byte() % 4) {
            case 0:
                orders_.clock_ns = device::clock_ns() + 5'000;
                return mlx5::store_flag(&orders_.clock_tick, orders_.clock_tick + 1);
            case 1:
                if (held_.empty()) own();
                return;
            default:
                // A request that was told of too early must be done by then, or nobody could know what the ring holds.
                places_[index]->stalls = !places_[index]->stalls && !places_[index]->lied;
        }
    }

    // Clients.
    void play_client(unsigned what, std::uint32_t index) {
        place& of = *places_[index];
        std::uint32_t slot = 0;
        if (!of.open) return;
        if (what == 5)
            (void)of.client.ask(slot, [this] { take(); });
        else if (what == 6)
            of.client.write_anything();
        else if (what == 7)
            of.client.write_word();
        else
            (void)of.client.ask(slot);
    }

    // The adapter.
    /// Failures, and completions with any number; of requests that are done, for no adapter lies about those.
    void complete_anything(std::uint32_t index) {
        const std::uint8_t choice = input_.byte();
        if (by_ == engine::proxy) return;  // the host takes completions
        place& of = *places_[index];
        if (!of.open || of.completions.room() <= tests::fake_sends::count) return;
        of.stalls = false;
        work(index);
        of.client.hostile = of.lied = true;
        of.failed = choice % 4 == 0;
        mlx5::completion told;
        told.kind = choice % 2 != 0 ? mlx5::entry_kind::request : mlx5::entry_kind::request_error;
        if (choice >= 200) told.kind = mlx5::entry_kind::receive_immediate;
        if (told.kind == mlx5::entry_kind::request_error) told.failure = mlx5::syndrome::remote_access;
        told.counter = choice;
        of.completions.tell(told);
    }
    void work() {
        for (std::uint32_t i = 0; i < shape_.sessions; ++i)
            if (places_[i]->open && !places_[i]->stalls) work(i);
    }
    /// Once a queue pair has failed, all of its requests complete.
    void work(std::uint32_t index) {
        place& of = *places_[index];
        of.sends.perform([&](const tests::posted_request& found) {
            require(found.queue_pair == sessions_[index].sends.queue_pair, "it names its queue pair");
            of.client.check_posted(found);
            if (!of.failed && !found.signalled) return;
            require(of.completions.room() > 0, "each request under way may complete");
            mlx5::completion told;
            told.kind = of.failed ? mlx5::entry_kind::request_error : mlx5::entry_kind::request;
            told.failure = of.failed ? mlx5::syndrome::flushed : mlx5::syndrome::none;
            told.counter = found.number;
            of.completions.tell(told);
        });
    }

    // Kernels.
    void take() {
        const std::uint32_t owner = next_owner_++ % static_cast<std::uint32_t>(owners_.size());
        device::exchange_ref got;
        const std::int64_t before = device::clock_ns();
        const status found = device::take(owners_[owner], got);
        require(found == status::ok || found == status::again, "the service goes on");
        if (found != status::ok) return;
        require(got.session < shape_.sessions && got.slot < shape_.slots, "session and slot exist");
        require(owner_of(got.session) == owner, "its session is the owner's");
        place& of = *places_[got.session];
        require(!of.ended && sessions_[got.session].phase == session_phase::open, "its session is open");
        require(got.deadline > before, "it is not too late");
        require(*device::detail::arrival_word(of.client.header_at(got.slot)) == got.generation, "all of it has come");
        for (const held_exchange& each : held_)
            require(each.is.session != got.session || each.is.slot != got.slot, "nobody else has it");
        of.client.check_handed_over(got);
        ++of.handed_over;
        held_.push_back({owner, got});
    }
    void answer(std::uint8_t choice) {
        const std::size_t at = choice % held_.size();
        const held_exchange one = held_[at];
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(at));
        device::owned_sessions& mine = owners_[one.owner];
        const place& of = *places_[one.is.session];
        const bool good = of.open && !of.client.hostile;
        status sent = status::ok;
        if (choice % 5 == 0) {
            sent = device::fail(mine, one.is, static_cast<status>(choice), choice);
        } else {
            require(device::reply(mine, one.is, one.is.response_room + 1) == status::message_too_large,
                    "an answer has to fit");
            sent = device::reply(mine, one.is, choice % (one.is.response_room + 1));
        }
        require(sent == status::ok || (!good && sent == status::peer_lost), "an answer to a correct client leaves");
    }

    void check() {
        for (std::uint32_t i = 0; i < shape_.sessions; ++i) check(i);
        for (const device::owned_sessions& each : owners_) check_copies(each);
    }
    /// What an owner has at hand is what the next one would find.
    void check_copies(const device::owned_sessions& mine) {
        const bool all = mine.at_hand == device::detail::all_at_hand;
        require(all == (mine.places <= device::detail::max_at_hand), "all that fits is at hand");
        if (mine.at_hand == device::detail::none_at_hand) return;
        for (std::uint32_t i = 0; i < (all ? mine.places : 1); ++i) {
            const std::uint32_t number = device::detail::number_of(mine, all ? i : mine.at_hand);
            const device::detail::exclusive_session& is = sessions_[number >> shape_.slot_bits];
            const device::detail::session_view& copy = mine.sessions[all ? i >> shape_.slot_bits : 0];
            require(mine.slots[i].watch.generation == watches_[number].generation &&
                        mine.slots[i].watch.away == watches_[number].away,
                    "a slot's copy is up to date");
            require(copy.posted == is.posted && copy.released == is.released && copy.held == is.held &&
                        copy.phase == is.phase && copy.requests == is.requests && copy.replies == is.replies &&
                        copy.reported == is.reported,
                    "a session's copy is up to date");
        }
    }
    void check(std::uint32_t index) {
        place& of = *places_[index];
        const device::detail::exclusive_session& session = sessions_[index];
        if (of.open && session.order_seen == orders_of_[index] && !of.client.hostile) {
            require(session.phase == session_phase::open && reports_[index].failure == 0,
                    "the session of a correct client stays open");
        }
        const auto held = static_cast<std::uint32_t>(std::count_if(
            held_.begin(), held_.end(), [&](const held_exchange& each) { return each.is.session == index; }));
        // No correct client of this one lends room for parts, which is held as well.
        require(session.held == held || (of.client.hostile && session.held > held), "what is held is counted");
        require(session.posted - session.released + 2 * session.held <= session.limit,
                "there is room for every answer");
        require(session.requests == of.handed_over, "what is handed over is counted");
        if (of.open || of.ended || reports_[index].closed != orders_of_[index] >> 1) return;
        of.ended = true;
        require(held == 0, "a session ends when nothing of it is held");
        require(mlx5::load_whole(session.sends.doorbell_record) == mlx5::be32{}, "its queue pair can be made anew");
        for (std::uint32_t i = 0; i < shape_.slots; ++i)
            require(*device::detail::arrival_word(of.client.header_at(i)) == 0, "nothing is left for the next client");
    }

    /// Time passes, adapters work, and every request is answered.
    void go_on() {
        pass(std::chrono::microseconds{300});
        work();
        take();
        while (!held_.empty()) answer(1);
        check();
    }
    void end() {
        for (auto& each : places_) each->stalls = false;
        for (int i = 0; i < 60 && !(all_answered() && none_blocked()); ++i) go_on();
        require(all_answered(), "every correct client is answered");
        require(none_blocked(), "where there is room, requests are looked for");
        for (std::uint32_t i = 0; i < shape_.sessions; ++i) close(i);
        for (int i = 0; i < 60 && !all_ended(); ++i) go_on();
        require(all_ended(), "every session ends");
        orders_.stop = 1;
        for (device::owned_sessions& each : owners_) expect_stop(each);
        for (std::uint32_t i = 0; i < shape_.sessions; ++i) {
            const device::detail::exclusive_session& of = sessions_[i];
            require(reports_[i].requests == of.requests && reports_[i].replies == of.replies &&
                        reports_[i].expired == of.counters.expired && reports_[i].dropped == of.counters.dropped,
                    "what was counted has been reported");
        }
    }
    void expect_stop(device::owned_sessions& mine) {
        pass(std::chrono::milliseconds{1});
        device::exchange_ref none;
        require(device::take(mine, none) == status::closed, "it stops when it is told to");
    }
    [[nodiscard]] bool all_answered() const {
        return std::none_of(places_.begin(), places_.end(), [](const auto& each) {
            return each->open && !each->client.hostile && each->client.waits();
        });
    }
    [[nodiscard]] bool none_blocked() const {
        for (std::uint32_t i = 0; i < watches_.size(); ++i) {
            const bool blocked = (watches_[i].away & device::detail::slot_away::blocked) != 0;
            if (blocked && sessions_[i >> shape_.slot_bits].phase == session_phase::open) return false;
        }
        return true;
    }
    [[nodiscard]] bool all_ended() const {
        return std::all_of(places_.begin(), places_.end(), [](const auto& each) { return each->ended; });
    }

    tests::fake_clock clock_;
    tests::input_reader& input_;
    engine by_;
    geometry shape_;
    std::vector<std::byte> requests_;
    std::vector<device::detail::exclusive_session> sessions_;
    std::vector<device::detail::slot_watch> watches_;
    std::vector<device::detail::prepared_header> prepared_;
    std::vector<device::detail::part_slot> parts_;
    std::vector<std::uint32_t> orders_of_;
    std::vector<device::detail::session_offer> offers_;
    std::vector<device::detail::session_report> reports_;
    device::detail::orders_layout orders_;
    device::detail::report_layout report_;
    std::vector<std::unique_ptr<place>> places_;
    device::service_ref service_;
    std::vector<device::owned_sessions> owners_;
    std::vector<held_exchange> held_;
    std::uint32_t next_owner_ = 0;
    std::uint32_t opened_ = 0;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    const std::uint8_t choice = input.byte();
    const engine by = choice / 8 % 2 != 0 ? engine::proxy : engine::direct;
    owner_rig(input, by, shape_of(choice), 1 + choice / 2 % 2).run();
    return 0;
}
