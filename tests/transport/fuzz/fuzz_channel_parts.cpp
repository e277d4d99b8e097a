// SPDX-License-Identifier: Apache-2.0
// A channel that takes responses in parts, from a server that does what the input says: parts in any order, more than
// there is room for, early, late and twice; room that comes back; responses that count wrongly. It sends requests in
// parts, too, whose slots come back at any time.
#include "core/client/channel_core.hpp"
#include "core/context_state.hpp"
#include "core/log.hpp"
#include "fake_clock.hpp"
#include "fuzz_target.hpp"
#include "link_poller.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace {

using namespace accel;
using namespace accel::core;
using tests::require;

constexpr std::uint32_t slots = 5;
constexpr std::size_t request_bytes = 16;
constexpr std::size_t response_bytes = 40;
constexpr std::size_t stride = 256 + 64;

/// What every part and response begins with.
struct told {
    std::uint32_t slot = 0;  ///< of its call
    std::uint32_t generation = 0;
    std::uint64_t number = 0;
};

/// What the server has of a slot.
struct server_slot {
    enum class kind { idle, request, room, part } has = kind::idle;
    std::uint32_t generation = 0;
    std::uint64_t sent = 0;   ///< parts, of a request
    call_id call;             ///< of a room, or a part of a request
    bool continues = false;   ///< a part of the request follows
    std::uint64_t asked = 0;  ///< parts of the request
};

/// The transport, with the server behind it.
class fake_link final : public core::link {
  public:
    fake_link(tests::input_reader& input, std::shared_ptr<slot_memory> send, std::shared_ptr<slot_memory> receive,
              bool borrows)
        : input_(input), send_(std::move(send)), receive_(std::move(receive)), borrows_(borrows) {}

    link_description describe() const override { return {}; }
    result<void> attach(const link_grant&, nanoseconds) override { return {}; }
    void activate() override {}
    bool close() noexcept override {
        closed_ = closed_ || ending || input_.byte() % 2 == 0;
        queue.clear();
        return closed_;
    }
    status deliver(const outgoing& message) noexcept override {
        require(message.region == nullptr && message.response_into.empty(), "nothing is lent");
        return deliver_plain(message.slot, message.payload);
    }
    status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override {
        require(!closed_ && slot < slots, "a link that is open, a slot that there is");
        const slot_header header = read_header(send_->header(slot));
        server_slot& to = at[slot];
        require(is_of_parts(header, message_kind::request) && header.slot == slot && header.length == payload.size() &&
                    payload.size() <= request_bytes,
                "a correct client sends it");
        require(!exact || to.has == server_slot::kind::idle, "the server has nothing in that slot");
        require(to.generation != header.generation, "and it was another generation's");
        const std::uint8_t choice = ending || failed_ ? 0 : input_.byte() % 16;
        if (choice == 1) return status::again;
        failed_ = failed_ || choice == 2;
        if (failed_) return status::peer_lost;
        const bool continues = (header.flags & header_flag::continues) != 0;
        to = {server_slot::kind::request, header.generation, 0, {}, continues, 0};
        if ((header.flags & (header_flag::more | header_flag::part)) == 0) return status::ok;
        to.call = {static_cast<std::uint32_t>(header.parts_call), static_cast<std::uint32_t>(header.parts_call >> 32)};
        require(to.call.slot < slots && to.call.slot != slot && to.call.generation != 0, "it is for another slot");
        if ((header.flags & header_flag::part) != 0) return take_part(to, header);
        to.has = server_slot::kind::room;
        require(header.response_room == response_bytes, "for the longest part");
        return status::ok;
    }
    bool retract(std::uint32_t) noexcept override { return true; }
    void consumed(std::uint32_t slot) noexcept override {
        require(slot < slots, "the slot exists");
        require(!borrows_ || held_[slot] != nullptr, "an arrival is given back once");
        held_[slot].reset();
    }
    slot_memory& send() const noexcept override { return *send_; }
    slot_memory& receive() const noexcept override { return *receive_; }

    std::size_t take(std::span<link_event> out) {
        std::size_t count = 0;
        while (!queue.empty() && count < std::min(out.size(), at_once)) {
            out[count] = queue.front();
            queue.pop_front();
            bring(out[count]);
            if (out[count++].kind == event_kind::arrived) continue;
            queue.clear();
            break;
        }
        return count;
    }
    [[nodiscard]] bool holds(std::uint32_t slot) const { return held_[slot] != nullptr; }
    [[nodiscard]] bool borrows() const { return borrows_; }
    void fail() {
        failed_ = true;
        queue.push_back(lost_event(nullptr, status::peer_lost));
    }
    /// It takes nothing more. The channel ends once the control plane could have told it why.
    [[nodiscard]] bool failed() const { return failed_; }

