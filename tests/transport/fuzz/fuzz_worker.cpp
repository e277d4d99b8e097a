// SPDX-License-Identifier: Apache-2.0
// A server's worker with two sessions whose links do what the input says: requests with any header, memory
// released, losses; between handlers that answer at once, later, from elsewhere, with lent memory or never.
#include "core/context_state.hpp"
#include "core/log.hpp"
#include "fake_clock.hpp"
#include "link_poller.hpp"
#include "worker_links.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

namespace {

using namespace accel;
using namespace accel::core;
using tests::require;

constexpr link_geometry shape{3, 40, 56};
constexpr std::uint32_t max_open = 4;

/// Memory that is lent, kept over all inputs.
struct lent_memory {
    context owner = context::open({.log = log_level::off}).value();
    region bytes = owner.allocate(256).value();
};
const region& lent_region() {
    static const lent_memory memory;
    return memory.bytes;
}

/// What is known of one slot of a session.
struct slot_record {
    bool open = false;  ///< a request was admitted, and no answer has left
    bool known = false;
    std::uint32_t generation = 0;
    std::uint32_t room = 0;
    std::uint64_t trace_id = 0;
    std::unique_ptr<std::byte[]> request;  ///< what the link lends to the worker
    bool release_owed = false;
};

/// What was counted.
struct world : tests::link_world {
    using link_world::link_world;
    std::uint64_t admitted = 0;
    std::uint64_t named = 0;    ///< … for the target that is known
    std::uint64_t served = 0;   ///< by a handler
    std::uint64_t refused = 0;  ///< too late, or too many
    std::uint64_t answered = 0;
    std::uint64_t dropped = 0;  ///< answers of clients that were gone
    /// One event at a time. Else an event may be passed over, for the session that it was for was lost by one
    /// before it, and what is expected is less exact.
    bool exact = true;
};

class fake_link final : public tests::worker_link {
  public:
    explicit fake_link(world& in) : worker_link(in, shape), world_(in) {}
    bool close() noexcept override {
        if (!worker_link::close()) return false;
        for (slot_record& each : records) each.release_owed = false;
        return true;
    }
    status deliver(const outgoing& message) noexcept override {
        check(message);
        slot_record& record = records[message.slot];
        const slot_header header = read_header(send().header(message.slot));
        switch (world_.ending ? 0 : world_.input.byte() % 8) {
            case 1:
                return status::again;
            case 2:
                record.open = false;
                ++world_.dropped;
                return status::peer_lost;
            default:
                break;
        }
        record.open = false;
        ++world_.answered;
        require(header.extension_bytes == message.extension_bytes, "the link is told of all extensions");
        const bool lends = message.region != nullptr && !message.payload.empty();
        if (lends) require(!record.release_owed, "a slot lends memory once at a time");
        record.release_owed = record.release_owed || lends;
        return status::ok;
    }
    status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override {
        return deliver({slot, payload, nullptr, {}});
    }
    void consumed(std::uint32_t slot) noexcept override {
        require(slot < shape.slots, "the slot exists");
        records[slot].request.reset();
        if (gone == nullptr || !gone->gone()) return;
        if (records[slot].open) ++world_.dropped;
        records[slot].open = false;
    }

    std::array<slot_record, shape.slots> records{};
    session* gone = nullptr;  ///< the session of this link

  private:
    void check(const outgoing& message) const {
        require(!closed(), "a closed link is given nothing");
        require(message.slot < shape.slots, "the slot exists");
        const slot_record& record = records[message.slot];
        require(record.open, "an answer is for a request that was admitted, and the first");
        require(record.request == nullptr, "the request was given back before its answer left");
        const slot_header header = read_header(send().header(message.slot));
        require(is_well_formed(header, message_kind::response) && header.slot == message.slot &&
                    header.generation == record.generation && header.length == message.payload.size() &&
                    header.trace_id == record.trace_id && header.length <= record.room,
                "its header is what a correct server sends");
        unsigned sum = 0;
        for (const std::byte b : message.payload) sum += std::to_integer<unsigned>(b);
        require(sum <= 255 * shape.response_bytes, "all of it can be read");
    }

    world& world_;
};

/// What the worker polls.
class arrivals {
  public:
    explicit arrivals(world& in) : world_(in) {}
    std::size_t take(std::span<link_event> out) noexcept {
        std::size_t count = 0;
        while (!world_.events.empty() && count < out.size()) {
            out[count] = world_.events.front();
            world_.events.pop_front();
            if (bring(out[count])) ++count;
            if (count > 0 && (world_.exact || out[count - 1].kind == event_kind::lost)) break;
        }
        return count;
    }

