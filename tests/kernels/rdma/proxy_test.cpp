// SPDX-License-Identifier: Apache-2.0
// The proxy engine on the device, round by round or with its thread; this program's threads play the kernels.
#include "rdma/proxy_rig.hpp"

#include <algorithm>
#include <deque>
#include <random>
#include <thread>

namespace accel::verbs {
namespace {

class verbs_proxy : public proxy_rig {};

/// A queue pair with what its kernel has posted, its peer has written, and both must hear of.
struct modelled_session {
    proxy_session* is = nullptr;
    std::uint32_t posted = 0;
    std::deque<std::uint32_t> signalled;  ///< numbers of requests that are to be told of
    std::vector<std::uint32_t> sent;      ///< immediate data of what must arrive, in order
    std::vector<std::uint32_t> arrived;
    std::deque<std::uint32_t> written_back;
    std::optional<std::uint32_t> wrong_at;  ///< what comes after it is not sent
    std::optional<proxy::refusal> why;      ///< nothing: the device fails it
    bool told_of_failure = false;
    std::uint32_t released = 0;  ///< as last seen
    [[nodiscard]] bool quiet() const {
        return arrived.size() == sent.size() && written_back.empty() && signalled.empty() &&
               told_of_failure == wrong_at.has_value() && (wrong_at || posted - released <= is->ring.count() / 2);
    }
};

/// Kernels, peers and rounds of the engine in random order, by one thread.
class verbs_proxy_sequences : public proxy_rig {
  protected:
    void run(unsigned seed) {
        random_.seed(seed);
        gpu::proxy_options options;
        options.receives = seed % 2 == 0 ? 8 : 64;
        options.batch = 1U << seed % 7;
        make_engine(options, 2U << seed % 6);
        for (int step = 0; step < 400 && !HasFailure(); ++step) {
            SCOPED_TRACE(::testing::Message() << "seed " << seed << ", step " << step);
            this->step();
        }
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        EXPECT_TRUE(eventually(patience(20s), [this] {
            go_on();
            return HasFailure() || std::ranges::all_of(sessions_of_kernel_, &modelled_session::quiet);
        }));
        for (int i = 0; i < 3; ++i) go_on();  // nothing is told twice, and nothing after a wrong request arrives
        while (!sessions_of_kernel_.empty()) leave();
        mlx5::completion none;
        while (proxy::take(taker_->ref(), none)) EXPECT_EQ(none.queue_pair, mlx5::no_queue_pair);
        engine_.reset();
    }

