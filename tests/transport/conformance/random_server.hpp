// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "random_plan.hpp"
#include "rig.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace accel::tests {

/// Handlers that check each request, and answer it as it was planned: at once, from a thread of their own, or when the
/// test says so.
class random_server {
  public:
    /// An exchange that the test answers.
    struct work {
        exchange open;
        plan of;
        std::uint64_t sent = 0;  ///< parts
    };
    /// Channels of one test thread are neighbours.
    static constexpr std::uint64_t channels_of_a_thread = 1000;

    /// `in_order`: requests of a channel come in the order in which they were submitted.
    random_server(context& ctx, std::string scheme, bool aligned, bool in_order)
        : scheme_(std::move(scheme)),
          aligned_(aligned),
          in_order_(in_order),
          lent_(ctx.allocate(client_kinds[0].response_bytes).value()) {
        fill(lent_.whole().bytes(), plan::lent_seed);
        thread_ = std::thread([this] { answer_later(); });
    }
    ~random_server() {
        {
            const std::lock_guard lock(mutex_);
            over_ = true;
        }
        arrived_.notify_all();
        thread_.join();
    }
    random_server(const random_server&) = delete;
    random_server& operator=(const random_server&) = delete;

    [[nodiscard]] service_table services() {
        return {{{"second", [this](exchange one) { serve(std::move(one), "second"); }}},
                [this](exchange one) { serve(std::move(one), ""); }};
    }
    /// From now on answers to this channel may go nowhere.
    void leave(std::uint64_t owner) {
        const std::lock_guard lock(mutex_);
        left_.insert(owner);
    }
    [[nodiscard]] std::size_t channels_left() const {
        const std::lock_guard lock(mutex_);
        return left_.size();
    }
    [[nodiscard]] bool has_seen(std::uint64_t number) const {
        const std::lock_guard lock(mutex_);
        return seen_.contains(number);
    }
    /// Of another server, whose numbers may be those of the one before.
    void begin_sessions() {
        const std::lock_guard lock(mutex_);
        sessions_.clear();
    }
    [[nodiscard]] std::size_t requests() const {
        const std::lock_guard lock(mutex_);
        return seen_.size();
    }
    /// Of the test thread with this number, for one of its calls.
    [[nodiscard]] std::optional<work> take(std::uint64_t thread, std::uint64_t random) {
        const std::lock_guard lock(mutex_);
        auto& all = shelves_[thread];
        if (all.empty()) return std::nullopt;
        std::swap(all[random % all.size()], all.back());
        std::optional<work> taken(std::move(all.back()));
        all.pop_back();
        return taken;
    }
    void put_back(work one) {
        const std::lock_guard lock(mutex_);
        shelve(std::move(one));
    }
    [[nodiscard]] std::size_t shelved(std::uint64_t thread) {
        const std::lock_guard lock(mutex_);
        return shelves_[thread].size();
    }
    /// Of all channels that have gone.
    void drop_shelved() {
        std::map<std::uint64_t, std::vector<work>> dropped;
        const std::lock_guard lock(mutex_);
        dropped.swap(shelves_);
    }
    [[nodiscard]] bool has_shelved(std::uint64_t number) {
        const std::lock_guard lock(mutex_);
        const auto& all = shelves_[plan(number).owner() / channels_of_a_thread];
        return std::ranges::any_of(all, [&](const work& each) { return each.of.number == number; });
    }
    [[nodiscard]] bool all_leases_ended() const {
        return eventually([this] { return leases_ == 0; });
    }

    /// Sends the next part. False: there are no more, or nobody waits for them.
    bool send_part(work& on) {
        if (on.sent == on.of.parts) return false;
        const std::span<std::byte> room = on.open.part();
        const std::size_t length = on.of.part_length(on.sent);
        if (room.empty()) {
            const status none = on.open.send(length);
            EXPECT_TRUE(none == status::again || nobody_waits(on.open, none)) << to_string(none) << " to " << on.of;
            return none == status::again && !on.open.cancelled();  // who has given up frees no room
        }
        fill(room.first(length), on.of.part_seed(on.sent));
        if (on.of.asks_too_much_first) {
            const status much = on.open.send(on.of.kind.response_bytes + 1);
            EXPECT_TRUE(much == status::message_too_large || nobody_waits(on.open, much)) << to_string(much) << on.of;
        }
        const status said = on.open.send(length);
        EXPECT_TRUE(said == status::ok || nobody_waits(on.open, said)) << to_string(said) << " to " << on.of;
        ++on.sent;
        return said == status::ok;
    }
    /// What the library says to the answer, or ok where there is none.
    status answer(exchange one, const plan& p) {
        if (p.asks_too_much_first) {
            EXPECT_EQ(one.reply(one.response().size() + 1), status::message_too_large) << p;
            EXPECT_EQ(one.reply(~std::size_t{0}), status::message_too_large) << p;
        }
        switch (p.how) {
            case way_to_answer::from_lent_memory:
                if (p.asks_too_much_first && one.response().size() < lent_.size()) {
                    EXPECT_EQ(one.reply(lent_.whole(), leases_), status::message_too_large) << p;
                }
                return one.reply(lent_.part(0, p.response).value(), leases_);
            case way_to_answer::with_failure:
                return one.fail(p.failure, p.code(), p.text());
            case way_to_answer::with_unknown_status:
                return one.fail(static_cast<status>(500), p.code(), p.text());
            case way_to_answer::by_drop:
                return status::ok;
            case way_to_answer::by_exception:
                throw std::runtime_error(p.text());
            case way_to_answer::by_odd_exception:
                throw 1;
            default:
                fill(one.response().first(p.response), p.response_seed());
                return one.reply(p.response);
        }
    }
    void expect_sent(const plan& p, status said) const {
        EXPECT_TRUE(said == status::ok || (said == status::peer_lost && has_left(p.owner())))
            << to_string(said) << " to the answer of " << p;
    }

