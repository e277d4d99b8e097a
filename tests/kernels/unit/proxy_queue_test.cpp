// SPDX-License-Identifier: Apache-2.0
// The rings between posters and the proxy's thread, without a device: a thread of the test reads and answers.
#include "patience.hpp"

#include <accel_transport/device/detail/proxy/queue.hpp>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

struct send_ring {
    explicit send_ring(std::uint32_t count, std::uint32_t first = 0)
        : memory(count), state{first, first}, released(first) {
        proxy::clear(memory.data(), count, first);
        ref = {memory.data(), count, 0x42, &state, &released};
    }
    /// As the proxy does.
    [[nodiscard]] bool read(std::uint32_t number, proxy::request& out) const {
        return proxy::read(memory.data(), ref.count, number, out);
    }
    std::vector<proxy::send_descriptor> memory;
    proxy::send_queue_state state;
    std::uint32_t released;
    proxy::send_queue_ref ref;
};

struct completion_ring {
    explicit completion_ring(std::uint32_t count, std::uint32_t first = 0)
        : memory(count), consumed(first), told(first) {
        proxy::clear(memory.data(), count, first);
        state.taken = first;
        ref = {memory.data(), count, &consumed, &state, &first_failure};
    }
    [[nodiscard]] std::uint32_t room() const { return proxy::room(ref.count, &consumed, told); }
    void tell(const mlx5::completion& what) { proxy::tell(memory.data(), ref.count, told++, what); }
    std::vector<proxy::completion_entry> memory;
    std::uint32_t consumed;
    std::uint32_t told;
    proxy::completion_queue_state state;
    std::uint64_t first_failure = 0;
    proxy::completion_queue_ref ref;
};

mlx5::work_request numbered(std::uint64_t value, const mlx5::local_range* range) {
    mlx5::work_request request;
    request.operation = mlx5::opcode::write_immediate;
    request.immediate = mlx5::to_be32(static_cast<std::uint32_t>(value));
    request.ranges = 1;
    request.first = range;
    request.remote_address = ~value;
    request.remote_key = static_cast<std::uint32_t>(value * 7);
    return request;
}

