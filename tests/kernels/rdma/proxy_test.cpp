// SPDX-License-Identifier: Apache-2.0
// The proxy engine on the device, round by round or with its thread; this program's threads play the kernels.
#include "rdma/proxy_rig.hpp"

#include <random>
#include <thread>

namespace accel::verbs {
namespace {

class verbs_proxy : public proxy_rig {};

TEST_F(verbs_proxy, requests_are_posted_in_order_and_completed_when_signalled) {
    make_engine();
    must(engine_->start());
    proxy_session& session = connect();
    const auto from = range(0, 100);
    constexpr std::uint32_t count = 200;
    std::uint32_t posted = 0;
    std::uint32_t told = 0;
    std::vector<std::uint32_t> arrived;
    const bool all = eventually(
        patience(10s),
        [&] {
            while (posted < count &&
                   proxy::post(session.ref(), write(from, 4096, posted, posted % 5 == 0)) == status::ok)
                ++posted;
            for (const std::uint32_t each : arrivals_at(session)) arrived.push_back(each);
            mlx5::completion sent;
            while (proxy::take(taker_->ref(), sent)) {
                EXPECT_EQ(sent.kind, mlx5::entry_kind::request);
                EXPECT_EQ(sent.operation, mlx5::opcode::write_immediate);
                EXPECT_EQ(sent.counter, static_cast<std::uint16_t>(session.first + 5 * told));
                EXPECT_TRUE(proxy::release(session.ref(), sent.counter));
                ++told;
            }
            proxy::publish_taken(taker_->ref());
            return arrived.size() == count && told == count / 5;
        },
        50us);
    EXPECT_TRUE(all) << posted << " posted, " << arrived.size() << " arrived, " << told << " told";
    for (std::uint32_t i = 0; i < arrived.size(); ++i) EXPECT_EQ(arrived[i], i);
    EXPECT_EQ(taker_->first_failure, 0U);
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

TEST_F(verbs_proxy, completions_carry_the_given_name_of_their_queue_pair) {
    make_engine();
    must(engine_->start());
    constexpr std::uint32_t name = 7;
    proxy_session& session = connect(16, depth, name);
    const auto from = range(0, 8);
    ASSERT_EQ(proxy::post(session.ref(), write(from, 4096, 1, true)), status::ok);
    auto told = next();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->queue_pair, name);
    EXPECT_EQ(told->kind, mlx5::entry_kind::request);
    ASSERT_TRUE(write_back(session, from, 8192, 2));
    told = next();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->queue_pair, name);
    EXPECT_EQ(told->kind, mlx5::entry_kind::write_immediate);
    auto by_number = session.ref();
    by_number.queue_pair = session.pair->number();
    ASSERT_EQ(proxy::post(by_number, write(from, 4096, 3, false)), status::ok);
    told = next();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->queue_pair, name);
    EXPECT_EQ(told->vendor_syndrome, static_cast<std::uint8_t>(proxy::refusal::queue_pair));
    EXPECT_THROW(connect(16, depth, mlx5::no_queue_pair), std::runtime_error);
    expect_sound(connect(), 4);
}

TEST_F(verbs_proxy, an_answer_of_a_queue_pair_that_has_none_ends_that_queue_pair) {
    make_engine();
    must(engine_->start());
    proxy_session& session = connect();
    ASSERT_EQ(proxy::post_answer(session.ref(), 0, 64), status::ok);
    const auto told = next();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->kind, mlx5::entry_kind::request_error);
    EXPECT_EQ(told->vendor_syndrome, static_cast<std::uint8_t>(proxy::refusal::answer));
    expect_sound(connect(), 4);
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

TEST_F(verbs_proxy, a_busy_ring_takes_one_batch_a_round) {
    gpu::proxy_options options;
    options.batch = 8;
    make_engine(options);
    proxy_session& busy = connect(64);
    proxy_session& quiet = connect();
    const auto from = range(0, 8);
    for (std::uint32_t i = 0; i < 64; ++i) ASSERT_EQ(proxy::post(busy.ref(), write(from, 4096, i, false)), status::ok);
    ASSERT_EQ(proxy::post(quiet.ref(), write(from, 4096, 77, false)), status::ok);
    EXPECT_TRUE(engine_->progress());
    EXPECT_EQ(wait_for_arrivals(quiet, 1), std::vector{77U});
    EXPECT_EQ(wait_for_arrivals(busy, 8).size(), 8U);
    std::this_thread::sleep_for(5ms);
    EXPECT_TRUE(arrivals_at(busy).empty());
}

