// SPDX-License-Identifier: Apache-2.0
// A server's worker whose handlers answer in parts, and clients that lend room as the input says: early, late, twice,
// for calls that are not there, take no parts or have ended.
#include "core/context_state.hpp"
#include "core/log.hpp"
#include "fake_clock.hpp"
#include "link_poller.hpp"
#include "worker_links.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

namespace {

using namespace accel;
using namespace accel::core;
using tests::require;

constexpr link_geometry shape{4, 16, 40};

/// What the server has of a slot, as its client knows it.
struct client_slot {
    enum class kind { idle, request, room, part } has = kind::idle;
    bool calls = false;            ///< the last message was a request, not room or a part
    bool parts = false;            ///< of a request
    bool continues = false;        ///< of a request, and of its parts
    std::uint32_t generation = 0;  ///< of the last message
    std::uint64_t came = 0;        ///< parts, of a request
    std::uint64_t told = 0;        ///< … how many there are, once `answered`
    bool answered = false;         ///< parts that waited for the link may come behind the response
    std::uint64_t asked = 0;       ///< parts of the request that have arrived in order
    std::uint32_t call_slot = 0;   ///< of a room, or a part of a request
    std::uint32_t call_generation = 0;
    std::uint32_t bytes = 0;  ///< room for the answer
};

using tests::link_world;

class fake_link final : public tests::worker_link {
  public:
    explicit fake_link(link_world& in) : worker_link(in, shape), world_(in) {}
    status deliver(const outgoing& message) noexcept override { return deliver_plain(message.slot, message.payload); }
    status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override {
        require(!closed() && slot < shape.slots, "a link that is open, a slot that there is");
        client_slot& at = slots[slot];
        const slot_header header = read_header(send().header(slot));
        require(is_of_parts(header, message_kind::response) && header.slot == slot && header.length == payload.size() &&
                    header.generation == at.generation,
                "its header is what a correct server sends");
        require(at.has != client_slot::kind::idle, "one answer for what was sent");
        require(header.length <= at.bytes, "which has room for it");
        const std::uint8_t choice = world_.ending ? std::uint8_t{0} : world_.input.byte() % 16;
        if (choice == 1) return status::again;
        if (at.has == client_slot::kind::room) {
            on_room(at, header);
            at.has = client_slot::kind::idle;
        } else if (at.has == client_slot::kind::part) {
            require(header.flags == 0 && header.code == status::ok && header.length == 0, "a part goes back empty");
            at.has = client_slot::kind::idle;
        } else {
            on_last(at, header);
        }
        return choice == 2 ? status::peer_lost : status::ok;
    }
    void consumed(std::uint32_t slot) noexcept override { require(slot < shape.slots, "the slot exists"); }

    std::array<client_slot, shape.slots> slots{};
    bool careless = false;  ///< its client used a slot anew while parts of its call were on their way

  private:
    void on_room(const client_slot& room, const slot_header& header) {
        client_slot& call = slots[room.call_slot];
        if ((header.flags & header_flag::more) == 0) {
            require(header.code == status::cancelled && header.length == 0, "room that comes back is empty");
            return;
        }
        if (careless) return;
        require(header.code == status::ok, "a part has not failed");
        require(call.has == client_slot::kind::request && call.parts && call.generation == room.call_generation,
                "a part is of a call that waits for it");
        require(!call.answered || header.parts_before < call.told, "the response has counted it");
        const part that{room.call_slot, room.call_generation, header.parts_before};
        require(std::ranges::find(seen_, that) == seen_.end(), "of a number of its own");
        seen_.push_back(that);
        if (++call.came == call.told && call.answered) call.has = client_slot::kind::idle;
    }
    void on_last(client_slot& call, const slot_header& header) {
        require((header.flags & header_flag::more) == 0 && !call.answered, "it ends the call");
        if (call.parts) require(header.parts_before >= call.came, "and counts all parts");
        call.told = call.parts ? header.parts_before : call.came;
        call.answered = true;
        if (careless || call.came == call.told) call.has = client_slot::kind::idle;  // a careless one does not count
    }