TEST(proxy_queue, a_descriptor_arrives_as_it_was_posted) {
    send_ring ring(4);
    const mlx5::local_range range{0x1122'3344'5566'7788, 0x99aa'bbcc, 0xddee'ff01};
    mlx5::work_request request;
    request.operation = mlx5::opcode::write_immediate;
    request.flags = mlx5::flag_signalled | mlx5::flag_fence;
    request.immediate = mlx5::to_be32(0xabcd'ef12);
    request.ranges = 1;
    request.first = &range;
    request.remote_address = 0x8877'6655'4433'2211;
    request.remote_key = 0x1357'9bdf;
    proxy::request seen;
    EXPECT_FALSE(ring.read(0, seen));
    ASSERT_EQ(proxy::post(ring.ref, request), status::ok);
    ASSERT_TRUE(ring.read(0, seen));
    EXPECT_EQ(seen.operation, static_cast<std::uint8_t>(request.operation));
    EXPECT_EQ(seen.flags, request.flags);
    EXPECT_TRUE(seen.known_bits_only);
    EXPECT_EQ(seen.queue_pair, 0x42U);
    EXPECT_EQ(seen.immediate, request.immediate);
    EXPECT_EQ(seen.from.address, range.address);
    EXPECT_EQ(seen.from.length, range.length);
    EXPECT_EQ(seen.from.key, range.key);
    EXPECT_EQ(seen.remote_address, request.remote_address);
    EXPECT_EQ(seen.remote_key, request.remote_key);
    EXPECT_FALSE(ring.read(1, seen)) << "the next has not been posted";
    EXPECT_FALSE(ring.read(4, seen)) << "nor has the one that comes to lie there";
    ring.memory[0].quads[2].content[1] = 1;
    ring.memory[0].quads[3].content[2] = 1;
    ASSERT_TRUE(ring.read(0, seen));
    EXPECT_FALSE(seen.known_bits_only);
}

constexpr proxy::answer_way some_way{0x10000, 512, 21, 3, 300, 0x50000, 1024, 22};

TEST(proxy_queue, an_answer_takes_one_store_and_becomes_a_request) {
    send_ring ring(4);
    const proxy::send_descriptor before = ring.memory[0];
    ASSERT_EQ(proxy::post_answer(ring.ref, 2, 300), status::ok);
    for (std::size_t i = 1; i < 4; ++i)
        EXPECT_EQ(std::memcmp(&ring.memory[0].quads[i], &before.quads[i], sizeof before.quads[i]), 0) << i;
    proxy::request seen;
    ASSERT_TRUE(ring.read(0, seen));
    EXPECT_TRUE(seen.is_answer);
    ASSERT_TRUE(proxy::complete(some_way, 0x42, seen));
    EXPECT_EQ(seen.operation, static_cast<std::uint8_t>(mlx5::opcode::write_immediate));
    EXPECT_TRUE(seen.known_bits_only);
    EXPECT_EQ(seen.flags, 0);
    EXPECT_EQ(seen.queue_pair, 0x42U);
    EXPECT_EQ(seen.immediate, mlx5::to_be32(2));
    EXPECT_EQ(seen.from.address, 0x10400U);
    EXPECT_EQ(seen.from.length, 300U);
    EXPECT_EQ(seen.from.key, 21U);
    EXPECT_EQ(seen.remote_address, 0x50800U);
    EXPECT_EQ(seen.remote_key, 22U);
}

TEST(proxy_queue, an_answer_beyond_its_session_is_refused) {
    proxy::request answer;
    const auto possible = [&](std::uint32_t slot, std::uint32_t bytes) {
        answer.slot = slot;
        answer.from.length = bytes;
        return proxy::complete(some_way, 1, answer);
    };
    EXPECT_TRUE(possible(0, 0));
    EXPECT_FALSE(possible(3, 10)) << "no such slot";
    EXPECT_FALSE(possible(1, 301)) << "longer than a slot";
    EXPECT_FALSE(proxy::complete({}, 1, answer)) << "no session";
}

TEST(proxy_queue, answers_and_requests_take_turns_in_one_place) {
    send_ring ring(2);
    const mlx5::local_range range{1, 2, 3};
    proxy::request seen;
    for (std::uint32_t number = 0; number < 9; ++number) {
        ring.released = number;
        const bool answer = number / 2 % 2 != 0;
        const status posted = answer ? proxy::post_answer(ring.ref, number, 100 + number)
                                     : proxy::post(ring.ref, numbered(number, &range));
        ASSERT_EQ(posted, status::ok);
        ASSERT_TRUE(ring.read(number, seen));
        EXPECT_EQ(seen.is_answer, answer) << number;
        EXPECT_EQ(seen.from.length, answer ? 100 + number : 2);
    }
}

TEST(proxy_queue, a_descriptor_is_read_only_when_it_is_complete) {
    for (std::size_t missing = 0; missing < 4; ++missing) {
        send_ring ring(4, 0xffff'ffff);  // the number whose tag is 0
        const mlx5::local_range range{1, 2, 3};
        const proxy::send_descriptor before = ring.memory[3];
        ASSERT_EQ(proxy::post(ring.ref, numbered(1, &range)), status::ok);
        proxy::request seen;
        ASSERT_TRUE(ring.read(0xffff'ffff, seen));
        ring.memory[3].quads[missing] = before.quads[missing];
        EXPECT_FALSE(ring.read(0xffff'ffff, seen)) << missing;
    }
}

TEST(proxy_queue, a_full_ring_says_again_until_requests_have_completed) {
    send_ring ring(8, 0xffff'fffa);  // soon to wrap
    const mlx5::local_range range{1, 2, 3};
    std::uint32_t posted = 0xffff'fffa;
    for (std::uint32_t round = 0; round < 100; ++round) {
        for (int i = 0; i < 8; ++i) ASSERT_EQ(proxy::post(ring.ref, numbered(posted++, &range)), status::ok);
        const std::vector<proxy::send_descriptor> before = ring.memory;
        ASSERT_EQ(proxy::post(ring.ref, numbered(0, &range)), status::again);
        ASSERT_EQ(std::memcmp(before.data(), ring.memory.data(), sizeof(proxy::send_descriptor) * 8), 0);
        ASSERT_EQ(proxy::free_descriptors(ring.ref), 0U);
        for (std::uint32_t number = posted - 8; number != posted; ++number) {
            proxy::request seen;
            ASSERT_TRUE(ring.read(number, seen));
            ASSERT_EQ(mlx5::from_be(seen.immediate), number);
            ASSERT_EQ(seen.remote_address, ~std::uint64_t{number});
        }
        mlx5::store_flag(&ring.released, posted - 5);
        std::uint32_t first = 0;
        ASSERT_EQ(proxy::reserve(ring.ref, 4, first), status::again);
        ASSERT_EQ(proxy::free_descriptors(ring.ref), 3U);
        ASSERT_EQ(proxy::reserve(ring.ref, 3, first), status::ok);
        ASSERT_EQ(first, posted);
        posted += 3;
        mlx5::store_flag(&ring.released, posted);
    }
}

/// One poster may note what it saw of `released` after another has noted more.
TEST(proxy_queue, a_stale_count_of_completed_requests_makes_no_room) {
    send_ring ring(8, 0xffff'fffc);
    const mlx5::local_range range{1, 2, 3};
    for (int i = 0; i < 8; ++i) ASSERT_EQ(proxy::post(ring.ref, numbered(0, &range)), status::ok);
    mlx5::store_flag(&ring.released, 4U);
    for (int i = 0; i < 8; ++i) ASSERT_EQ(proxy::post(ring.ref, numbered(0, &range)), status::ok);
    ring.state.released = 0xffff'fffc;
    EXPECT_EQ(proxy::free_descriptors(ring.ref), 0U);
    ring.state.released = 0xffff'fffc;
    EXPECT_EQ(proxy::post(ring.ref, numbered(0, &range)), status::again);
    mlx5::store_flag(&ring.released, 5U);
    EXPECT_EQ(proxy::post(ring.ref, numbered(0, &range)), status::ok);
    EXPECT_EQ(proxy::post(ring.ref, numbered(0, &range)), status::again);
}

TEST(proxy_queue, requests_that_the_proxy_does_not_post_are_refused) {
    send_ring ring(4);
    const mlx5::local_range ranges[2]{{1, 2, 3}, {4, 5, 6}};
    mlx5::work_request request = numbered(0, ranges);
    request.ranges = 2;
    EXPECT_EQ(proxy::post(ring.ref, request), status::unsupported);
    request.ranges = 1;
    request.carries_bytes = true;
    EXPECT_EQ(proxy::post(ring.ref, request), status::unsupported);
    request.carries_bytes = false;
    for (const mlx5::opcode none : {mlx5::opcode::compare_swap, mlx5::opcode::fetch_add, mlx5::opcode::nop}) {
        request.operation = none;
        EXPECT_EQ(proxy::post(ring.ref, request), status::unsupported);
    }
    EXPECT_EQ(proxy::free_descriptors(ring.ref), 4U);
}

TEST(proxy_queue, a_completion_updates_the_count_of_its_posters) {
    send_ring ring(8, 0xfffe);
    const mlx5::local_range range{1, 2, 3};
    for (int i = 0; i < 4; ++i) ASSERT_EQ(proxy::post(ring.ref, numbered(0, &range)), status::ok);
    EXPECT_FALSE(proxy::release(ring.ref, 2)) << "has not been posted";
    EXPECT_TRUE(proxy::release(ring.ref, 0)) << "the third";
    EXPECT_EQ(ring.state.released, 0x1'0001U);
    EXPECT_TRUE(proxy::release(ring.ref, 0xffff)) << "known already";
    EXPECT_EQ(ring.state.released, 0x1'0001U);
    EXPECT_TRUE(proxy::release(ring.ref, 1));
    EXPECT_EQ(proxy::free_descriptors(ring.ref), 8U);
}

TEST(proxy_queue, descriptors_of_many_threads_are_read_whole_and_once) {
    constexpr std::uint32_t posters = 4;
    constexpr std::uint32_t each = 20'000;
    send_ring ring(64, 0xffff'ff00);  // soon to wrap
    std::atomic<bool> giving_up{false};
    std::vector<std::thread> threads;
    for (std::uint32_t poster = 0; poster < posters; ++poster) {
        threads.emplace_back([&, poster] {
            for (std::uint32_t number = 0; number < each && !giving_up;) {
                const std::uint64_t value = (std::uint64_t{poster} << 24) | number;
                const mlx5::local_range range{value * 3, number, poster};
                if (proxy::post(ring.ref, numbered(value, &range)) == status::ok)
                    ++number;
                else
                    std::this_thread::yield();
            }
        });
    }
    std::vector<std::uint32_t> next(posters, 0);
    std::uint64_t wrong = 0;
    std::uint32_t at = 0xffff'ff00;
    patient_wait arrival;
    for (std::uint32_t seen = 0; seen < posters * each;) {
        proxy::request got;
        if (!ring.read(at, got)) {
            if (!arrival.goes_on()) break;
            continue;
        }
        arrival.restart();
        const std::uint32_t value = mlx5::from_be(got.immediate);
        const std::uint32_t poster = value >> 24;
        const std::uint32_t number = value & 0xff'ffffU;
        const bool whole = got.from.address == std::uint64_t{value} * 3 && got.from.length == number &&
                           got.from.key == poster && got.remote_address == ~std::uint64_t{value} &&
                           got.remote_key == value * 7 && got.queue_pair == 0x42;
        if (whole && poster < posters && number == next[poster])
            ++next[poster];
        else
            ++wrong;
        ++at;
        if (++seen % 7 == 0) mlx5::store_flag(&ring.released, at);
    }
    giving_up = true;
    for (std::thread& one : threads) one.join();
    EXPECT_EQ(wrong, 0U);
    for (const std::uint32_t count : next) EXPECT_EQ(count, each);
    EXPECT_EQ(ring.state.reserved, at);
}

TEST(proxy_queue, completions_arrive_as_they_were_written) {
    completion_ring ring(4, 0xffff'fffe);  // soon to wrap
    mlx5::completion told;
    told.queue_pair = 0xab'cdef;
    told.kind = mlx5::entry_kind::write_immediate;
    told.immediate = mlx5::to_be32(0x1234'5678);
    told.length = 0xfedc'ba98;
    ring.tell(told);
    mlx5::completion sent;
    sent.queue_pair = 7;
    sent.kind = mlx5::entry_kind::request;
    sent.counter = 0xfff1;
    sent.operation = mlx5::opcode::write;
    ring.tell(sent);
    mlx5::completion seen;
    ASSERT_TRUE(proxy::take(ring.ref, seen));
    EXPECT_EQ(seen.queue_pair, told.queue_pair);
    EXPECT_EQ(seen.kind, told.kind);
    EXPECT_EQ(seen.immediate, told.immediate);
    EXPECT_EQ(seen.length, told.length);
    EXPECT_EQ(seen.failure, mlx5::syndrome::none);
    ASSERT_TRUE(proxy::take(ring.ref, seen));
    EXPECT_EQ(seen.queue_pair, 7U);
    EXPECT_EQ(seen.kind, mlx5::entry_kind::request);
    EXPECT_EQ(seen.counter, 0xfff1);
    EXPECT_EQ(seen.operation, mlx5::opcode::write);
    EXPECT_EQ(seen.failure, mlx5::syndrome::none);
    EXPECT_FALSE(proxy::take(ring.ref, seen));
    EXPECT_EQ(ring.first_failure, 0U);
}

TEST(proxy_queue, the_first_failure_is_kept) {
    completion_ring ring(4);
    mlx5::completion told;
    told.queue_pair = 0x123456;
    told.kind = mlx5::entry_kind::request_error;
    told.operation = mlx5::opcode::write;
    told.counter = 77;
    told.failure = mlx5::syndrome::remote_access;
    told.vendor_syndrome = 0x88;
    ring.tell(told);
    told.failure = mlx5::syndrome::flushed;
    ring.tell(told);
    mlx5::completion seen;
    ASSERT_TRUE(proxy::take(ring.ref, seen));
    EXPECT_EQ(seen.failure, mlx5::syndrome::remote_access);
    EXPECT_EQ(seen.vendor_syndrome, 0x88);
    EXPECT_EQ(seen.counter, 77);
    ASSERT_TRUE(proxy::take(ring.ref, seen));
    EXPECT_EQ(seen.failure, mlx5::syndrome::flushed);
    // As mlx5::take writes it: operation and queue pair, vendor's syndrome, syndrome, 1.
    EXPECT_EQ(ring.first_failure, 0x08'123456'88'13'01U);
}

TEST(proxy_queue, released_room_returns_and_invalid_releases_are_ignored) {
    completion_ring ring(4, 0xffff'fffd);
    EXPECT_EQ(ring.room(), 4U);
    for (int i = 0; i < 4; ++i) ring.tell({});
    EXPECT_EQ(ring.room(), 0U);
    mlx5::completion seen;
    ASSERT_TRUE(proxy::take(ring.ref, seen));
    ASSERT_TRUE(proxy::take(ring.ref, seen));
    EXPECT_EQ(ring.room(), 0U) << "taken, but not given back";
    proxy::publish_taken(ring.ref);
    EXPECT_EQ(ring.room(), 2U);
    ring.consumed = ring.told + 1;
    EXPECT_EQ(ring.room(), 0U) << "more than there were";
    ring.consumed = ring.told - 5;
    EXPECT_EQ(ring.room(), 0U) << "more out than fit";
}

TEST(proxy_queue, discarded_completions_are_never_reported) {
    completion_ring ring(8);
    for (std::uint32_t i = 0; i < 4; ++i) {
        mlx5::completion told;
        told.queue_pair = 5 + i % 2;
        told.kind = mlx5::entry_kind::write_immediate;
        told.length = i;
        ring.tell(told);
    }
    proxy::discard_completions(ring.ref, 5);
    for (std::uint32_t i = 0; i < 4; ++i) {
        mlx5::completion seen;
        ASSERT_TRUE(proxy::take(ring.ref, seen));
        EXPECT_EQ(seen.queue_pair, i % 2 == 0 ? mlx5::no_queue_pair : 6U);
        EXPECT_EQ(seen.length, i);
    }
}

TEST(proxy_queue, completions_are_read_in_order_while_others_are_written) {
    constexpr std::uint32_t total = 100'000;
    completion_ring ring(16, 0xffff'f000);
    std::atomic<bool> giving_up{false};
    std::thread writer([&] {
        for (std::uint32_t i = 0; i < total && !giving_up;) {
            if (ring.room() == 0) {
                std::this_thread::yield();
                continue;
            }
            mlx5::completion told;
            told.queue_pair = i & 0xffffU;
            told.kind = mlx5::entry_kind::write_immediate;
            told.immediate = mlx5::be32{i};
            told.length = ~i;
            ring.tell(told);
            ++i;
        }
    });
    std::uint64_t wrong = 0;
    std::uint32_t next = 0;
    patient_wait arrival;
    while (next < total) {
        mlx5::completion seen;
        if (!proxy::take(ring.ref, seen)) {
            if (!arrival.goes_on()) break;
            continue;
        }
        arrival.restart();
        if (seen.queue_pair != (next & 0xffffU) || seen.immediate != mlx5::be32{next} || seen.length != ~next) ++wrong;
        if (++next % 3 == 0) proxy::publish_taken(ring.ref);
    }
    giving_up = true;
    writer.join();
    EXPECT_EQ(next, total);
    EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace accel::tests