    std::array<server_slot, slots> at{};
    std::array<call_id, slots> calls{};  ///< whose a response in that slot is
    std::deque<link_event> queue;
    std::size_t at_once = ~std::size_t{0};  ///< so many events come with one look
    bool ending = false;                    ///< it has room, and closes at once
    bool exact = true;                      ///< the server has been correct

  private:
    status take_part(server_slot& part, const slot_header& header) noexcept {
        server_slot& of = at[part.call.slot];
        part.has = server_slot::kind::part;
        // Its call may have been answered, and the slot be in another use.
        if (of.generation != part.call.generation) return status::ok;
        require(of.continues, "the part before it said that it comes");
        require(header.request_parts_before == of.asked++, "parts leave in their order");
        of.continues = (header.flags & header_flag::continues) != 0;
        return status::ok;
    }
    void bring(link_event& event) {
        const slot_header& header = event.header;
        if (event.kind != event_kind::arrived || header.slot >= slots) return;
        const std::size_t length = header.length;
        if (length > response_bytes || (borrows_ && held_[header.slot] != nullptr)) {
            event = lost_event(nullptr, status::protocol_error);
            return;
        }
        std::byte* to = receive_->payload(header.slot);
        if (borrows_ && is_of_parts(header, message_kind::response)) {
            held_[header.slot] = std::make_unique<std::byte[]>(length + 1);
            to = held_[header.slot].get();
        }
        event.borrowed = borrows_;
        event.payload = {to, length};
        const told what{calls[header.slot].slot, calls[header.slot].generation, header.parts_before};
        if (length >= sizeof what) std::memcpy(to, &what, sizeof what);
    }

    tests::input_reader& input_;
    std::shared_ptr<slot_memory> send_;
    std::shared_ptr<slot_memory> receive_;
    bool borrows_;
    bool closed_ = false;
    bool failed_ = false;
    std::array<std::unique_ptr<std::byte[]>, slots> held_{};
};

class application {
  public:
    explicit application(tests::input_reader& input) : input_(input) {
        connect_request request;
        request.options.slots = slots;
        request.options.request_bytes = request_bytes;
        request.options.response_bytes = response_bytes;
        request.options.poll = poll_mode::busy;
        request.options.call_timeout = never;
        request.requests = slot_memory::over(requests_.data(), slots, request_bytes, stride);
        request.responses = slot_memory::over(responses_.data(), slots, response_bytes, stride);
        channel_connection made;
        auto path = std::make_unique<fake_link>(input_, request.requests, request.responses, input_.byte() % 2 == 0);
        link_ = path.get();
        made.events = std::make_unique<tests::link_poller<fake_link>>(*path);
        made.path = std::move(path);
        made.session.watch = watch_;
        channel_ = std::make_unique<channel_core>(std::move(request), std::move(made));
    }

    void run() {
        for (int step = 0; step < 150 && !input_.empty(); ++step) act(input_.byte() % 20);
        end();
    }

  private:
    /// A call that was accepted and has not had its last completion.
    struct open_call {
        call_id id;
        bool parts = false;
        bool continues = false;  ///< its request, after the parts that were sent
        std::uint64_t next = 0;  ///< number of the part that comes next
    };

    void act(unsigned what) {
        switch (what) {
            case 0:
            case 1:
                return submit();
            case 2:
            case 3:
                return look(input_.byte());
            case 4:
            case 5:
                if (!held_.empty()) release(input_.byte() % held_.size());
                return;
            case 6:
                if (!open_.empty()) (void)channel_->cancel(open_[input_.byte() % open_.size()].id);
                return;
            case 7:
            case 8:
            case 9:
                return send_part(input_.byte());
            case 10:
                return answer(input_.byte());
            case 11:
                return return_room(input_.byte());
            case 12:
                return spoil(input_.byte());
            case 13:
                return anything();
            case 14:
                clock_.pass(std::chrono::milliseconds{input_.byte()});
                (void)channel_->arm();
                return;
            case 15:
                return lose(input_.byte());
            case 16:
                return return_part(input_.byte());
            default:
                if (!open_.empty()) ask(open_[input_.byte() % open_.size()], input_.byte());
                return;
        }
    }

    // The application.