  private:
    /// What the transport does with an event before the worker sees it. False: it has been taken back.
    bool bring(link_event& event) {
        auto& to = *static_cast<session*>(event.owner);
        auto& path = static_cast<fake_link&>(to.path());
        const std::uint32_t slot = event.header.slot;
        if (event.kind == event_kind::buffer_released) return std::exchange(path.records[slot].release_owed, false);
        if (event.kind != event_kind::arrived || to.gone() || slot >= shape.slots) return true;
        slot_record& record = path.records[slot];
        const std::size_t length = event.header.length;
        if (length > shape.request_bytes || record.request != nullptr) {
            event = lost_event(event.owner, status::protocol_error);
            return true;
        }
        auto bytes = std::make_unique<std::byte[]>(length + 1);
        event.payload = {bytes.get(), length};
        const slot_header& header = event.header;
        const bool admitted = is_well_formed(header, message_kind::request) &&
                              header.response_room <= shape.response_bytes && !record.open &&
                              record.generation != header.generation;
        record.request = std::move(bytes);
        if (!admitted) return true;
        record.open = true;
        record.generation = header.generation;
        record.room = header.response_room;
        record.trace_id = header.trace_id;
        ++world_.admitted;
        if (header.target == target_of("known").number) ++world_.named;
        return true;
    }
    world& world_;
};

class serving final : tests::observed_sessions {
  public:
    explicit serving(tests::input_reader& input) : observed_sessions(world_), world_(input), input_(input) {
        world_.exact = input_.byte() % 2 == 0;
        server_options options;
        options.poll = poll_mode::busy;
        options.max_exchanges = max_open;
        const handler service = [this](exchange one) { handle(std::move(one)); };
        const handler named = [this](exchange one) {
            ++named_;
            handle(std::move(one));
        };
        worker_ = new worker(nullptr, options, service);
        const std::vector known{std::make_shared<served_target>("known", named, 0)};
        target_table::publication list = worker_->targets().changed(known, {}, "it has known");
        worker_->publish_targets(list);
        worker_->add_source(std::make_unique<tests::link_poller<arrivals>>(arrivals_));
        worker_->observe(this);
        for (int i = 0; i < 2; ++i) install();
        (void)worker_->progress();
    }
    ~serving() override { worker_->release_ref(); }
    serving(const serving&) = delete;
    serving& operator=(const serving&) = delete;

    void run() {
        for (int step = 0; step < 150 && !input_.empty(); ++step) {
            act(input_.byte() % 16);
            check();
        }
        end();
    }

  private:
    void act(unsigned what) {
        switch (what) {
            case 0:
            case 1:
            case 2:
                return arrive();
            case 3:
                return arrive_anything();
            case 4:
            case 5:
            case 6:
                (void)worker_->progress();
                return;
            case 7:
            case 8:
                if (!kept_.empty()) settle(take_kept());
                return;
            case 9:
            case 10:
                return release_buffer();
            case 11:
                return lose();
            case 12:
                clock_.pass(std::chrono::milliseconds{input_.byte()});
                return;
            case 13:
                if (installed_ < 5) install();
                return;
            case 14:
                if (input_.byte() == 7) worker_->refuse_requests();
                return;
            default:
                if (!sessions_.empty() && input_.byte() < 64) worker_->close_session(pick().id(), status::closed);
                return;
        }
    }

    void install() {
        auto made = std::make_unique<session>(*worker_, ++installed_, "fuzz", client_identity{"", "peer"}, shape);
        auto path = std::make_unique<fake_link>(world_);
        path->owner = path->gone = made.get();
        made->set_link(std::move(path));
        sessions_.push_back(made.get());
        worker_->install(std::move(made));
    }
    static fake_link& link_of(const session& of) { return static_cast<fake_link&>(of.path()); }

    /// A request as a correct client sends it, but for what the input says.
    void arrive() {
        if (sessions_.empty()) return;
        session& to = pick();
        const std::uint8_t choice = input_.byte();
        link_event event;
        event.owner = &to;
        slot_header& header = event.header;
        header.slot = choice % shape.slots;
        header.generation = link_of(to).records[header.slot].generation + 1;
        header.length = input_.byte() % (shape.request_bytes + 1);
        header.response_room = input_.byte() % (shape.response_bytes + 2);
        header.trace_id = ++traces_;
        if (choice % 16 == 5) header.target = target_of("known").number;
        if (choice % 16 == 6) header.target = target_of("unknown").number;
        header.deadline_ns = never.count();
        if (choice >= 128) header.deadline_ns = now().count() + std::int64_t{choice} * 1'000'000;
        if (choice >= 192) header.deadline_ns = std::int64_t{choice} - 210;
        if (choice >= 250) --header.generation;
        if (choice == 249) header.slot = shape.slots;
        world_.events.push_back(event);
    }
    void arrive_anything() {
        if (sessions_.empty()) return;
        link_event event;
        event.owner = &pick();
        const auto bytes = input_.bytes(sizeof event.header);
        if (!bytes.empty()) std::memcpy(&event.header, bytes.data(), bytes.size());
        world_.events.push_back(event);
    }
    void release_buffer() {
        if (sessions_.empty()) return;
        session& of = pick();
        const std::uint32_t slot = input_.byte() % shape.slots;
        if (link_of(of).records[slot].release_owed) world_.events.push_back(buffer_released_event(&of, slot));
    }
    void lose() {
        if (sessions_.empty() || input_.byte() >= 64) return;
        world_.events.push_back(lost_event(&pick(), status::peer_lost));
    }