    struct part {
        std::uint32_t slot;
        std::uint32_t generation;
        std::uint64_t number;
        bool operator==(const part&) const = default;
    };
    std::vector<part> seen_;
    link_world& world_;
};

/// What the worker polls.
class arrivals {
  public:
    explicit arrivals(link_world& in) : world_(in) {}
    std::size_t take(std::span<link_event> out) noexcept {
        if (world_.events.empty() || out.empty()) return 0;
        out[0] = world_.events.front();
        world_.events.pop_front();
        bring(out[0]);
        return 1;
    }

  private:
    /// The server has it from now on, if it is what a correct client sends.
    void bring(link_event& event) {
        auto& to = *static_cast<session*>(event.owner);
        if (event.kind != event_kind::arrived || to.gone()) return;
        const slot_header& header = event.header;
        if (header.slot >= shape.slots) return;
        if (header.length > shape.request_bytes) {
            event = lost_event(event.owner, status::protocol_error);
            return;
        }
        event.payload = {bytes_.data(), header.length};
        auto& path = static_cast<fake_link&>(to.path());
        client_slot& at = path.slots[header.slot];
        if (at.has == client_slot::kind::request && at.answered) {
            path.careless = true;
            at.has = client_slot::kind::idle;
        }
        if (at.has != client_slot::kind::idle || at.generation == header.generation) return;
        if (!is_of_parts(header, message_kind::request) || header.response_room > shape.response_bytes) return;
        at.generation = header.generation;
        at.bytes = header.response_room;
        at.came = at.told = at.asked = 0;
        at.answered = false;
        at.parts = (header.flags & header_flag::parts) != 0;
        at.continues = (header.flags & header_flag::continues) != 0;
        at.has = client_slot::kind::request;
        at.calls = (header.flags & (header_flag::more | header_flag::part)) == 0;
        if (at.calls) return;
        at.has = (header.flags & header_flag::part) != 0 ? client_slot::kind::part : client_slot::kind::room;
        at.call_slot = static_cast<std::uint32_t>(header.parts_call) % shape.slots;
        at.call_generation = static_cast<std::uint32_t>(header.parts_call >> 32);
    }
    link_world& world_;
    std::array<std::byte, shape.request_bytes> bytes_{};
};

/// Waits for room, or for a part of a request. Nobody is called twice.
struct waiting : exchange::part_waiter {
    waiting() : part_waiter{[](part_waiter& self) noexcept { static_cast<waiting&>(self).on_room(); }} {}
    void on_room() noexcept {
        require(waits, "whoever is called has waited");
        waits = false;
    }
    bool waits = false;
};

class serving final : tests::observed_sessions {
  public:
    explicit serving(tests::input_reader& input) : observed_sessions(world_), world_(input), input_(input) {
        server_options options;
        options.poll = poll_mode::busy;
        const handler service = [this](exchange one) { handle(std::move(one)); };
        worker_ = new worker(nullptr, options, service);
        worker_->add_source(std::make_unique<tests::link_poller<arrivals>>(arrivals_));
        worker_->observe(this);
        for (int i = 0; i < 2; ++i) install();
        (void)worker_->progress();
    }
    ~serving() override { worker_->release_ref(); }
    serving(const serving&) = delete;
    serving& operator=(const serving&) = delete;

    void run() {
        for (int step = 0; step < 150 && !input_.empty(); ++step) act(input_.byte() % 22);
        end();
    }

  private:
    struct kept_exchange {
        explicit kept_exchange(exchange made) : one(std::move(made)) {}
        exchange one;
        waiting waiter;
        waiting request_waiter;
    };

    void act(unsigned what) {
        switch (what) {
            case 0:
            case 1:
                return ask();
            case 2:
            case 3:
            case 4:
                return lend();
            case 5:
                return send_anything();
            case 6:
            case 7:
            case 8:
                (void)worker_->progress();
                return;
            case 9:
            case 10:
                if (!kept_.empty()) send_part(pick_kept());
                return;
            case 11:
                if (!kept_.empty()) await(pick_kept());
                return;
            case 12:
                if (!kept_.empty()) settle(input_.byte() % kept_.size());
                return;
            case 13:
                clock_.pass(std::chrono::milliseconds{input_.byte()});
                return;
            case 14:
                if (!sessions_.empty() && input_.byte() < 32)
                    world_.events.push_back(lost_event(&pick(), status::peer_lost));
                return;
            case 15:
                if (installed_ < 4) install();
                return;
            case 16:
            case 17:
                return ask_more();
            case 18:
            case 19:
                if (!kept_.empty()) receive(pick_kept());
                return;
            case 20:
                if (!kept_.empty()) await_request(pick_kept());
                return;
            default:
                if (!taken_.empty()) release(input_.byte() % taken_.size());
                return;
        }
    }