  private:
    static bool nobody_waits(const exchange& one, status said) {
        return (said == status::cancelled || said == status::peer_lost) && one.cancelled();
    }
    [[nodiscard]] bool has_left(std::uint64_t owner) const {
        const std::lock_guard lock(mutex_);
        return left_.contains(owner);
    }
    /// With `mutex_`.
    void shelve(work one) {
        auto& all = shelves_[one.of.owner() / channels_of_a_thread];
        all.push_back(std::move(one));
    }
    void serve(exchange one, std::string_view target) {
        const plan p(one.trace_id());
        check(one, p, target);
        if (p.where != answering::in_handler) {
            const std::lock_guard lock(mutex_);
            if (p.where == answering::by_test) return shelve({std::move(one), p});
            later_.push_back({std::move(one), p});
            return arrived_.notify_all();
        }
        work now{std::move(one), p};
        send_parts(now);
        expect_sent(p, answer(std::move(now.open), p));
        if (p.how == way_to_answer::before_an_exception) throw std::runtime_error("after the answer");
    }
    void send_parts(work& on) {
        for (std::uint64_t left = on.of.parts; left > 0 && send_part(on); --left) continue;
    }
    void check(const exchange& one, const plan& p, std::string_view target) {
        EXPECT_EQ(target, p.target) << p;
        EXPECT_EQ(one.request().size(), p.request) << p;
        EXPECT_TRUE(matches(one.request(), p.number)) << p;
        EXPECT_EQ(one.response().size(), p.room) << p;
        EXPECT_EQ(one.in_parts(), p.part_room > 0) << p;
        EXPECT_EQ(one.scheme(), scheme_);
        const auto place = reinterpret_cast<std::uintptr_t>(one.request().data());
        EXPECT_TRUE(place % 8 == 0 || (!aligned_ && p.by != carried::in_slot)) << p;
        std::array<char, max_baggage_bytes> room{};
        const auto trace = one.trace();
        const auto baggage = one.baggage(room);
        const status traced = trace.code();
        const status carries = baggage.code();
        const std::lock_guard lock(mutex_);
        EXPECT_TRUE(seen_.insert(p.number).second) << "twice: " << p;
        const bool left = left_.contains(p.owner());
        EXPECT_TRUE(left || traced == (p.trace.valid() ? status::ok : status::not_found)) << to_string(traced) << p;
        EXPECT_TRUE(left || !trace || *trace == p.trace) << p;
        EXPECT_TRUE(left || carries == (p.baggage.empty() ? status::not_found : status::ok)) << to_string(carries) << p;
        EXPECT_TRUE(left || !baggage || *baggage == p.baggage) << p;
        account& of = accounts_[p.owner()];
        EXPECT_TRUE(of.session == 0 || of.session == one.session_id()) << p;
        EXPECT_TRUE(!in_order_ || p.count() > of.last) << "after call " << of.last << ": " << p;
        if (of.session == 0) {
            EXPECT_TRUE(sessions_.insert(one.session_id()).second) << "a session of two channels";
        }
        of = {one.session_id(), p.count()};
    }
    /// One after the other, each after a moment.
    void answer_later() {
        for (std::uint64_t i = 0;; ++i) {
            std::unique_lock lock(mutex_);
            arrived_.wait(lock, [this] { return over_ || !later_.empty(); });
            if (later_.empty()) return;
            work next = std::move(later_.front());
            later_.pop_front();
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds{mix(i) % 100});
            EXPECT_TRUE(matches(next.open.request(), next.of.number)) << "a request changed under its handler";
            send_parts(next);
            expect_sent(next.of, answer(std::move(next.open), next.of));
        }
    }

    struct account {
        std::uint64_t session = 0;
        std::uint64_t last = 0;
    };
    const std::string scheme_;
    const bool aligned_;
    const bool in_order_;
    region lent_;
    std::atomic<std::uint32_t> leases_{0};
    mutable std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<work> later_;
    std::map<std::uint64_t, std::vector<work>> shelves_;
    std::set<std::uint64_t> seen_;
    std::set<std::uint64_t> left_;
    std::set<std::uint64_t> sessions_;
    std::map<std::uint64_t, account> accounts_;
    bool over_ = false;
    std::thread thread_;
};

}  // namespace accel::tests
