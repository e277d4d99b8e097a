// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "random_server.hpp"

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

namespace accel::tests {

/// Memory that calls lend: for each slot a place for a payload and one for a response, with a guard on both sides.
class lent_places {
  public:
    lent_places(context& ctx, const client_kind& kind)
        : payload_bytes_(kind.request_bytes + plan::guard_bytes),
          place_bytes_(payload_bytes_ + kind.response_bytes + 2 * plan::guard_bytes),
          memory_(ctx.allocate(kind.slots * place_bytes_).value()),
          marks_(kind.slots) {}

    /// The payload of a call, from an address that is often odd.
    [[nodiscard]] slice payload(std::uint32_t slot, const plan& p) const {
        return part(slot * place_bytes_ + p.number % plan::guard_bytes, p.request);
    }
    [[nodiscard]] slice response(std::uint32_t slot, const plan& p) const {
        return part(slot * place_bytes_ + payload_bytes_ + plan::guard_bytes, p.room);
    }
    /// The same memory, last piece first, some of them empty.
    [[nodiscard]] static std::vector<slice> in_pieces(slice whole, drawing draw) {
        std::vector<slice> out{slice{}};
        for (std::size_t end = whole.size(); end > 0;) {
            const std::size_t length = std::min<std::size_t>(end, 1 + draw(draw(2) == 0 ? 20 : 5'000));
            end -= length;
            out.push_back(whole.part(end, length).value());
            if (draw(3) == 0) out.push_back(whole.part(end, 0).value());
        }
        return out;
    }
    /// What the library must leave alone: the guards, and from the end of the call on the response's place.
    void mark(std::uint32_t slot, const plan& p) {
        if (p.into == carried::in_slot) return;
        marks_[slot] = p.number;
        fill(guarded(slot, p), p.number ^ 1);
    }
    void expect_untouched(std::uint32_t slot) {
        const std::uint64_t number = std::exchange(marks_[slot], 0);
        if (number == 0) return;
        const plan p(number);
        EXPECT_TRUE(matches(guarded(slot, p), number ^ 1)) << "memory was written after it was given back by " << p;
    }
    void expect_guards(std::uint32_t slot, const plan& p) {
        if (p.into == carried::in_slot) return;
        const std::span<std::byte> all = guarded(slot, p);
        std::vector<std::byte> wanted(all.size());
        fill(wanted, p.number ^ 1);
        const auto same = [&](std::size_t from) {
            return std::ranges::equal(all.subspan(from, plan::guard_bytes),
                                      std::span(wanted).subspan(from, plan::guard_bytes));
        };
        EXPECT_TRUE(same(0) && same(all.size() - plan::guard_bytes)) << "bytes beside the response of " << p;
    }
    /// The library may still write there, as the call goes on.
    void forget(std::uint32_t slot) { marks_[slot] = 0; }
    void expect_all_untouched() {
        for (std::uint32_t slot = 0; slot < marks_.size(); ++slot) expect_untouched(slot);
    }

  private:
    [[nodiscard]] slice part(std::size_t at, std::size_t length) const { return memory_.part(at, length).value(); }
    [[nodiscard]] std::span<std::byte> guarded(std::uint32_t slot, const plan& p) const {
        return part(slot * place_bytes_ + payload_bytes_, p.room + 2 * plan::guard_bytes).bytes();
    }
    std::size_t payload_bytes_;
    std::size_t place_bytes_;
    region memory_;
    std::vector<std::uint64_t> marks_;  ///< number of the call whose mark lies there
};

/// One channel, and a model of it: which calls may begin, and what comes out for each.
class random_client {
  public:
    random_client(context& ctx, const std::string& uri, std::size_t kind, std::uint64_t owner, bool reconnects)
        : kind_(client_kinds.at(kind)), places_(ctx, kind_), kind_number_(kind), owner_(owner) {
        channel_options options = calm_client();
        options.slots = kind_.slots;
        options.request_bytes = kind_.request_bytes;
        options.response_bytes = kind_.response_bytes;
        options.poll = kind_.poll;
        options.peer_timeout = options.call_timeout = until_hung();
        options.close_timeout = 10ms;  // for memory that handlers hold
        options.reconnect = reconnects;
        options.backoff_min = options.backoff_max = 1ms;
        auto made = channel::connect(ctx, uri, options);
        if (!made) throw std::runtime_error("connect: " + made.error().message);
        channel_.emplace(std::move(*made));
        EXPECT_EQ((*channel_)->slots(), kind_.slots);
        EXPECT_EQ((*channel_)->max_request_bytes(), kind_.request_bytes);
        EXPECT_EQ((*channel_)->max_response_bytes(), kind_.response_bytes);
    }

    [[nodiscard]] const client_kind& kind() const { return kind_; }
    [[nodiscard]] std::uint64_t owner() const { return owner_; }
    [[nodiscard]] std::size_t open_calls() const { return open_.size(); }
    checked_channel& raw() { return *channel_; }

    // The end of its server, as the model has to know it.

    /// From now on calls may also end because the server stops.
    void server_ends() { server_ends_ = true; }
    /// What a handler holds, and whether it has seen a call.
    std::function<bool(std::uint64_t)> is_held = [](std::uint64_t) { return false; };
    std::function<bool(std::uint64_t)> was_seen = [](std::uint64_t) { return true; };
    /// The server refuses some calls, as it is at its limit.
    bool server_has_limit = false;
    /// A server that stops waits for answers on their way. (ZeroMQ does not say when they have arrived.)
    bool knows_unseen = true;
    /// Short answers of handlers complete in the order of their calls.
    bool in_order = false;

    void begin() {
        const auto call = channel_->begin();
        const status said = call.code();
        if (said == status::ok) {
            EXPECT_LT(taken(), kind_.slots) << "a slot that is taken";
            EXPECT_EQ(call->request.size(), kind_.request_bytes);
            begun_.push_back(*call);
        } else if (said == status::again) {
            EXPECT_GE(taken() + resting(), kind_.slots) << "a slot is free";
        } else {
            EXPECT_TRUE(server_ends_ && is_end(said)) << to_string(said);
        }
    }
    void submit(drawing& draw) {
        if (begun_.empty()) return;
        std::swap(begun_[draw(begun_.size())], begun_.back());
        const call_view call = begun_.back();
        begun_.pop_back();
        if (draw(8) == 0) expect_refusals(call.id);
        const plan p = next_plan();
        const std::uint32_t slot = call.id.slot;
        places_.expect_untouched(slot);
        places_.mark(slot, p);
        submit_options options{.timeout = p.timeout, .tag = ~p.number, .trace_id = p.number, .trace = p.trace};
        options.baggage = p.baggage;
        if (!p.target.empty()) options.target = target_of(p.target);
        options.parts = p.part_room;
        const auto into = p.into == carried::in_ranges
                              ? lent_places::in_pieces(places_.response(slot, p), drawing(p.number))
                              : std::vector<slice>{};
        options.response_ranges = into;
        if (p.into == carried::lent) options.response_into = places_.response(slot, p);
        const std::uint64_t free = kind_.slots - std::min<std::uint64_t>(kind_.slots, taken() + 1);
        const status said = hand_over(call, p, options);
        if (said == status::ok) {
            EXPECT_LE(p.part_room, free) << p;
            open_.emplace(call.id, open_call{p});
            return;
        }
        const bool full = said == status::again && p.part_room > 0 && p.part_room + resting() > free;
        EXPECT_TRUE(full || (server_ends_ && is_end(said))) << to_string(said) << " to " << p;
        EXPECT_EQ(channel_->release(call.id), status::ok);
        released_ = call.id;
    }
    /// A call that waits for its answer here.
    void call(drawing& draw) {
        const plan p = next_plan();
        if (p.where == answering::by_test || p.part_room > 0 || p.into != carried::in_slot) return;
        std::vector<std::byte> request(p.request);
        fill(request, p.number);
        submit_options options{.timeout = p.timeout, .tag = 1, .trace_id = p.number, .trace = p.trace};
        options.baggage = p.baggage;
        if (!p.target.empty()) options.target = target_of(p.target);
        auto got = (*channel_)->call(request, options);
        if (got) {
            EXPECT_LT(taken(), kind_.slots) << p;
            EXPECT_EQ(p.ends_with(), status::ok) << p;
            EXPECT_EQ(got->response.size(), p.response) << p;
            EXPECT_TRUE(matches(got->response, p.response_seed())) << p;
            if (draw(2) == 0) kept_.emplace_back(std::move(*got), p);
            return;
        }
        const status said = got.code();
        const bool full = said == status::again && taken() + resting() >= kind_.slots;
        const bool late = said == status::timed_out && p.timeout > 0ns;
        const bool refused = said == status::overloaded && server_has_limit;
        rested_ += late ? 1U : 0U;
        timed_out_ += late ? 1U : 0U;
        const bool told = said == p.ends_with() && has_text(got.error().message, p);
        EXPECT_TRUE(full || late || refused || told || (server_ends_ && is_end(said)))
            << to_string(said) << " (" << got.error().message << ") for " << p;
    }
    /// Never blocks.
    void poll(drawing& draw) {
        std::array<completion, 4> out;
        const std::size_t got = channel_->poll(std::span(out).first(1 + draw(4)));
        for (std::size_t i = 0; i < got; ++i) take(out[i]);
    }
    /// Waits in this client's way. False: nothing has come.
    bool wait(nanoseconds bound) {
        std::array<completion, 4> out;
        const std::size_t got = kind_.sleeps_on_descriptor ? sleep(out, bound) : channel_->wait(out, bound);
        for (std::size_t i = 0; i < got; ++i) take(out[i]);
        return got > 0;
    }
    void release(drawing& draw) {
        if (!kept_.empty() && draw(3) == 0) {
            EXPECT_TRUE(matches(kept_.back().first.response, kept_.back().second.response_seed()));
            kept_.pop_back();
        }
        if (unread_.empty()) return;
        std::swap(unread_[draw(unread_.size())], unread_.back());
        unread one = std::move(unread_.back());
        unread_.pop_back();
        EXPECT_TRUE(!one.in_place || matches(one.what.response, one.seed)) << "it was to stay until its release";
        EXPECT_TRUE(one.what.trace == nullptr || *one.what.trace == one.trace);
        rested_ += one.rests ? 1U : 0U;
        released_ = one.what.id;
        if (draw(2) == 0) {
            EXPECT_EQ(channel_->release(one.what.detach()), status::ok);
        }
    }
    void release_all(drawing& draw) {
        while (!unread_.empty() || !kept_.empty()) release(draw);
    }
    void cancel(drawing& draw) {
        if (open_.empty()) return;
        auto& [id, call] = *std::next(open_.begin(), static_cast<std::ptrdiff_t>(draw(open_.size())));
        const bool held = is_held(call.of.number);
        const status said = channel_->cancel(id);
        EXPECT_TRUE(said == status::ok || said == status::invalid_state) << to_string(said);
        // Nobody has answered it, so it has not ended, unless its time was over.
        const bool goes_on = held && !call.cancelled && call.of.timeout == 0ns && !server_ends_;
        EXPECT_TRUE(said == status::ok || !goes_on) << call.of;
        if (said != status::ok || std::exchange(call.cancelled, true)) return;
        cancelled_.insert(call.of.number);
        if (held) ++surely_late_;
    }
    [[nodiscard]] bool has_cancelled(std::uint64_t number) const { return cancelled_.contains(number); }
    [[nodiscard]] bool awaits(std::uint64_t number) const {
        return std::ranges::any_of(open_, [number](const auto& each) { return each.second.of.number == number; });
    }
    /// Ids that are stale, foreign, or of calls in another state.
    void use_wrong_ids() {
        for (const call_id id : {released_, call_id{kind_.slots, 1}, call_id{~0U, ~0U}}) {
            EXPECT_EQ(channel_->submit(id, 1), status::invalid_state);
            EXPECT_EQ(channel_->cancel(id), status::invalid_state);
            EXPECT_EQ(channel_->release(id), status::invalid_state);
        }
        if (!begun_.empty()) {
            EXPECT_EQ(channel_->cancel(begun_.back().id), status::invalid_state);
        }
        if (!unread_.empty()) {
            EXPECT_EQ(channel_->submit(unread_.back().what.id, 1), status::invalid_state);
            EXPECT_EQ(channel_->cancel(unread_.back().what.id), status::invalid_state);
        }
        if (open_.empty()) return;
        EXPECT_EQ((*channel_)->submit(open_.begin()->first, 1), status::invalid_state);
        EXPECT_EQ(channel_->release(open_.begin()->first), status::invalid_state);
    }
    void resolve() {
        if (server_ends_) return;
        const auto found = (*channel_)->resolve("second");
        EXPECT_TRUE(found && *result<target>(found) == target_of("second")) << found.error().message;
        EXPECT_EQ((*channel_)->resolve("nobody").code(), status::not_found);
    }
    void move() {
        checked_channel moved(std::move(*channel_));
        channel_.emplace(std::move(moved));
    }
    /// Some of its calls are answered by the thread that calls this.
    [[nodiscard]] bool needs_this_thread() const {
        return std::ranges::any_of(open_, [](const auto& each) { return each.second.of.where == answering::by_test; });
    }
    /// Nothing is in flight any more, and each slot is free.
    void expect_idle() {
        EXPECT_EQ(open_.size(), 0U);
        for (const call_view& each : begun_) EXPECT_EQ(channel_->release(each.id), status::ok);
        begun_.clear();
        EXPECT_TRUE(channel_->all_slots_free());
        places_.expect_all_untouched();
        rested_ = 0;
        const channel_statistics told = (*channel_)->statistics();
        EXPECT_EQ(told.submitted, told.completed);
        EXPECT_EQ(told.quarantined, 0U);
        EXPECT_LE(told.stale, cancelled_.size() + timed_out_);
        EXPECT_GE(told.stale, surely_late_);
    }
    /// Calls in flight end at once; what has come can be read.
    void close(drawing& draw) {
        closed_ = true;
        kept_.clear();
        (*channel_)->close();
        while (!open_.empty())
            if (!wait(until_hung())) return ADD_FAILURE() << open_.size() << " calls go on";
        EXPECT_FALSE((*channel_)->connected());
        const auto call = channel_->begin();
        EXPECT_EQ(call.code(), status::closed);
        for (const call_view& each : begun_) {
            EXPECT_EQ(channel_->submit(each.id, 1), status::closed);
            EXPECT_EQ(channel_->release(each.id), status::ok);
        }
        begun_.clear();
        release_all(draw);
        EXPECT_FALSE(wait(1ms));
        (*channel_)->close();
    }
    /// What has come stays readable until its release, whatever becomes of the server.
    void expect_kept() const {
        for (const unread& each : unread_)
            EXPECT_TRUE(!each.in_place || matches(each.what.response, each.seed)) << "it was to stay until its release";
    }
    /// Leaves calls in flight, and what nobody has read.
    void destroy() {
        expect_kept();
        kept_.clear();
        unread_.clear();
        for (const auto& [id, call] : open_) places_.forget(id.slot);
        channel_->forget();
        channel_.reset();
        places_.expect_all_untouched();
    }
    /// The session has ended, and a new one has begun.
    void begins_anew(std::uint64_t owner) {
        expect_kept();
        owner_ = owner;
        count_ = last_usual_ = 0;
        server_ends_ = false;
        rested_ = surely_late_ = 0;
    }

  private:
    struct open_call {
        plan of;
        bool cancelled = false;
        std::uint64_t parts = 0;  ///< that have come
    };
    struct unread {
        completion what;
        std::uint64_t seed;
        bool in_place;  ///< its bytes stay until its release
        bool rests;     ///< its slot waits for a late answer, from its release on
        trace_context trace;
    };

    static bool is_end(status said) { return said == status::closed || said == status::peer_lost; }
    [[nodiscard]] plan next_plan() { return plan(plan::number_of(kind_number_, owner_, ++count_)); }
    /// Slots that are taken for sure.
    [[nodiscard]] std::size_t taken() const { return begun_.size() + open_.size() + unread_.size() + kept_.size(); }
    /// Slots that may be lent for parts or wait for late answers.
    [[nodiscard]] std::size_t resting() const {
        std::size_t sum = rested_;
        for (const auto& [id, call] : open_) sum += call.of.part_room;
        return sum;
    }
    void expect_refusals(call_id id) {
        channel& to = channel_->raw();
        const auto expect = [&](status said, status wanted) {
            EXPECT_TRUE(said == wanted || (server_ends_ && is_end(said))) << to_string(said);
        };
        expect(to.submit(id, kind_.request_bytes + 1), status::message_too_large);
        expect(to.submit(id, ~std::size_t{0}), status::message_too_large);
        expect(to.submit(id, 1, {.timeout = -1ns}), status::invalid_argument);
        expect(to.submit(id, slice{}), status::invalid_argument);
        expect(to.submit(id, 1, {.parts = kind_.slots}), status::invalid_argument);
    }
    status hand_over(const call_view& call, const plan& p, const submit_options& options) {
        if (p.by == carried::in_slot) {
            fill(call.request.first(p.request), p.number);
            return channel_->submit(call.id, p.request, options);
        }
        const slice payload = places_.payload(call.id.slot, p);
        if (p.by == carried::lent) {
            fill(payload.bytes(), p.number);
            return channel_->submit(call.id, payload, options);
        }
        const auto pieces = lent_places::in_pieces(payload, drawing(p.number + 1));
        std::vector<std::byte> bytes(p.request);
        fill(bytes, p.number);
        std::size_t at = 0;
        for (const slice& each : pieces) {
            std::ranges::copy(std::span(bytes).subspan(at, each.size()), each.bytes().begin());
            at += each.size();
        }
        return channel_->submit(call.id, std::span<const slice>(pieces), options);
    }
    /// As an application's own loop: polls until there is nothing, arms, and sleeps.
    std::size_t sleep(std::span<completion> out, nanoseconds bound) {
        for (;;) {
            if (const std::size_t got = channel_->poll(out); got > 0) return got;
            if (!(*channel_)->arm()) continue;
            pollfd ready{(*channel_)->event_fd(), POLLIN, 0};
            if (::poll(&ready, 1, static_cast<int>(bound / 1ms)) == 0) return channel_->poll(out);
        }
    }
    void take(completion& c) {
        const auto found = open_.find(c.call);
        ASSERT_NE(found, open_.end()) << "a completion of no call";
        open_call& call = found->second;
        EXPECT_EQ(c.trace != nullptr, call.of.trace.valid()) << call.of;
        if (c.more) return take_part(c, call);
        const plan p = call.of;
        check_end(c, call);
        const bool early = c.status == status::timed_out || c.status == status::cancelled;
        rested_ += p.part_room;
        const bool in_place = c.status == status::ok && p.into == carried::in_slot;
        const std::uint32_t slot = c.id.slot;
        unread_.push_back({std::move(c), p.response_seed(), in_place, early, p.trace});
        open_.erase(found);
        places_.expect_guards(slot, p);
        // The memory is the application's again.
        places_.mark(slot, p);
        if (p.by != carried::in_slot) fill(places_.payload(slot, p).bytes(), p.number ^ 2);
    }
    void take_part(completion& c, open_call& call) {
        const plan& p = call.of;
        EXPECT_EQ(c.status, status::ok) << p;
        EXPECT_LT(call.parts, p.parts) << p;
        EXPECT_EQ(c.response.size(), p.part_length(call.parts)) << "part " << call.parts << " of " << p;
        EXPECT_TRUE(matches(c.response, p.part_seed(call.parts))) << "part " << call.parts << " of " << p;
        unread_.push_back({std::move(c), p.part_seed(call.parts), true, false, p.trace});
        ++call.parts;
    }
    void check_end(const completion& c, const open_call& call) {
        const plan& p = call.of;
        const auto& t = c.timeline;
        EXPECT_LE(t.request + t.server + t.response, t.total + 1us) << p;
        EXPECT_GE(t.request, 0ns) << p;
        if (call.cancelled) {
            EXPECT_TRUE(c.status == status::cancelled || (c.status == status::timed_out && p.timeout > 0ns))
                << to_string(c.status) << " after a cancel of " << p;
            return;
        }
        if (c.status == status::timed_out && p.timeout > 0ns) return static_cast<void>(++timed_out_);
        if (c.status == status::closed && closed_) return;
        if (c.status == status::overloaded && server_has_limit && !was_seen(p.number)) return;
        const bool answered = c.status == p.ends_with() && c.code == p.code();
        if (server_ends_ && is_end(c.status) && !answered) {
            EXPECT_EQ(c.unseen(), c.status == status::closed) << p;
            EXPECT_FALSE(c.unseen() && knows_unseen && was_seen(p.number)) << "a handler has seen " << p;
            return;
        }
        check_answer(c, call);
    }
    void check_answer(const completion& c, const open_call& call) {
        const plan& p = call.of;
        ASSERT_EQ(c.status, p.ends_with()) << to_string(c.status) << " for " << p;
        EXPECT_EQ(c.code, p.code()) << p;
        // Who answers too late may have sent fewer.
        EXPECT_TRUE(call.parts == p.parts || p.timeout > 0ns || p.target == "nobody") << call.parts << " of " << p;
        if (c.status != status::ok) {
            const std::string_view text(reinterpret_cast<const char*>(c.response.data()), c.response.size());
            EXPECT_TRUE(p.text().starts_with(text)) << p;
            EXPECT_TRUE(handlers_on_gpu() || text.size() == std::min(p.text().size(), p.room)) << text << ": " << p;
            return;
        }
        ASSERT_EQ(c.response.size(), p.response) << p;
        const slice place = places_.response(c.id.slot, p);
        if (p.into == carried::in_ranges) {
            std::vector<std::byte> all;
            for (const slice& each : lent_places::in_pieces(place, drawing(p.number)))
                all.insert(all.end(), each.bytes().begin(), each.bytes().end());
            EXPECT_TRUE(matches(std::span(all).first(p.response), p.response_seed())) << p;
            return;
        }
        EXPECT_TRUE(matches(c.response, p.response_seed())) << p;
        if (in_order && p.is_usual()) {
            EXPECT_GT(p.count(), last_usual_) << p;
            last_usual_ = p.count();
        }
        EXPECT_TRUE(p.into == carried::in_slot || p.response == 0 || c.response.data() == place.data()) << p;
    }
    [[nodiscard]] bool has_text(const std::string& message, const plan& p) const {
        const std::string text = p.text().substr(0, std::min<std::size_t>(kind_.response_bytes, 16));
        return message.find(text) != std::string::npos;
    }

    client_kind kind_;
    lent_places places_;
    std::size_t kind_number_;
    std::uint64_t owner_;
    std::uint64_t count_ = 0;
    std::uint64_t last_usual_ = 0;
    std::optional<checked_channel> channel_;
    std::vector<call_view> begun_;
    std::map<call_id, open_call> open_;
    std::vector<unread> unread_;
    std::vector<std::pair<completion, plan>> kept_;
    call_id released_{~0U, ~0U};
    std::size_t rested_ = 0;
    std::set<std::uint64_t> cancelled_;
    std::uint64_t timed_out_ = 0;
    std::uint64_t surely_late_ = 0;
    bool server_ends_ = false;
    bool closed_ = false;
};

}  // namespace accel::tests