    void install() {
        auto made = std::make_unique<session>(*worker_, ++installed_, "fuzz", client_identity{"", "peer"}, shape);
        auto path = std::make_unique<fake_link>(world_);
        path->owner = made.get();
        made->set_link(std::move(path));
        sessions_.push_back(made.get());
        worker_->install(std::move(made));
    }
    static client_slot& slot_of(const session& of, std::uint32_t slot) {
        return static_cast<fake_link&>(of.path()).slots[slot % shape.slots];
    }

    // Clients.

    link_event message(session& to, std::uint8_t choice) const {
        link_event event;
        event.owner = &to;
        slot_header& header = event.header;
        header.slot = choice % shape.slots;
        header.generation = slot_of(to, header.slot).generation + 1;
        header.response_room = shape.response_bytes;
        header.deadline_ns = never.count();
        return event;
    }
    void ask() {
        if (sessions_.empty()) return;
        const std::uint8_t choice = input_.byte();
        link_event event = message(pick(), choice);
        event.header.length = choice % 8;
        if (choice < 192) event.header.flags = header_flag::parts;
        if (choice % 3 == 1) event.header.flags |= header_flag::continues;
        if (choice % 32 == 9) event.header.deadline_ns = 0;
        if (choice % 32 == 11) event.header.response_room = 3;
        world_.events.push_back(event);
    }
    /// A part of a request, mostly of the call that is in its slot, or comes next.
    void ask_more() {
        if (sessions_.empty()) return;
        session& to = pick();
        const std::uint8_t choice = input_.byte();
        link_event event = message(to, choice);
        slot_header& header = event.header;
        const std::uint32_t call = (header.slot + 1 + choice / 8 % (shape.slots - 1)) % shape.slots;
        std::uint32_t generation = slot_of(to, call).generation;
        if (choice % 16 == 3) ++generation;
        if (choice % 16 == 5) --generation;
        header.flags = header_flag::part;
        if (choice % 8 != 7) header.flags |= header_flag::continues;
        header.length = choice % 8;
        header.response_room = 0;
        header.parts_call = parts_call_of(choice == 247 ? header.slot : call, generation);
        header.request_parts_before = slot_of(to, call).asked++;
        if (choice >= 224) header.request_parts_before += choice % 4;
        if (choice == 246) header.parts_call = parts_call_of(shape.slots, generation);
        if (choice == 243) header.flags |= header_flag::parts;
        if (choice == 242) --header.generation;
        world_.events.push_back(event);
    }
    /// Mostly for the call that is in its slot, or comes next.
    void lend() {
        if (sessions_.empty()) return;
        session& to = pick();
        const std::uint8_t choice = input_.byte();
        link_event event = message(to, choice);
        slot_header& header = event.header;
        const std::uint32_t call = (header.slot + 1 + choice / 8 % (shape.slots - 1)) % shape.slots;
        std::uint32_t generation = slot_of(to, call).generation;
        if (choice % 8 < 3) ++generation;
        if (choice >= 248) generation += 7;
        header.flags = header_flag::more;
        header.parts_call = parts_call_of(choice == 247 ? header.slot : call, generation);
        if (choice == 246) header.parts_call = parts_call_of(shape.slots, generation);
        if (choice == 245) header.length = 1;
        if (choice == 244) header.response_room = shape.response_bytes + 1;
        if (choice == 243) header.flags |= header_flag::parts;
        if (choice == 242) --header.generation;
        if (choice == 241) header.response_room = 0;
        world_.events.push_back(event);
    }
    void send_anything() {
        if (sessions_.empty()) return;
        link_event event;
        event.owner = &pick();
        const auto bytes = input_.bytes(sizeof event.header);
        if (!bytes.empty()) std::memcpy(&event.header, bytes.data(), bytes.size());
        world_.events.push_back(event);
    }

    // Handlers.