  private:
    [[nodiscard]] std::uint32_t roll(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
    void step() {
        switch (roll(12)) {
            case 0:
                return sessions_of_kernel_.size() < 4 ? come() : leave();
            case 1:
                return with_any([this](auto& one) { spoil(one); });
            case 2:
            case 3:
                return with_any([this](auto& one) { write_back(one); });
            case 4:
            case 5:
                return go_on();
            default:
                return with_any([this](auto& one) { post(one); });
        }
    }
    template <class Action>
    void with_any(const Action& action) {
        if (!sessions_of_kernel_.empty())
            action(sessions_of_kernel_[roll(static_cast<std::uint32_t>(sessions_of_kernel_.size()))]);
    }
    void come() {
        const std::optional<std::uint32_t> name = roll(2) == 0 ? std::optional<std::uint32_t>{++names_} : std::nullopt;
        sessions_of_kernel_.emplace_back().is = &connect(2U << roll(5), depth, name);
    }
    void leave() {
        if (sessions_of_kernel_.empty()) return;
        const auto which = sessions_of_kernel_.begin() + roll(static_cast<std::uint32_t>(sessions_of_kernel_.size()));
        const std::uint32_t name = which->is->ref().queue_pair;
        engine_->remove(*which->is->pair);
        proxy::discard_completions(taker_->ref(), name);
        std::erase_if(sessions_, [&](const auto& each) { return each.get() == which->is; });
        sessions_of_kernel_.erase(which);
    }
    void post(modelled_session& one) {
        const auto from = range(0, roll(2) == 0 ? 0 : roll(4096));
        const bool signalled = roll(3) == 0;
        const std::uint32_t immediate = ++last_;
        if (!puts(one, [&](auto& ring) { return proxy::post(ring, write(from, 4096, immediate, signalled)); })) return;
        if (one.wrong_at) return;
        one.sent.push_back(immediate);
        if (signalled) one.signalled.push_back(one.posted - 1);
    }
    /// A descriptor, if there is room for it.
    template <class Put>
    bool puts(modelled_session& one, const Put& put) {
        one.released = one.is->released_now() - one.is->first;
        const auto ring = one.is->ref();
        const status said = put(ring);
        EXPECT_EQ(said, one.posted - one.released < one.is->ring.count() ? status::ok : status::again);
        if (said != status::ok) return false;
        ++one.posted;
        return true;
    }
    void spoil(modelled_session& one) {
        if (one.wrong_at || roll(6) != 0) return;
        const auto good = range(0, 64);
        const auto longer = range(0, 0xffff'ffff);
        auto request = write(good, 4096, 0, false);
        auto ring = one.is->ref();
        one.why = static_cast<proxy::refusal>(0);
        switch (roll(6)) {
            case 0:
                request.remote_key ^= 0x5500;
                one.why.reset();
                break;
            case 1:
                request.operation = roll(2) == 0 ? mlx5::opcode::fetch_add : static_cast<mlx5::opcode>(0xff);
                one.why = proxy::refusal::operation;
                break;
            case 2:
                request.flags = 0x10;
                one.why = proxy::refusal::flags;
                break;
            case 3:
                request.first = &longer;
                one.why = proxy::refusal::length;
                break;
            case 4:
                ring.queue_pair ^= 1;
                one.why = proxy::refusal::queue_pair;
                break;
            default:
                one.why = proxy::refusal::answer;
        }
        const bool put = puts(one, [&](auto&) {
            if (one.why == proxy::refusal::answer) return proxy::post_answer(ring, 0, 64);
            std::uint32_t number = 0;
            const status taken = proxy::reserve(ring, 1, number);
            if (taken == status::ok) proxy::fill(ring, number, request);
            return taken;
        });
        if (put) one.wrong_at = one.posted - 1;
    }
    void write_back(modelled_session& one) {
        if (one.wrong_at) return;  // its queue pair may end
        const std::uint32_t immediate = ++last_;
        if (proxied_service::write_back(*one.is, range(0, 8), 8192, immediate)) one.written_back.push_back(immediate);
    }
    void go_on() {
        engine_->progress();
        for (modelled_session& each : sessions_of_kernel_) take_arrivals(each);
        mlx5::completion done;
        for (std::uint32_t most = roll(8); most > 0 && proxy::take(taker_->ref(), done); --most) take(done);
        if (roll(2) == 0) proxy::publish_taken(taker_->ref());
    }
    void take_arrivals(modelled_session& one) {
        for (const std::uint32_t each : arrivals_at(*one.is)) {
            ASSERT_LT(one.arrived.size(), one.sent.size());
            EXPECT_EQ(each, one.sent[one.arrived.size()]);
            one.arrived.push_back(each);
        }
        const std::uint32_t released = one.is->released_now() - one.is->first;
        EXPECT_LE(released, one.posted);
        EXPECT_GE(released, one.released);
        one.released = released;
    }
    void take(const mlx5::completion& done) {
        if (done.queue_pair == mlx5::no_queue_pair) return;
        const auto found = std::ranges::find_if(
            sessions_of_kernel_, [&](const auto& each) { return each.is->ref().queue_pair == done.queue_pair; });
        ASSERT_NE(found, sessions_of_kernel_.end()) << "it has gone";
        if (done.kind == mlx5::entry_kind::write_immediate) {
            ASSERT_FALSE(found->written_back.empty());
            EXPECT_EQ(mlx5::from_be(done.immediate), found->written_back.front());
            return found->written_back.pop_front();
        }
        const auto number = static_cast<std::uint32_t>(done.counter - static_cast<std::uint16_t>(found->is->first));
        if (done.kind == mlx5::entry_kind::request_error) return take_failure(*found, done, number & 0xffffU);
        ASSERT_EQ(done.kind, mlx5::entry_kind::request);
        ASSERT_FALSE(found->signalled.empty());
        EXPECT_EQ(number & 0xffffU, found->signalled.front());
        EXPECT_EQ(done.operation, mlx5::opcode::write_immediate);
        EXPECT_TRUE(proxy::release(found->is->ref(), done.counter));
        found->signalled.pop_front();
    }
    /// Of what comes after a request that the device has failed, those that are to be told of are flushed.
    static void take_failure(modelled_session& of, const mlx5::completion& done, std::uint32_t number) {
        ASSERT_TRUE(of.wrong_at);
        if (of.told_of_failure) {
            EXPECT_FALSE(of.why);
            EXPECT_EQ(done.failure, mlx5::syndrome::flushed);
            EXPECT_GT(number, *of.wrong_at);
            return;
        }
        of.told_of_failure = true;
        EXPECT_EQ(number, *of.wrong_at);
        EXPECT_EQ(done.failure, of.why ? mlx5::syndrome::local_queue_pair : mlx5::syndrome::remote_access);
        if (!of.why) return;
        EXPECT_EQ(done.vendor_syndrome, static_cast<std::uint8_t>(*of.why));
    }

    std::mt19937 random_;
    std::uint32_t last_ = 0;
    std::uint32_t names_ = 0x70'0000;
    std::vector<modelled_session> sessions_of_kernel_;
};

TEST_F(verbs_proxy_sequences, work_requests_end_as_a_model_says) {
    for (unsigned seed = 0; seed < static_cast<unsigned>(tests::effort(24)) && !HasFailure(); ++seed) run(seed);
}

TEST_F(verbs_proxy, catch_up_delivers_earlier_arrivals) {
    make_engine();
    proxy_session& session = connect(depth);
    const auto from = range(0, 8);
    for (std::uint32_t i = 0; i < depth; ++i) {
        ASSERT_TRUE(write_back(session, from, 8192, i));
        ASSERT_EQ(proxy::post(session.ref(), write(from, 4096, i, false)), status::ok);
    }
    // The peer's writes have completed: so have the engine's receives.
    EXPECT_TRUE(
        eventually(patience(10s), [&] { return arrivals_at(session).empty() && session.peer->credits().idle(); }));
    EXPECT_FALSE(engine_->catch_up(0ns)) << "nobody serves it";
    must(engine_->start());
    EXPECT_TRUE(engine_->catch_up(tests::until_hung()));
    mlx5::completion got;
    std::uint32_t taken = 0;
    while (proxy::take(taker_->ref(), got)) ++taken;
    EXPECT_EQ(taken, depth);
    EXPECT_EQ(wait_for_arrivals(session, depth).size(), depth);
}

TEST_F(verbs_proxy, room_comes_back_at_completion_not_at_posting) {
    make_engine();
    proxy_session& session = connect(16, 0);  // nothing can arrive
    const auto from = range(0, 8);
    for (std::uint32_t i = 0; i < 16; ++i)
        ASSERT_EQ(proxy::post(session.ref(), write(from, 4096, i, false)), status::ok);
    for (int i = 0; i < 20; ++i) {
        engine_->progress();
        std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(proxy::post(session.ref(), write(from, 4096, 16, false)), status::again);
    EXPECT_EQ(session.released_now(), session.first);
    ASSERT_EQ(session.peer->post_receives(depth, session.peer_receives), depth);
    EXPECT_EQ(wait_for_arrivals(session, 16).size(), 16U);
    EXPECT_TRUE(eventually(patience(5s), [&] {
        engine_->progress();
        return session.released_now() - session.first >= 8;
    })) << "half of the ring, though nobody had asked for a completion";
    EXPECT_EQ(proxy::post(session.ref(), write(from, 4096, 16, false)), status::ok);
    mlx5::completion none;
    EXPECT_FALSE(proxy::take(taker_->ref(), none));
}

/// Rings full of noise that carries the right tags.
TEST_F(verbs_proxy, random_descriptors_do_not_harm_the_engine) {
    make_engine();
    must(engine_->start());
    proxy_session& sound = connect();
    std::mt19937_64 random(20261121);
    for (int round = 0; round < tests::effort(40); ++round) {
        proxy_session& broken = connect();
        for (std::uint32_t i = 0; i < 16; ++i) {
            const std::uint32_t number = broken.first + i;
            for (std::uint32_t quad = 0; quad < 4; ++quad) {
                accel::proxy::tagged_quad noise{};
                for (std::uint32_t& word : noise.content) word = static_cast<std::uint32_t>(random());
                // Some get past the first checks.
                if (quad == 0 && random() % 4 != 0) noise.content[0] = 0x0809;
                if (quad == 0 && random() % 4 != 0) noise.content[2] &= 0xfff;
                if (quad == 3 && random() % 4 != 0) noise = {{broken.pair->number(), 0, 0}, 0};
                noise.tag = accel::proxy::tag_of(number);
                accel::proxy::store_quad(&broken.ring.entries()[number & 15].quads[quad], noise);
            }
        }
        const auto failed = next();
        ASSERT_TRUE(failed) << round;
        EXPECT_EQ(failed->queue_pair, broken.pair->number());
        EXPECT_EQ(failed->kind, mlx5::entry_kind::request_error);
        disconnect(broken);
        // What it left may be told of no more.
        expect_sound(sound, static_cast<std::uint32_t>(round));
    }
}

/// As of an exclusive service: requests come by WRITE without immediate data.
TEST_F(verbs_proxy, an_unexpected_announcement_ends_only_its_own_queue_pair) {
    gpu::proxy_options plain;
    plain.arrivals = false;
    make_engine(plain);
    must(engine_->start());
    proxy_session& broken = connect();
    proxy_session& sound = connect();
    const auto from = range(0, 64);
    expect_sound(broken, 1);
    for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(write_back(broken, from, 8192, i));
    const auto told = next();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->queue_pair, broken.pair->number());
    EXPECT_FALSE(next(20ms)) << "it is told of once";
    ASSERT_EQ(proxy::post(broken.ref(), write(from, 4096, 7, true)), status::ok);
    EXPECT_FALSE(next(20ms));
    EXPECT_TRUE(arrivals_at(broken).empty()) << "nothing of it is posted any more";
    for (std::uint32_t i = 0; i < 20; ++i) expect_sound(sound, i);
}

TEST_F(verbs_proxy, unsuitable_devices_memory_and_queue_pairs_are_refused) {
    const auto direct = must(device::open({}, {}));
    proxy_taker taker(16);
    if (direct->driver() != nullptr) {
        EXPECT_EQ(gpu::proxy_engine::create(direct, taker.memory(), {}).code(), status::invalid_argument);
    }
    for (const auto& spoil :
         {+[](gpu::proxy_options& wrong) { wrong.round = 0; }, +[](gpu::proxy_options& wrong) { wrong.batch = 0; },
          +[](gpu::proxy_options& wrong) { wrong.batch = 65; }, +[](gpu::proxy_options& wrong) { wrong.receives = 0; },
          +[](gpu::proxy_options& wrong) { wrong.sends = 0; }}) {
        gpu::proxy_options wrong;
        spoil(wrong);
        EXPECT_EQ(gpu::proxy_engine::create(device_, taker.memory(), wrong).code(), status::invalid_argument);
    }
    gpu::proxy_options few;
    few.sends = depth + depth / 2;
    make_engine(few);
    proxy_session& session = connect();
    EXPECT_EQ(engine_->add(*session.pair, session.memory()).error().code, status::invalid_argument) << "twice";
    EXPECT_EQ(engine_->add(*session.peer, session.memory()).error().code, status::invalid_argument);
    gpu::proxy_send_ring odd = session.memory();
    odd.descriptors = odd.descriptors.first(12);
    EXPECT_EQ(engine_->add(*session.pair, odd).error().code, status::invalid_argument);
    EXPECT_THROW(connect(), std::runtime_error) << "no room for its completions";
    EXPECT_THROW(connect(16, depth, mlx5::no_queue_pair), std::runtime_error) << "not a name";
    disconnect(session);
    must(engine_->start());
    expect_sound(connect(), 1);
}

TEST_F(verbs_proxy, arrivals_wake_the_engine) {
    gpu::proxy_options sleepy;
    sleepy.pace.spin = 0ns;
    sleepy.pace.nap = sleepy.pace.longest_nap = patience(30s);
    make_engine(sleepy);
    must(engine_->start());
    proxy_session& session = connect();
    const auto from = range(0, 8);
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < 20; ++i) {
        std::this_thread::sleep_for(i % 2 * 2ms);  // it may nap by then, or not yet
        ASSERT_TRUE(write_back(session, from, 4096, i));
        const auto told = next(patience(10s));
        ASSERT_TRUE(told) << i;
        EXPECT_EQ(told->immediate, mlx5::to_be32(i));
        std::array<mlx5::completion, 4> sent;
        ASSERT_TRUE(eventually(patience(5s), [&] {
            return session.peer_completions->poll(sent) == 1 && session.peer->take_sent(sent[0]);
        }));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, sleepy.pace.nap);
}

TEST_F(verbs_proxy, a_napping_engine_removes_queue_pairs_and_stops_at_once) {
    gpu::proxy_options sleepy;
    sleepy.pace.spin = 0ns;
    sleepy.pace.nap = sleepy.pace.longest_nap = 60s;
    make_engine(sleepy);
    must(engine_->start());
    EXPECT_EQ(engine_->start().error().code, status::invalid_state);
    std::this_thread::sleep_for(5ms);
    auto begun = std::chrono::steady_clock::now();
    proxy_session& session = connect();
    engine_->remove(*session.pair);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, patience(2s));
    begun = std::chrono::steady_clock::now();
    engine_->stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, patience(2s));
    engine_->stop();
}

}  // namespace
}  // namespace accel::verbs
