// SPDX-License-Identifier: Apache-2.0
// A channel whose link does what the input says: arrivals with any header, released memory, losses; between
// calls that are begun, submitted, cancelled, polled and released.
#include "calls_link.hpp"
#include "core/client/channel_core.hpp"
#include "core/context_state.hpp"
#include "core/log.hpp"
#include "fake_clock.hpp"
#include "fuzz_target.hpp"
#include "link_poller.hpp"

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace {

using namespace accel;
using namespace accel::core;
using namespace accel::tests::one_channel;
using tests::require;

/// Memory that is lent, kept over all inputs.
struct lent_memory {
    context owner = context::open({.log = log_level::off}).value();
    region bytes = owner.allocate(256).value();
};
const region& lent_region() {
    static const lent_memory memory;
    return memory.bytes;
}

class application {
  public:
    explicit application(tests::input_reader& input) : input_(input) {
        const std::uint8_t first = input_.byte();
        connect_request request;
        request.options.slots = slots;
        request.options.request_bytes = request_bytes;
        request.options.response_bytes = response_bytes;
        request.options.poll = poll_mode::busy;
        request.options.call_timeout = never;
        impatient_ = first % 4 >= 2;
        request.options.close_timeout = impatient_ ? nanoseconds{1'000'000} : std::chrono::hours{1};
        request.requests = slot_memory::over(requests_.data(), slots, request_bytes, request_stride);
        request.responses = slot_memory::over(responses_.data(), slots, response_bytes, response_stride);
        channel_connection made;
        auto path = std::make_unique<calls_link>(input_, calls_, request.requests, request.responses, first % 2 == 0);
        link_ = path.get();
        made.events = std::make_unique<tests::link_poller<calls_link>>(*path);
        made.path = std::move(path);
        made.session.watch = watch_;
        watch_->clock_offset_ns = server_ahead.count();
        channel_ = std::make_unique<channel_core>(std::move(request), std::move(made));
    }

    void run() {
        for (int step = 0; step < 150 && !input_.empty(); ++step) {
            act(input_.byte() % 16);
            check_statistics();
        }
        end();
    }

  private:
    void act(unsigned what) {
        switch (what) {
            case 0:
                return begin();
            case 1:
                return submit();
            case 2:
                return submit_lent();
            case 3:
            case 4:
                return poll(input_.byte() % 4);
            case 5:
                return cancel();
            case 6:
            case 7:
                return release();
            case 8:
            case 9:
                return answer();
            case 10:
                return answer_anything();
            case 11:
                return release_buffer();
            case 12:
                return wait();
            case 13:
                return wait_for();
            case 14:
                clock_.pass(std::chrono::milliseconds{input_.byte()});
                (void)channel_->arm();
                return;
            default:
                return end_early();
        }
    }

    void begin() {
        const auto view = channel_->begin();
        const status got = view.code();
        std::uint32_t free = 0;
        for (const call& each : calls_) free += each.at == call::phase::none && !each.quarantined ? 1 : 0;
        if (channel_->connected()) require((got == status::ok) == (free > 0), "a slot is free, or is not");
        if (got != status::ok) return;
        require(view->id.slot < slots && view->request.size() == request_bytes, "a slot has its room");
        call& made = calls_[view->id.slot];
        require(made.at == call::phase::none && !made.quarantined, "it is nobody else's");
        require(view->id.generation != made.id.generation, "under another generation");
        made = {};
        made.at = call::phase::begun;
        made.id = view->id;
        std::memset(view->request.data(), 0x5a, view->request.size());
    }
    /// Mostly the id of a call there is.
    call_id pick() {
        const std::uint8_t choice = input_.byte();
        call_id id = calls_[choice % slots].id;
        id.slot = choice % slots;
        if (choice >= 240) id.generation += choice;
        if (choice == 250) id.slot = slots;
        if (choice == 251) id.slot = 0xffff'ffff;
        return id;
    }
    /// The call of a current id, or null.
    call* find(call_id id) {
        if (id.slot >= slots || calls_[id.slot].id != id) return nullptr;
        return calls_[id.slot].at == call::phase::none ? nullptr : &calls_[id.slot];
    }
    /// `length`: of the payload.
    submit_options options(std::size_t length) {
        submit_options out;
        switch (input_.byte() % 6) {
            case 1:
                out.timeout = nanoseconds{1};
                break;
            case 2:
                out.timeout = std::chrono::milliseconds{50};
                break;
            case 3:
                out.timeout = never;
                break;
            case 4:
                out.timeout = nanoseconds{-1};
                break;
            case 5:
                payload_.shape[0] = static_cast<std::uint32_t>(length);
                out.tensors = {&payload_, 1};
                break;
            default:
                break;
        }
        out.tag = ++tags_;
        out.trace_id = ~out.tag;
        return out;
    }
    template <class Submit>
    void try_to_submit(call_id id, std::size_t length, const submit_options& with, bool lends, Submit&& submit) {
        call* const asked = find(id);
        const bool begun = asked != nullptr && asked->at == call::phase::begun;
        if (begun) {
            asked->order = ++orders_;
            asked->into = with.response_into.bytes();
        }
        const bool connected = channel_->connected();
        const status got = submit();
        const bool good = begun && connected && length <= request_bytes && with.timeout >= nanoseconds{0};
        require(got != status::ok || good, "only what is right is accepted");
        const bool lost = got == status::peer_lost || (got == status::closed && got == watch_->ended());
        require(got == status::ok || !good || lost, "and all that is, by a connection that lasts");
        if (got != status::ok) return;
        asked->at = call::phase::open;
        asked->tag = with.tag;
        asked->lends = lends;
        asked->short_lived = with.timeout == nanoseconds{1};
        ++accepted_;
    }
    void submit() {
        const call_id id = pick();
        const std::size_t length = input_.byte() % (request_bytes + 2);
        const submit_options with = options(length);
        try_to_submit(id, length, with, false, [&] { return channel_->submit(id, length, with); });
    }
    void submit_lent() {
        const call_id id = pick();
        const std::uint8_t choice = input_.byte();
        const std::size_t length = choice / 4 % (request_bytes + 2);
        submit_options with = options(length);
        const slice whole = lent_region().whole();
        const std::size_t at = id.slot < slots ? std::size_t{id.slot} * 64 : 0;
        if (choice % 4 != 0) with.response_into = whole.part(at, choice % 60).value();
        if (choice % 2 == 0) {
            try_to_submit(id, length, with, !with.response_into.empty(),
                          [&] { return channel_->submit(id, length, with); });
            return;
        }
        const slice payload = whole.part(at, length).value();
        try_to_submit(id, length, with, true, [&] { return channel_->submit(id, payload, with); });
    }

    void poll(std::size_t room) {
        std::array<completion, slots> got;
        const std::size_t count = channel_->poll(std::span{got}.first(room));
        require(count <= room, "no more than there is room for");
        for (std::size_t i = 0; i < count; ++i) take(std::move(got[i]));
    }
    void wait() {
        std::array<completion, slots> got;
        const std::size_t count = channel_->wait(got, std::chrono::microseconds{input_.byte() % 8});
        for (std::size_t i = 0; i < count; ++i) take(std::move(got[i]));
    }
    /// Only for a call that ends by itself.
    void wait_for() {
        call* const asked = find(pick());
        if (asked == nullptr || asked->at != call::phase::open) return;
        if (!asked->short_lived || asked->lends) return;
        take(channel_->wait_for(asked->id));
    }
    void take(completion got) {
        ++completed_;
        require(got.id.slot < slots, "the slot exists");
        call& ended = calls_[got.id.slot];
        require(ended.at == call::phase::open && ended.id == got.id, "one completion for one call");
        require(got.tag == ended.tag && got.trace_id == ~ended.tag, "it is that call's");
        require(impatient_ || !link_->touches(got.id.slot), "lent memory is the application's again");
        require(got.timeline.total >= nanoseconds{0}, "time goes forward");
        ended.at = call::phase::ended;
        ended.holds_arrival = !got.response.empty() || (!ended.owed && link_->holds_arrival(got.id.slot));
        check_response(ended, got.response);
        std::array<tensor, 1> out;
        const status told = got.tensors(out).code();
        // Bytes of a response may look like the head of a table.
        const bool nothing = told == status::not_found || told == status::protocol_error;
        require(got.status == status::ok ? nothing : told == status::invalid_state, "nobody has described a response");
        got.detach();  // until `release`
    }
    void check_response(const call& of, std::span<const std::byte> response) const {
        require(response.size() <= response_bytes, "the response fits");
        unsigned sum = 0;
        for (const std::byte b : response) sum += std::to_integer<unsigned>(b);
        require(sum <= 255 * response_bytes, "all of it can be read");
        if (response.empty() || link_->borrows()) return;
        const auto within = [&](const std::byte* from, std::size_t length) {
            return response.data() >= from && response.data() + response.size() <= from + length;
        };
        require(within(link_->receive().payload(of.id.slot), response_bytes) || within(of.into.data(), of.into.size()),
                "it lies in its slot, or where it was wanted");
    }
    void cancel() {
        const call_id id = pick();
        const call* const asked = find(id);
        const bool open = asked != nullptr && asked->at == call::phase::open;
        const status got = channel_->cancel(id);
        require(got == status::invalid_state || (got == status::ok && open), "only an open call is cancelled");
    }
    void release() {
        const call_id id = pick();
        call* const asked = find(id);
        const bool mine = asked != nullptr && (asked->at == call::phase::begun || asked->at == call::phase::ended);
        const status got = channel_->release(id);
        require(got == (mine ? status::ok : status::invalid_state), "what was begun or has ended, and no other");
        if (!mine) return;
        if (asked->holds_arrival && !asked->owed)
            require(!link_->borrows() || !link_->holds_arrival(id.slot), "its response is given back");
        asked->quarantined = asked->at == call::phase::ended && asked->owed;
        asked->holds_arrival = false;
        asked->at = call::phase::none;
    }

    link_event arrival(std::uint32_t slot) {
        link_event event;
        event.header.kind = message_kind::response;
        event.header.slot = slot;
        event.header.generation = slot < slots ? calls_[slot].id.generation : 0;
        event.header.length = input_.byte() % (response_bytes + 2);
        event.header.arrival_ns = 1'000'000'000'000;
        return event;
    }
    void answer() {
        const std::uint8_t choice = input_.byte();
        link_event event = arrival(choice % slots);
        if (choice >= 128) event.header.code = static_cast<status>(choice % (status_count + 1));
        if (choice >= 224) --event.header.generation;
        link_->queue.push_back(event);
    }
    void answer_anything() {
        link_event event;
        const auto bytes = input_.bytes(sizeof event.header);
        if (!bytes.empty()) std::memcpy(&event.header, bytes.data(), bytes.size());
        link_->queue.push_back(event);
    }
    void release_buffer() {
        const std::uint32_t slot = input_.byte() % slots;
        if (link_->may_release(slot)) link_->queue.push_back(buffer_released_event(nullptr, slot));
    }
    void end_early() {
        const std::uint8_t choice = input_.byte();
        if (choice < 64) link_->queue.push_back(lost_event(nullptr, status::peer_lost));
        if (choice >= 64 && choice < 128) watch_->end(choice < 96 ? status::closed : status::peer_lost);
        if (choice >= 128 && choice < 160) channel_->close();
        if (choice >= 160 && choice < 192) watch_->drain();
        lost_ = lost_ || (choice >= 128 && choice < 160);
    }

    void check_statistics() {
        const channel_statistics told = channel_->statistics();
        require(told.submitted == accepted_ && told.completed == completed_, "calls are counted");
        lost_ = lost_ || channel_->take_event() == channel_event::lost;
        if (lost_) {
            for (call& each : calls_) each.owed = each.quarantined = false;
            return;
        }
        std::uint32_t quarantined = 0;
        for (std::uint32_t slot = 0; slot < slots; ++slot) {
            const call& each = calls_[slot];
            quarantined += each.quarantined ? 1 : 0;
            const bool shown = each.at == call::phase::open || each.holds_arrival;
            require(shown || !link_->holds_arrival(slot), "an arrival that nobody sees is given back");
        }
        require(told.quarantined == quarantined, "slots in quarantine are those that are owed an answer");
    }
    void end() {
        link_->ending = true;
        channel_->close();
        lost_ = true;
        for (int i = 0; i < 3; ++i) poll(slots);
        check_statistics();
        require(accepted_ == completed_, "every accepted call has one completion");
        for (call& each : calls_) {
            require(each.at != call::phase::open, "none is left");
            if (each.at == call::phase::none) continue;
            require(channel_->release(each.id) == status::ok, "what has ended can be released");
            each.at = call::phase::none;
        }
    }

    static constexpr std::size_t request_stride = 256 + 64;
    static constexpr std::size_t response_stride = 256 + 64;
    tests::fake_clock clock_;
    tests::input_reader& input_;
    std::vector<std::byte> requests_ = std::vector<std::byte>(slots * request_stride);
    std::vector<std::byte> responses_ = std::vector<std::byte>(slots * response_stride);
    std::array<call, slots> calls_{};
    calls_link* link_ = nullptr;
    std::shared_ptr<session_watch> watch_ = std::make_shared<session_watch>();
    std::unique_ptr<channel_core> channel_;
    tensor payload_{{type_code::unsigned_integer, 8, 1}, 1, 0, {}};
    bool lost_ = false;       ///< calls in flight have ended
    bool impatient_ = false;  ///< a lost link is given up before it has released lent memory
    std::uint64_t tags_ = 0;
    std::uint64_t orders_ = 0;
    std::uint64_t accepted_ = 0;
    std::uint64_t completed_ = 0;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    (void)lent_region();
    tests::input_reader input(data, size);
    application(input).run();
    return 0;
}