    void handle(exchange one) {
        kept_.push_back(std::make_unique<kept_exchange>(std::move(one)));
        if (input_.byte() % 4 == 0) settle(kept_.size() - 1);
    }
    kept_exchange& pick_kept() { return *kept_[input_.byte() % kept_.size()]; }
    void send_part(kept_exchange& at) {
        if (at.waiter.waits) return;
        const std::span<std::byte> room = at.one.part();
        require(room.size() <= shape.response_bytes, "the room is no larger than agreed");
        std::ranges::fill(room, std::byte{0x5a});
        if (!room.empty()) require(at.one.send(room.size() + 1) != status::ok, "a part has to fit");
        const std::uint8_t choice = input_.byte();
        const status sent = at.one.send(choice % (room.size() + 1));
        require(sent != status::ok || at.one.in_parts(), "parts are for those who take them");
        require(sent != status::unsupported || !at.one.in_parts(), "and for all of them");
    }
    static void await(kept_exchange& at) {
        if (at.waiter.waits) return;
        at.waiter.waits = true;
        if (at.one.await_part(at.waiter)) at.waiter.waits = false;
    }
    void receive(kept_exchange& at) {
        if (at.request_waiter.waits) return;
        const bool continues = at.one.continues();
        request_part part = at.one.receive();
        require(!part || (continues && part.status() == status::ok), "parts are of requests that continue");
        require(part || part.status() != status::ok, "and else there is a reason");
        require(part.bytes().size() <= shape.request_bytes, "as long as agreed");
        if (!part) return;
        require(part.last() != at.one.continues(), "nothing follows the last");
        taken_.push_back(std::move(part));
    }
    static void await_request(kept_exchange& at) {
        if (at.request_waiter.waits) return;
        at.request_waiter.waits = true;
        if (at.one.await_request_part(at.request_waiter)) at.request_waiter.waits = false;
    }
    void release(std::size_t which) {
        std::swap(taken_[which], taken_.back());
        taken_.pop_back();
    }
    static void drop(exchange /*abandoned*/) {}
    void settle(std::size_t which) {
        std::unique_ptr<kept_exchange> at = std::move(kept_[which]);
        kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(which));
        const std::uint8_t choice = input_.byte();
        const std::size_t room = at->one.response().size();
        if (choice % 4 == 0)
            (void)at->one.fail(status::application_error, choice, "no such luck");
        else if (choice % 4 == 1)
            drop(std::move(at->one));
        else
            (void)at->one.reply(choice % (room + 1));
        ended_.push_back(std::move(at));  // whoever waits is called when the answer has left
    }

    void end() {
        world_.ending = true;
        taken_.clear();  // each holds its session, also one that is lost
        for (int i = 0; i < 100 && (!kept_.empty() || worker_->holds_exchanges() || !world_.events.empty()); ++i) {
            (void)worker_->progress();
            while (!kept_.empty()) settle(0);
        }
        for (int i = 0; i < 10; ++i) (void)worker_->progress();
        require(!worker_->holds_exchanges(), "every exchange has ended");
        for (const session* each : sessions_) {
            if (each->gone()) continue;
            for (std::uint32_t slot = 0; slot < shape.slots; ++slot) {
                const client_slot& at = slot_of(*each, slot);
                require(at.has != client_slot::kind::request, "every request has its answer");
                const client_slot& call = slot_of(*each, at.call_slot);
                const bool part = at.has == client_slot::kind::part;
                const bool early =
                    !call.calls || call.generation != at.call_generation || !(part ? call.continues : call.parts);
                require(at.has == client_slot::kind::idle || early, "all slots of a call come back");
            }
        }
        worker_->stop();
        for (const auto& each : ended_)
            require(!each->waiter.waits && !each->request_waiter.waits, "whoever waited has been called");
        require(world_.lost == installed_ && world_.freed == installed_ && world_.links.empty(),
                "each session is lost once, and freed once");
    }

    tests::fake_clock clock_;
    link_world world_;
    arrivals arrivals_{world_};
    tests::input_reader& input_;
    worker* worker_ = nullptr;
    std::vector<std::unique_ptr<kept_exchange>> kept_;
    std::vector<std::unique_ptr<kept_exchange>> ended_;
    std::vector<request_part> taken_;  ///< by handlers
    std::uint64_t installed_ = 0;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    serving(input).run();
    return 0;
}