TEST_F(verbs_proxy, completions_wait_while_the_ring_has_no_room) {
    make_engine({}, 4);
    proxy_session& session = connect();
    const auto from = range(0, 8);
    for (std::uint32_t i = 0; i < 10; ++i)
        ASSERT_EQ(proxy::post(session.ref(), write(from, 4096, i, true)), status::ok);
    engine_->progress();
    ASSERT_EQ(wait_for_arrivals(session, 10).size(), 10U);
    for (int i = 0; i < 20; ++i) {
        engine_->progress();
        std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(session.released_now() - session.first, 4U) << "those that are told, and no more";
    // A failure of the engine's own is held back like them.
    proxy_session& other = connect();
    proxy::send_queue_ref wrong = other.ref();
    wrong.queue_pair ^= 1;
    ASSERT_EQ(proxy::post(wrong, write(from, 4096, 0, false)), status::ok);
    engine_->progress();
    std::uint32_t sent = 0;
    std::uint32_t failed = 0;
    EXPECT_TRUE(eventually(patience(5s),
                           [&] {
                               mlx5::completion done;
                               if (proxy::take(taker_->ref(), done)) {
                                   proxy::publish_taken(taker_->ref());
                                   if (done.queue_pair == other.pair->number()) {
                                       ++failed;
                                   } else {
                                       EXPECT_EQ(done.counter, static_cast<std::uint16_t>(session.first + sent));
                                       ++sent;
                                   }
                               }
                               engine_->progress();
                               return sent == 10 && failed == 1;
                           }))
        << sent << " and " << failed;
}

TEST_F(verbs_proxy, an_error_ends_only_its_own_queue_pair) {
    make_engine();
    must(engine_->start());
    proxy_session& broken = connect();
    proxy_session& sound = connect();
    const auto from = range(0, 64);
    auto bad = write(from, 4096, 0, false);
    bad.remote_key ^= 0x5500;
    ASSERT_EQ(proxy::post(broken.ref(), bad), status::ok);
    const auto first = next();
    ASSERT_TRUE(first) << "though nobody had asked for its completion";
    EXPECT_EQ(first->kind, mlx5::entry_kind::request_error);
    EXPECT_EQ(first->failure, mlx5::syndrome::remote_access);
    EXPECT_EQ(first->operation, mlx5::opcode::write_immediate);
    EXPECT_EQ(first->queue_pair, broken.pair->number());
    EXPECT_EQ(first->counter, static_cast<std::uint16_t>(broken.first));
    const std::uint64_t told = taker_->first_failure;
    EXPECT_EQ((told >> 24) & 0xff'ffff, broken.pair->number());
    EXPECT_EQ((told >> 8) & 0xff, static_cast<std::uint64_t>(mlx5::syndrome::remote_access));
    EXPECT_EQ((told >> 16) & 0xff, first->vendor_syndrome);

    for (std::uint32_t i = 0; i < 16; ++i) (void)proxy::post(broken.ref(), write(from, 4096, i, true));
    EXPECT_EQ(proxy::post(broken.ref(), write(from, 4096, 0, true)), status::again);
    for (std::uint32_t i = 0; i < 100; ++i) expect_sound(sound, i);
    EXPECT_TRUE(arrivals_at(broken).empty());
    EXPECT_EQ(taker_->first_failure, told);
}

TEST_F(verbs_proxy, requests_after_a_failed_one_are_flushed) {
    make_engine();
    proxy_session& broken = connect();
    const auto from = range(0, 64);
    auto bad = write(from, 4096, 0, false);
    bad.remote_key ^= 0x5500;
    ASSERT_EQ(proxy::post(broken.ref(), bad), status::ok);
    for (std::uint32_t i = 1; i < 7; ++i)
        ASSERT_EQ(proxy::post(broken.ref(), write(from, 4096, i, i % 2 == 0)), status::ok);
    engine_->progress();
    must(engine_->start());
    const auto first = next();
    ASSERT_TRUE(first);
    EXPECT_EQ(first->failure, mlx5::syndrome::remote_access);
    for (std::uint32_t i = 2; i < 7; i += 2) {
        const auto flushed = next();
        ASSERT_TRUE(flushed) << i;
        EXPECT_EQ(flushed->kind, mlx5::entry_kind::request_error);
        EXPECT_EQ(flushed->failure, mlx5::syndrome::flushed);
        EXPECT_EQ(flushed->counter, static_cast<std::uint16_t>(broken.first + i));
    }
    EXPECT_TRUE(eventually(patience(5s), [&] { return broken.released_now() - broken.first == 7; }));
    EXPECT_FALSE(next(20ms));
}

TEST_F(verbs_proxy, an_invalid_descriptor_ends_only_its_own_queue_pair) {
    make_engine();
    must(engine_->start());
    proxy_session& sound = connect();
    const auto good = range(0, 64);
    const auto longer = range(0, 0xffff'ffff);
    using change = void (*)(mlx5::work_request&);
    struct wrong {
        proxy::refusal why;
        change how;
    };
    const std::array<wrong, 4> all{{
        {proxy::refusal::operation, [](auto& r) { r.operation = mlx5::opcode::fetch_add; }},
        {proxy::refusal::operation, [](auto& r) { r.operation = static_cast<mlx5::opcode>(0xff); }},
        {proxy::refusal::flags, [](auto& r) { r.flags = 0x10; }},
        {proxy::refusal::length, nullptr},
    }};
    for (const wrong& each : all) {
        proxy_session& broken = connect();
        ASSERT_EQ(proxy::post(broken.ref(), write(good, 4096, 5, false)), status::ok);
        auto request = write(each.how != nullptr ? good : longer, 4096, 6, false);
        if (each.how != nullptr) each.how(request);
        std::uint32_t number = 0;
        ASSERT_EQ(proxy::reserve(broken.ref(), 1, number), status::ok);
        proxy::fill(broken.ref(), number, request);
        ASSERT_EQ(proxy::post(broken.ref(), write(good, 4096, 7, true)), status::ok);
        const auto failed = next();
        ASSERT_TRUE(failed);
        EXPECT_EQ(failed->queue_pair, broken.pair->number());
        EXPECT_EQ(failed->failure, mlx5::syndrome::local_queue_pair);
        EXPECT_EQ(failed->vendor_syndrome, static_cast<std::uint8_t>(each.why));
        EXPECT_EQ(failed->counter, static_cast<std::uint16_t>(number));
        EXPECT_EQ(wait_for_arrivals(broken, 1), std::vector{5U}) << "what came before it was sent";
        expect_sound(sound, 1);
        EXPECT_TRUE(arrivals_at(broken).empty()) << "and nothing behind it";
        disconnect(broken);
    }
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

/// Drivers drop the completions of a queue pair that ends, and with them the notice that receives were used
/// up.
TEST_F(verbs_proxy, receives_of_ended_queue_pairs_come_back) {
    gpu::proxy_options few;
    few.receives = 8;
    make_engine(few, 2);
    const auto from = range(0, 8);
    for (std::uint32_t round = 0; round < 20; ++round) {
        proxy_session& session = connect();
        for (std::uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(write_back(session, from, 4096, i));
        std::array<mlx5::completion, 4> sent;
        std::size_t acknowledged = 0;
        ASSERT_TRUE(eventually(patience(5s), [&] {
            engine_->progress();  // two are told
            const int got = session.peer_completions->poll(sent);
            acknowledged += got > 0 ? static_cast<std::size_t>(got) : 0;
            return acknowledged == 4;
        })) << round;
        disconnect(session);
        mlx5::completion left;
        while (proxy::take(taker_->ref(), left)) EXPECT_EQ(left.queue_pair, mlx5::no_queue_pair);
        proxy::publish_taken(taker_->ref());
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

TEST_F(verbs_proxy, unsuitable_memory_and_queue_pairs_are_refused) {
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
    disconnect(session);
    must(engine_->start());
    expect_sound(connect(), 1);
}

TEST_F(verbs_proxy, refuses_a_device_that_is_driven_directly) {
    const auto other = must(device::open({}, {}));
    if (other->driver() == nullptr) GTEST_SKIP() << "there is none";
    proxy_taker taker(16);
    const auto made = gpu::proxy_engine::create(other, taker.memory(), {});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, status::invalid_argument);
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
