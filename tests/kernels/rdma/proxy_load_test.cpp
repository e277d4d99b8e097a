// SPDX-License-Identifier: Apache-2.0
// Kernels, played by a thread, and their peers, played by another, with the proxy's thread between them.
#include "rdma/proxy_messages.hpp"
#include "rdma/proxy_rig.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

namespace accel::verbs {
namespace {

constexpr std::uint32_t window = 8;
/// Of a thread that finds nothing to do. One that only yields would wait for the slices of others on a busy machine.
constexpr auto nap = 20us;
constexpr std::uint32_t slot_bytes = tests::max_message_bytes;

class verbs_proxy_load : public proxy_rig {
  protected:
    static std::uint64_t seed_of(std::uint32_t session, std::uint32_t slot, std::uint32_t round) noexcept {
        return (std::uint64_t{session + 1} << 48) | (std::uint64_t{slot} << 32) | round;
    }
    /// Requests lie in area 0 before they are sent and arrive in area 1; answers in 2 and 3.
    static std::size_t place(std::uint32_t session, std::uint32_t area, std::uint32_t slot) noexcept {
        return ((std::size_t{session} * 4 + area) * window + slot) * slot_bytes;
    }

    /// The kernel's side of one session.
    struct asker {
        std::array<bool, window> busy{};
        std::array<std::uint32_t, window> round{};
        std::uint32_t begun = 0;
        std::uint32_t answered = 0;
        std::uint32_t asked = 0;
        std::uint32_t told = 0;
    };
    void ask(std::uint32_t which, asker& of, std::uint32_t total, std::mt19937& random) {
        for (std::uint32_t slot = 0; slot < window && of.begun < total; ++slot) {
            if (of.busy[slot]) continue;
            const std::uint64_t seed = seed_of(which, slot, of.round[slot]);
            const auto from = range(place(which, 0, slot), tests::write_message(at(place(which, 0, slot)), seed));
            const bool asks = random() % 4 == 0;
            const auto request = write(from, place(which, 1, slot), slot, asks);
            if (proxy::post(sessions_[which]->ref(), request) != status::ok) return;
            of.busy[slot] = true;
            ++of.begun;
            of.asked += asks ? 1 : 0;
        }
    }
    void take_all(std::vector<asker>& askers) {
        mlx5::completion done;
        while (proxy::take(taker_->ref(), done)) {
            std::uint32_t which = 0;
            while (which < askers.size() && sessions_[which]->pair->number() != done.queue_pair) ++which;
            if (which == askers.size()) {
                ++wrong_;
            } else if (done.kind == mlx5::entry_kind::request) {
                ++askers[which].told;
                wrong_ += proxy::release(sessions_[which]->ref(), done.counter) ? 0 : 1;
            } else {
                take_answer(which, askers[which], mlx5::from_be(done.immediate), done.kind);
            }
        }
        proxy::publish_taken(taker_->ref());
    }
    void take_answer(std::uint32_t which, asker& of, std::uint32_t slot, mlx5::entry_kind kind) {
        const bool expected = kind == mlx5::entry_kind::write_immediate && slot < window && of.busy[slot];
        if (!expected || !tests::is_message(at(place(which, 3, slot)), ~seed_of(which, slot, of.round[slot]))) {
            ++wrong_;
            return;
        }
        of.busy[slot] = false;
        ++of.round[slot];
        ++of.answered;
    }