    void submit() {
        const auto view = channel_->begin();
        if (!view) return;
        const std::uint8_t choice = input_.byte();
        submit_options with;
        with.parts = choice % (slots + 1);
        with.continues = choice / 8 % 3 == 1;
        if (choice >= 128) with.timeout = std::chrono::milliseconds{50};
        if (choice >= 192) with.part_timeout = std::chrono::milliseconds{10};
        const status got = channel_->submit(view->id, choice % request_bytes, with);
        require(with.parts + (with.continues ? 1 : 0) < slots || got != status::ok, "a call has a slot of its own");
        if (got == status::ok)
            open_.push_back({view->id, with.parts > 0, with.continues});
        else
            require(channel_->release(view->id) == status::ok, "what was begun can be released");
    }
    /// A part of its request.
    void ask(open_call& call, std::uint8_t choice) {
        const auto part = channel_->begin_part(call.id);
        require(part || part.error() == status::again || part.error() == status::invalid_state, "or it has ended");
        if (!part) return;
        require(call.continues, "nothing follows the last part");
        if (choice >= 240) {
            require(channel_->release(part->id) == status::ok, "what was begun can be released");
            return;
        }
        require(channel_->submit_part(part->id, request_bytes + 1, {}) != status::ok, "a part has to fit");
        std::ranges::fill(part->request, std::byte{0x5a});
        call.continues = choice >= 64;
        const status got = channel_->submit_part(part->id, choice % request_bytes, {.last = !call.continues});
        require(got == status::ok, "its call takes it");
    }
    /// May see one event alone, so that parts wait for others.
    void look(std::uint8_t choice) {
        link_->at_once = choice >= 192 ? 1 : ~std::size_t{0};
        poll(choice % 4);
    }
    void poll(std::size_t room) {
        std::array<completion, slots> got;
        const std::size_t count = channel_->poll(std::span{got}.first(room));
        require(count <= room, "no more than there is room for");
        for (std::size_t i = 0; i < count; ++i) take(std::move(got[i]));
    }
    void take(completion got) {
        const auto of = std::ranges::find(open_, got.call, &open_call::id);
        require(of != open_.end(), "it is of a call that has not ended");
        require(got.id.slot < slots && got.response.size() <= response_bytes, "it has a slot, and fits");
        require(got.more == (got.id != got.call), "a part has an id of its own");
        told what;
        if (got.status == status::ok && got.response.size() >= sizeof what) {
            std::memcpy(&what, got.response.data(), sizeof what);
            if (link_->exact) require(call_id{what.slot, what.generation} == got.call, "it is that call's");
            require(!of->parts || !is_safe() || what.number == of->next,
                    "parts come in their order, and the last response behind them");
        }
        for (const completion& each : held_) require(each.id != got.id, "nobody else's memory");
        if (got.more)
            ++of->next;
        else
            open_.erase(of);
        kept_.emplace_back(got.response.begin(), got.response.end());
        held_.push_back(std::move(got));
    }
    /// A server that is not correct may write into slots that are shown.
    [[nodiscard]] bool is_safe() const { return link_->exact || link_->borrows(); }
    void release(std::size_t which) {
        completion one = std::move(held_[which]);
        // Else the memory may be a link's that is gone.
        if (channel_->connected() && is_safe())
            require(std::ranges::equal(one.response, kept_[which]), "it is as it was");
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
        kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(which));
        one.release();
        require(channel_->release(one.id) == status::invalid_state, "what came is released once");
    }

    // The server.

    link_event response(std::uint32_t slot, std::uint8_t choice) {
        link_event event;
        event.header.kind = message_kind::response;
        event.header.slot = slot;
        event.header.generation = link_->at[slot].generation;
        event.header.length = sizeof(told) + choice % 8;
        return event;
    }
    /// They may pass each other.
    void post(const link_event& event, bool passes) {
        if (passes)
            link_->queue.push_front(event);
        else
            link_->queue.push_back(event);
    }
    void send_part(std::uint8_t choice) {
        const std::uint32_t slot = choice % slots;
        server_slot& room = link_->at[slot];
        if (room.has != server_slot::kind::room) return;
        server_slot& of = link_->at[room.call.slot];
        if (of.has != server_slot::kind::request || of.generation != room.call.generation) return;
        link_event event = response(slot, choice);
        event.header.flags = header_flag::more;
        event.header.parts_before = of.sent++;
        link_->calls[slot] = room.call;
        room.has = server_slot::kind::idle;
        post(event, choice >= 192);
    }
    void answer(std::uint8_t choice) {
        const std::uint32_t slot = choice % slots;
        server_slot& of = link_->at[slot];
        if (of.has != server_slot::kind::request) return;
        link_event event = response(slot, choice);
        event.header.parts_before = of.sent;
        if (choice >= 64 && choice < 96) event.header.code = status::application_error;
        link_->calls[slot] = {slot, of.generation};
        of.has = server_slot::kind::idle;
        post(event, choice >= 192);
    }
    /// A server keeps room for a request that is still to come.
    [[nodiscard]] bool has_come(call_id call) const { return link_->at[call.slot].generation >= call.generation; }
    void return_room(std::uint8_t choice) {
        const std::uint32_t slot = choice % slots;
        server_slot& room = link_->at[slot];
        if (room.has != server_slot::kind::room || !has_come(room.call)) return;
        link_event event = response(slot, choice);
        event.header.code = status::cancelled;
        event.header.length = 0;
        room.has = server_slot::kind::idle;
        post(event, choice >= 192);
    }
    void return_part(std::uint8_t choice) {
        const std::uint32_t slot = choice % slots;
        server_slot& part = link_->at[slot];
        if (part.has != server_slot::kind::part) return;
        link_event event = response(slot, choice);
        event.header.length = 0;
        part.has = server_slot::kind::idle;
        post(event, choice >= 192);
    }
    /// What no correct server sends, or only a stale message of it.
    void spoil(std::uint8_t choice) {
        link_->exact = false;
        link_event event = response(choice % slots, choice);
        if (choice % 2 == 0) event.header.flags = header_flag::more;
        event.header.parts_before = input_.byte() % 8;
        if (choice >= 224) event.header.parts_before = ~std::uint64_t{0} - choice;
        if (choice >= 128) event.header.code = static_cast<status>(input_.byte() % (status_count + 1));
        if (choice % 16 == 3) --event.header.generation;
        if (choice % 16 == 5) event.header.flags |= header_flag::parts;
        if (choice % 16 == 7) event.header.length = response_bytes + 1;
        const server_slot& room = link_->at[choice % slots];
        link_->calls[choice % slots] = room.call;
        post(event, choice >= 192);
    }
    void anything() {
        link_->exact = false;
        link_event event;
        const auto bytes = input_.bytes(sizeof event.header);
        if (!bytes.empty()) std::memcpy(&event.header, bytes.data(), bytes.size());
        link_->queue.push_back(event);
    }

    /// A channel waits for the reason, as long as the control plane may take to tell.
    void end_doubt() {
        link_->fail();
        poll(slots);
        clock_.pass(std::chrono::seconds{1});
        poll(slots);
        require(!channel_->connected(), "a channel does not outlive its link");
    }
    void lose(std::uint8_t choice) {
        if (choice < 8) link_->queue.clear();  // what was on its way is gone
        if (choice < 16) link_->fail();
    }
    /// Everything is answered and released. Every slot is free again.
    void settle() {
        link_->ending = true;
        link_->at_once = ~std::size_t{0};
        if (link_->failed()) return end_doubt();
        for (int i = 0; i < 8; ++i) {
            for (std::uint8_t slot = 0; slot < slots; ++slot) {
                answer(slot);
                return_room(slot);
                return_part(slot);
            }
            poll(slots);
            while (!held_.empty()) release(0);
        }
        if (!channel_->connected()) return;
        require(open_.empty(), "every call has ended");
        for (std::uint32_t i = 0; i < slots; ++i) require(!link_->holds(i), "every arrival is given back");
        for (std::uint32_t i = 0; i < slots; ++i) {
            const auto view = channel_->begin();
            require(view.ok(), "every slot is free");
            begun_.push_back(view->id);
        }
    }
    void end() {
        if (link_->exact) settle();
        link_->ending = true;
        channel_->close();
        for (int i = 0; i < 3; ++i) poll(slots);
        require(open_.empty(), "every accepted call has one last completion");
        while (!held_.empty()) release(0);
        for (const call_id each : begun_) require(channel_->release(each) == status::ok, "what was begun");
        require(channel_->idle(), "the end of a connection frees every slot");
        const channel_statistics counted = channel_->statistics();
        require(counted.completed == counted.submitted && counted.quarantined == 0, "and every call is counted");
    }

    tests::fake_clock clock_;
    tests::input_reader& input_;
    std::vector<std::byte> requests_ = std::vector<std::byte>(slots * stride);
    std::vector<std::byte> responses_ = std::vector<std::byte>(slots * stride);
    fake_link* link_ = nullptr;
    std::shared_ptr<session_watch> watch_ = std::make_shared<session_watch>();
    std::unique_ptr<channel_core> channel_;
    std::vector<open_call> open_;
    std::vector<completion> held_;              ///< not released
    std::vector<std::vector<std::byte>> kept_;  ///< what they showed
    std::vector<call_id> begun_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    application(input).run();
    return 0;
}