    void handle(exchange one) {
        ++world_.served;
        check(one);
        const std::uint8_t choice = input_.byte();
        if (choice % 4 == 0) return kept_.push_back(std::move(one));
        settle(std::move(one));
        if (choice % 4 == 1 && !kept_.empty()) settle(take_kept());
    }
    static void check(const exchange& one) {
        unsigned sum = 0;
        for (const std::byte b : one.request()) sum += std::to_integer<unsigned>(b);
        require(one.request().size() <= shape.request_bytes && sum <= 255 * shape.request_bytes,
                "all of the request can be read");
        require(one.response().size() <= shape.response_bytes, "the room is no larger than agreed");
        if (!one.response().empty()) std::memset(one.response().data(), 0x5a, one.response().size());
        require(one.time_left() >= nanoseconds{0}, "time that is left is not negative");
        std::array<tensor, 1> out;
        require(!one.tensors(out), "nobody has described a request");
    }
    exchange take_kept() {
        const std::size_t at = input_.byte() % kept_.size();
        exchange one = std::move(kept_[at]);
        kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(at));
        return one;
    }
    /// Ends an exchange, in one of the ways there are.
    void settle(exchange one) {
        check(one);
        const std::uint8_t choice = input_.byte();
        const std::size_t room = one.response().size();
        switch (choice % 6) {
            case 0:
                (void)one.fail(static_cast<status>(choice / 6 % status_count), choice, "no such luck");
                return;
            case 1:
                return;  // abandoned
            case 2:
                require(one.reply(room + 1) == status::message_too_large, "a reply has to fit");
                if (choice >= 128) describe(one, room);
                (void)one.reply(room);
                return;
            case 3:
            case 4:
                return reply_lent(std::move(one), choice);
            default:
                (void)one.reply(choice % (room + 1));
                return;
        }
    }
    static void describe(exchange& one, std::size_t length) {
        const tensor all{{type_code::unsigned_integer, 8, 1}, 1, 0, {static_cast<std::uint32_t>(length)}};
        const status told = one.describe(length, {&all, 1});
        require(told == status::ok || told == status::invalid_argument || told == status::peer_lost,
                "no other outcome");
    }
    void reply_lent(exchange one, std::uint8_t choice) {
        const std::size_t length = choice % (one.response().size() + 2);
        const status sent = one.reply(lent_region().whole().part(choice % 64, length).value(), leases_);
        if (sent == status::message_too_large) (void)one.reply(0);
    }

    void check() const {
        std::uint32_t touched = 0;
        for (const tests::worker_link* each : world_.links)
            for (const slot_record& slot : static_cast<const fake_link*>(each)->records)
                touched += slot.release_owed ? 1 : 0;
        require(leases_.load() >= touched, "what the transport reads is still lent");
        server_statistics told;
        worker_->counters().add_to(told);
        require(told.requests == world_.served, "requests are counted");
        require(told.replies == world_.answered, "replies are counted");
        require(named_ <= world_.named, "a target's handler gets its own requests");
        require(told.requests + told.expired + told.overloaded + told.not_found <= world_.admitted,
                "each request once");
    }

    /// Everything that is open ends, and nothing stays behind.
    void end() {
        world_.ending = true;
        while (!kept_.empty()) settle(take_kept());
        for (int i = 0; i < 100 && (worker_->holds_exchanges() || !world_.events.empty()); ++i) {
            (void)worker_->progress();
            while (!kept_.empty()) settle(take_kept());
            for (session* each : sessions_) {
                for (std::uint32_t slot = 0; slot < shape.slots; ++slot)
                    if (link_of(*each).records[slot].release_owed)
                        world_.events.push_back(buffer_released_event(each, slot));
            }
        }
        require(!worker_->holds_exchanges(), "every exchange has ended");
        check();
        server_statistics told;
        worker_->counters().add_to(told);
        const std::uint64_t taken = told.requests + told.expired + told.overloaded + told.not_found;
        if (world_.exact) require(taken == world_.admitted, "every request that was admitted was served or refused");
        require(world_.answered + world_.dropped == taken, "and has one end");
        worker_->stop();
        require(leases_.load() == 0, "nothing is lent any more");
        require(world_.lost == installed_ && world_.freed == installed_ && world_.links.empty(),
                "each session is lost once, and freed once");
    }

    tests::fake_clock clock_;
    world world_;
    arrivals arrivals_{world_};
    tests::input_reader& input_;
    worker* worker_ = nullptr;
    std::vector<exchange> kept_;
    std::atomic<std::uint32_t> leases_{0};
    std::uint64_t installed_ = 0;
    std::uint64_t traces_ = 0;
    std::uint64_t named_ = 0;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    (void)lent_region();
    tests::input_reader input(data, size);
    serving(input).run();
    return 0;
}