    /// The peer's side of one session: answers what has arrived. False: nothing has.
    bool answer(std::uint32_t which, std::array<std::uint32_t, window>& rounds) {
        const auto arrived = arrivals_at(*sessions_[which]);
        for (const std::uint32_t slot : arrived) {
            if (slot >= window || !tests::is_message(at(place(which, 1, slot)), seed_of(which, slot, rounds[slot]))) {
                ++wrong_;
                continue;
            }
            const std::uint64_t answer = ~seed_of(which, slot, rounds[slot]++);
            const auto from = range(place(which, 2, slot), tests::write_message(at(place(which, 2, slot)), answer));
            if (!write_back(*sessions_[which], from, place(which, 3, slot), slot)) ++wrong_;
        }
        return !arrived.empty();
    }
    /// A ring of 16 descriptors, and what has arrived and not been looked at.
    static constexpr std::size_t max_on_the_way = 16 + depth;
    /// In the engine's place gives its kernel room to post, so that each descriptor that is posted shows.
    static std::size_t arrivals_while_room_is_given(proxy_session& from) {
        const std::uint32_t before = from.released_now();
        std::size_t arrived = 0;
        const auto until = std::chrono::steady_clock::now() + 10ms;
        while (std::chrono::steady_clock::now() < until || from.released_now() - before < 1000) {
            arrived += arrivals_at(from).size();
            const std::uint32_t reserved = accel::device::detail::load_relaxed(&from.state.reserved);
            mlx5::store_flag(from.ring.word(), reserved);
            std::this_thread::yield();
        }
        return arrived;
    }
    std::atomic<std::uint32_t> wrong_{0};
    std::vector<std::unique_ptr<proxy_session>> gone_;
};

TEST_F(verbs_proxy_load, a_hundred_thousand_answers_arrive_once_and_unchanged) {
    constexpr std::uint32_t sessions = 3;
    const auto each = static_cast<std::uint32_t>(tests::effort(100'000)) / sessions + 1;
    gpu::proxy_options options;
    options.receives = 64;
    make_engine(options, 32);
    must(engine_->start());
    for (std::uint32_t i = 0; i < sessions; ++i) connect();
    std::atomic<bool> over{false};
    std::thread peers([&] {
        std::array<std::array<std::uint32_t, window>, sessions> rounds{};
        while (!over) {
            bool some = false;
            for (std::uint32_t i = 0; i < sessions; ++i) some = answer(i, rounds[i]) || some;
            if (!some) std::this_thread::sleep_for(nap);
        }
    });
    std::vector<asker> askers(sessions);
    std::mt19937 random(17);
    const auto all_done = [&] {
        return std::ranges::all_of(askers,
                                   [&](const asker& one) { return one.answered >= each && one.told >= one.asked; });
    };
    std::uint32_t moved = 0;
    const auto moves = [&] {
        for (std::uint32_t i = 0; i < sessions; ++i) ask(i, askers[i], each, random);
        take_all(askers);
        std::uint32_t now = 0;
        for (const asker& one : askers) now += one.begun + one.answered + one.told;
        if (now == moved) std::this_thread::sleep_for(nap);
        return std::exchange(moved, now) != now;
    };
    while (!all_done() && eventually(tests::until_hung(), moves, 0ns)) continue;
    EXPECT_TRUE(all_done()) << "nothing has moved for long";
    over = true;
    peers.join();
    for (const asker& one : askers) {
        EXPECT_EQ(one.answered, each);
        EXPECT_EQ(one.told, one.asked);
    }
    EXPECT_EQ(wrong_, 0U);
    EXPECT_EQ(taker_->first_failure, 0U);
}

/// Takes completions on a thread of its own.
class taking_thread {
  public:
    explicit taking_thread(proxy_taker& from) : from_(from), thread_([this] { run(); }) {}
    ~taking_thread() {
        over_ = true;
        thread_.join();
    }
    /// All that had been told of has been taken.
    void catch_up() const {
        const std::uint32_t before = passes_;
        while (passes_ - before < 2) std::this_thread::sleep_for(50us);
    }
    [[nodiscard]] std::uint32_t of(std::uint32_t queue_pair) {
        const std::lock_guard lock(mutex_);
        return counts_[queue_pair];
    }

  private:
    void run() {
        mlx5::completion done;
        while (!over_) {
            while (proxy::take(from_.ref(), done)) {
                const std::lock_guard lock(mutex_);
                ++counts_[done.queue_pair];
                proxy::publish_taken(from_.ref());
            }
            ++passes_;
            std::this_thread::yield();
        }
    }
    proxy_taker& from_;
    std::mutex mutex_;
    std::map<std::uint32_t, std::uint32_t> counts_;
    std::atomic<std::uint32_t> passes_{0};
    std::atomic<bool> over_{false};
    std::thread thread_;
};

/// Posts without end.
class posting_thread {
  public:
    posting_thread(const proxy::send_queue_ref& to, const mlx5::work_request& request)
        : thread_([this, to, request] {
              while (!over_)
                  if (proxy::post(to, request) != status::ok) std::this_thread::yield();
          }) {}
    ~posting_thread() {
        over_ = true;
        thread_.join();
    }

  private:
    std::atomic<bool> over_{false};
    std::thread thread_;
};

TEST_F(verbs_proxy_load, a_queue_pair_removed_under_load_posts_and_reports_nothing) {
    make_engine({}, 64);
    must(engine_->start());
    proxy_session& stays = connect();
    const auto from = range(0, 64);
    std::uint32_t sent = 0;
    std::uint32_t arrived = 0;
    const auto take_arrivals = [&] {
        for (const std::uint32_t each : arrivals_at(stays)) EXPECT_EQ(each, arrived++);
        return arrived == sent;
    };
    {
        taking_thread taker(*taker_);
        for (int round = 0; round < tests::effort(40); ++round) {
            proxy_session& goes = connect();
            const std::uint32_t number = goes.pair->number();
            const std::uint32_t told_before = taker.of(number);  // the number may not be new
            std::optional<posting_thread> kernel;
            kernel.emplace(goes.ref(), write(from, 4096, 0, true));
            EXPECT_TRUE(eventually(
                patience(5s),
                [&] {
                    const auto request = write(from, 4096, sent, true);
                    if (proxy::post(stays.ref(), request) == status::ok) ++sent;
                    (void)take_arrivals();
                    (void)arrivals_at(goes);
                    return taker.of(number) - told_before > 50;
                },
                20us));
            const auto removing = std::chrono::steady_clock::now();
            engine_->remove(*goes.pair);
            EXPECT_LT(std::chrono::steady_clock::now() - removing, tests::until_hung());
            const std::uint32_t released = goes.released_now();
            taker.catch_up();
            const std::uint32_t told = taker.of(number);
            std::this_thread::sleep_for(2ms);
            EXPECT_EQ(goes.released_now(), released);
            EXPECT_LE(arrivals_while_room_is_given(goes), max_on_the_way);
            EXPECT_EQ(taker.of(number), told);
            kernel.reset();
            std::erase_if(sessions_, [&](const auto& each) { return each.get() == &goes; });
        }
    }
    EXPECT_TRUE(eventually(patience(5s), take_arrivals)) << arrived << " of " << sent;
}

/// A round that has begun does not see the removal: what is put into the ring behind it must not go out.
TEST_F(verbs_proxy_load, removal_waits_for_the_turn_that_is_under_way) {
    gpu::proxy_options options;
    options.batch = 64;
    make_engine(options);
    const auto from = range(0, 64);
    mlx5::work_request plain = write(from, 4096, 0, false);
    plain.operation = mlx5::opcode::write;
    for (int i = 0; i < 8; ++i) connect(64);
    std::uint32_t met = 0;
    const auto hung = std::chrono::steady_clock::now() + tests::until_hung();
    for (std::uint32_t round = 0; round < 200 || (met == 0 && std::chrono::steady_clock::now() < hung); ++round) {
        proxy_session& goes = connect();
        while (round % 2 == 0 && engine_->progress()) continue;  // the command is taken, or still pending
        for (std::size_t i = 0; i + 1 < sessions_.size(); ++i)
            while (proxy::post(sessions_[i]->ref(), plain) == status::ok) continue;
        std::atomic<bool> begun{false};
        std::atomic<bool> ended{false};
        std::thread turning([&] {
            begun = true;
            for (int i = 0; i < 3; ++i) engine_->progress();
            ended = true;
        });
        while (!begun) std::this_thread::yield();
        const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds{round % 100};
        while (std::chrono::steady_clock::now() < until) continue;
        met += ended ? 0U : 1U;
        engine_->remove(*goes.pair);
        EXPECT_EQ(proxy::post(goes.ref(), write(from, 4096, round, false)), status::ok);
        turning.join();
        while (engine_->progress()) continue;
        EXPECT_EQ(goes.released_now(), goes.first);
        gone_.push_back(std::move(sessions_.back()));
        sessions_.pop_back();
        if (gone_.size() < 20) continue;
        std::this_thread::sleep_for(5ms);
        for (const auto& each : gone_) EXPECT_TRUE(arrivals_at(*each).empty()) << round;
        gone_.clear();
    }
    EXPECT_GT(met, 0U) << "rounds that were under way";
}

TEST_F(verbs_proxy_load, stops_under_load) {
    make_engine();
    must(engine_->start());
    proxy_session& session = connect();
    const auto from = range(0, 64);
    const taking_thread taker(*taker_);
    const posting_thread kernel(session.ref(), write(from, 4096, 0, false));
    EXPECT_FALSE(wait_for_arrivals(session, 1000).empty());
    const auto begun = std::chrono::steady_clock::now();
    engine_->stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, tests::until_hung());
    EXPECT_LE(arrivals_while_room_is_given(session), max_on_the_way);
}

}  // namespace
}  // namespace accel::verbs
