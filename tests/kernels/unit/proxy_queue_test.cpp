// SPDX-License-Identifier: Apache-2.0
// The rings between posters and the proxy's thread, without a device: a thread of the test reads and answers.
#include "patience.hpp"

#include <accel_transport/device/detail/proxy/queue.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <thread>
#include <tuple>
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

constexpr proxy::answer_way some_way{0x10000, 512, 21, 3, 300, 0x50000, 1024, 22};

/// One poster or several, and the proxy, step by step, against the numbers and descriptors that there must be.
class posting_sequence {
  public:
    posting_sequence(unsigned seed, std::uint32_t count, std::uint32_t first)
        : random_(seed), count_(count), ring_(count, first), reserved_(first), read_(first), released_(first) {}

    void step() {
        switch (roll(8)) {
            case 0:
                return refuse();
            case 1:
                return reserve(1 + roll(count_));
            case 2:
                return fill_one();
            case 3:
                return read_some();
            case 4:
                return give_room();
            case 5:
                return note();
            default:
                return post();
        }
    }

  private:
    struct posted {
        bool answer = false;
        std::uint32_t slot = 0;
        mlx5::work_request request;
        mlx5::local_range range;
    };
    [[nodiscard]] std::uint32_t roll(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
    [[nodiscard]] std::uint32_t room() const { return count_ - (reserved_ - released_); }
    [[nodiscard]] posted any_request() {
        constexpr std::array known{mlx5::opcode::write, mlx5::opcode::write_immediate, mlx5::opcode::send,
                                   mlx5::opcode::send_immediate, mlx5::opcode::read};
        posted out;
        out.range = {random_(), static_cast<std::uint32_t>(random_()), static_cast<std::uint32_t>(random_())};
        out.request.operation = known[roll(known.size())];
        out.request.flags = static_cast<std::uint8_t>(random_());
        out.request.immediate = mlx5::be32{static_cast<std::uint32_t>(random_())};
        out.request.ranges = 1;
        out.request.remote_address = random_();
        out.request.remote_key = static_cast<std::uint32_t>(random_());
        return out;
    }
    void post() {
        posted what = any_request();
        what.request.first = &what.range;
        what.answer = roll(3) == 0;
        what.slot = what.request.remote_key;
        const std::vector<proxy::send_descriptor> before = ring_.memory;
        const status said = what.answer ? proxy::post_answer(ring_.ref, what.slot, what.range.length)
                                        : proxy::post(ring_.ref, what.request);
        ASSERT_EQ(said, room() > 0 ? status::ok : status::again);
        if (said != status::ok) {
            ASSERT_EQ(std::memcmp(before.data(), ring_.memory.data(), count_ * sizeof before[0]), 0);
            ASSERT_EQ(proxy::free_descriptors(ring_.ref), 0U);
            return;
        }
        filled_[reserved_++] = what;
    }
    void refuse() {
        posted what = any_request();
        const mlx5::local_range two[2]{what.range, what.range};
        what.request.first = two;
        constexpr std::array unknown{mlx5::opcode::compare_swap, mlx5::opcode::fetch_add, mlx5::opcode::nop};
        const std::uint32_t wrong = roll(5);
        if (wrong == 0) what.request.ranges = 2;
        if (wrong == 1) what.request.carries_bytes = true;
        if (wrong > 1) what.request.operation = unknown[wrong - 2];
        ASSERT_EQ(proxy::post(ring_.ref, what.request), status::unsupported);
    }
    /// To be filled later, in any order.
    void reserve(std::uint32_t descriptors) {
        std::uint32_t first = 0;
        const status said = proxy::reserve(ring_.ref, descriptors, first);
        ASSERT_EQ(said, room() >= descriptors ? status::ok : status::again);
        if (said != status::ok) return;
        ASSERT_EQ(first, reserved_);
        for (std::uint32_t i = 0; i < descriptors; ++i) open_.push_back(reserved_++);
    }
    void fill_one() {
        if (open_.empty()) return;
        const std::uint32_t number = open_[roll(static_cast<std::uint32_t>(open_.size()))];
        std::erase(open_, number);
        posted what = any_request();
        what.request.first = &what.range;
        proxy::fill(ring_.ref, number, what.request);
        filled_[number] = what;
    }
    void read_some() {
        for (; filled_.contains(read_); ++read_) {
            proxy::request seen;
            ASSERT_TRUE(ring_.read(read_, seen));
            expect_same(filled_[read_], seen);
            ASSERT_FALSE(ring_.read(read_ + count_, seen)) << "what comes to lie there";
            filled_.erase(read_);
        }
        proxy::request none;
        ASSERT_FALSE(ring_.read(read_, none)) << "it has not been filled";
    }
    static void expect_same(const posted& what, const proxy::request& seen) {
        ASSERT_EQ(seen.is_answer, what.answer);
        ASSERT_EQ(seen.from.length, what.range.length);
        if (what.answer) {
            ASSERT_EQ(seen.slot, what.slot);
            return;
        }
        ASSERT_EQ(seen.operation, static_cast<std::uint8_t>(what.request.operation));
        ASSERT_EQ(seen.flags, what.request.flags);
        ASSERT_TRUE(seen.known_bits_only);
        ASSERT_EQ(seen.queue_pair, 0x42U);
        ASSERT_EQ(seen.immediate, what.request.immediate);
        ASSERT_EQ(seen.from.address, what.range.address);
        ASSERT_EQ(seen.from.key, what.range.key);
        ASSERT_EQ(seen.remote_address, what.request.remote_address);
        ASSERT_EQ(seen.remote_key, what.request.remote_key);
    }
    void give_room() {
        older_ = released_;
        released_ += roll(read_ - released_ + 1);
        mlx5::store_flag(&ring_.released, released_);
    }
    /// Posters hear of completions, once or more often. One may note what it saw after another has noted more.
    void note() {
        if (roll(4) == 0) ring_.state.released = older_;
        ASSERT_LE(proxy::free_descriptors(ring_.ref), room());
        const std::uint32_t noted = ring_.state.released;
        const std::uint32_t counter = noted + roll(2 * count_) - count_ / 2;
        const bool known = static_cast<std::int32_t>(counter - noted) < 0;
        if (!known && counter - released_ < reserved_ - released_) return;  // no device tells of it before it is done
        const bool sane = known || counter - noted < reserved_ - noted;
        ASSERT_EQ(proxy::release(ring_.ref, static_cast<std::uint16_t>(counter)), sane);
        ASSERT_EQ(ring_.state.released, known || !sane ? noted : counter + 1);
    }

    std::mt19937_64 random_;
    const std::uint32_t count_;
    send_ring ring_;
    std::uint32_t reserved_;
    std::uint32_t read_;
    std::uint32_t released_;
    std::uint32_t older_ = released_;         ///< as it was once
    std::vector<std::uint32_t> open_;         ///< reserved and not filled
    std::map<std::uint32_t, posted> filled_;  ///< and not read
};

TEST(proxy_queue, descriptors_are_read_in_their_order_and_give_their_room_back) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        // Numbers wrap around soon, at 16 bits or at 32.
        const std::uint32_t count = 2U << seed % 5;
        posting_sequence posts(seed, count, (seed % 2 == 0 ? 0xffff'ffffU : 0xffffU) - seed % 40);
        for (int step = 0; step < 300; ++step) {
            SCOPED_TRACE(::testing::Message() << "seed " << seed << ", step " << step);
            posts.step();
            if (HasFatalFailure()) return;
        }
    }
}

TEST(proxy_queue, a_descriptor_is_read_only_when_it_is_complete) {
    constexpr std::uint32_t number = 0xffff'ffff;  // whose tag is 0
    const mlx5::local_range range{1, 2, 3};
    for (std::size_t missing = 0; missing < 4; ++missing) {
        send_ring ring(4, number);
        const proxy::send_descriptor before = ring.memory[3];
        ASSERT_EQ(proxy::post(ring.ref, numbered(1, &range)), status::ok);
        proxy::request seen;
        ASSERT_TRUE(ring.read(number, seen));
        EXPECT_TRUE(seen.known_bits_only);
        ring.memory[3].quads[missing] = before.quads[missing];
        EXPECT_FALSE(ring.read(number, seen)) << missing;
    }
    using bits_of_word = std::tuple<std::size_t, std::size_t, std::uint32_t>;
    for (const auto& [quad, word, bits] :
         {bits_of_word{0, 0, 0x1'0000}, {0, 0, 0x8000'0000}, {3, 1, 1}, {3, 2, 0x8000'0000}}) {
        send_ring ring(4, number);
        ASSERT_EQ(proxy::post(ring.ref, numbered(1, &range)), status::ok);
        ring.memory[3].quads[quad].content[word] |= bits;
        proxy::request seen;
        ASSERT_TRUE(ring.read(number, seen));
        EXPECT_FALSE(seen.known_bits_only) << quad << " " << word << ": they have no meaning";
    }
}

TEST(proxy_queue, an_answer_takes_one_store_and_goes_the_way_of_its_session) {
    send_ring ring(4);
    const proxy::send_descriptor before = ring.memory[0];
    ASSERT_EQ(proxy::post_answer(ring.ref, 2, 300), status::ok);
    for (std::size_t i = 1; i < 4; ++i)
        EXPECT_EQ(std::memcmp(&ring.memory[0].quads[i], &before.quads[i], sizeof before.quads[i]), 0) << i;
    for (const bool plain : {false, true}) {
        proxy::answer_way way = some_way;
        way.plain = plain ? 1 : 0;
        proxy::request seen;
        ASSERT_TRUE(ring.read(0, seen));
        ASSERT_TRUE(proxy::complete(way, 0x42, seen));
        const mlx5::opcode expected = plain ? mlx5::opcode::write : mlx5::opcode::write_immediate;
        EXPECT_EQ(seen.operation, static_cast<std::uint8_t>(expected));
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
    const auto possible = [](const proxy::answer_way& way, std::uint32_t slot, std::uint32_t bytes) {
        proxy::request answer;
        answer.slot = slot;
        answer.from.length = bytes;
        return proxy::complete(way, 1, answer);
    };
    EXPECT_TRUE(possible(some_way, 0, 0));
    EXPECT_TRUE(possible(some_way, 2, 300));
    EXPECT_FALSE(possible(some_way, 3, 300)) << "no such slot";
    EXPECT_FALSE(possible(some_way, 2, 301)) << "longer than a slot";
    EXPECT_FALSE(possible({}, 0, 0)) << "no session";
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

/// As it is told: a completion of a send has no length, an arrival no counter.
mlx5::completion any_completion(std::mt19937_64& random) {
    constexpr std::array kinds{mlx5::entry_kind::request, mlx5::entry_kind::write_immediate, mlx5::entry_kind::receive,
                               mlx5::entry_kind::request_error, mlx5::entry_kind::receive_error};
    mlx5::completion out;
    out.queue_pair = static_cast<std::uint32_t>(random() % 3 == 0 ? 5 : 1 + random() % 0xff'fffe);
    out.kind = kinds[random() % kinds.size()];
    const bool failed = out.kind == mlx5::entry_kind::request_error || out.kind == mlx5::entry_kind::receive_error;
    if (!failed && out.kind != mlx5::entry_kind::request) {
        out.immediate = mlx5::be32{static_cast<std::uint32_t>(random())};
        out.length = static_cast<std::uint32_t>(random());
        return out;
    }
    out.counter = static_cast<std::uint16_t>(random());
    out.operation = random() % 2 == 0 ? mlx5::opcode::write : mlx5::opcode::read;
    if (!failed) return out;
    out.failure = random() % 2 == 0 ? mlx5::syndrome::remote_access : mlx5::syndrome::flushed;
    out.vendor_syndrome = static_cast<std::uint8_t>(random());
    return out;
}
void expect_same(const mlx5::completion& told, const mlx5::completion& seen) {
    EXPECT_EQ(seen.queue_pair, told.queue_pair);
    EXPECT_EQ(seen.kind, told.kind);
    EXPECT_EQ(seen.immediate, told.immediate);
    EXPECT_EQ(seen.length, told.length);
    EXPECT_EQ(seen.counter, told.counter);
    EXPECT_EQ(seen.operation, told.operation);
    EXPECT_EQ(seen.failure, told.failure);
    EXPECT_EQ(seen.vendor_syndrome, told.vendor_syndrome);
}
/// As mlx5::take writes it: operation and queue pair, vendor's syndrome, syndrome, 1.
std::uint64_t noted_as_first(const mlx5::completion& failed) {
    return (static_cast<std::uint64_t>(failed.operation) << 48) | (std::uint64_t{failed.queue_pair} << 24) |
           (std::uint64_t{failed.vendor_syndrome} << 16) | (static_cast<std::uint64_t>(failed.failure) << 8) | 1U;
}

TEST(proxy_queue, completions_are_taken_in_their_order_and_give_their_room_back) {
    for (unsigned seed = 0; seed < 200 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937_64 random(seed);
        const std::uint32_t count = 2U << seed % 4;
        completion_ring ring(count, 0xffff'ffff - seed % 40);
        std::deque<mlx5::completion> told;
        std::uint32_t unpublished = 0;
        std::uint64_t first_failure = 0;
        for (int step = 0; step < 200 && !HasFailure(); ++step) {
            const std::uint32_t room = count - unpublished - static_cast<std::uint32_t>(told.size());
            EXPECT_EQ(ring.room(), room);
            EXPECT_EQ(proxy::is_next_there(ring.ref), !told.empty());
            const auto what = random() % 8;
            if (what < 4 && room > 0) {
                told.push_back(any_completion(random));
                ring.tell(told.back());
            } else if (what < 6) {
                mlx5::completion seen;
                ASSERT_EQ(proxy::take(ring.ref, seen), !told.empty());
                if (told.empty()) continue;
                expect_same(told.front(), seen);
                if (first_failure == 0 && seen.failure != mlx5::syndrome::none) first_failure = noted_as_first(seen);
                EXPECT_EQ(ring.first_failure, first_failure);
                told.pop_front();
                ++unpublished;
            } else if (what == 6) {
                proxy::publish_taken(ring.ref);
                unpublished = 0;
            } else {
                proxy::discard_completions(ring.ref, 5);
                for (mlx5::completion& each : told)
                    if (each.queue_pair == 5) each.queue_pair = mlx5::no_queue_pair;
            }
        }
    }
}

TEST(proxy_queue, nonsense_of_the_taker_makes_no_room) {
    completion_ring ring(4, 0xffff'fffd);
    for (int i = 0; i < 4; ++i) ring.tell({});
    EXPECT_EQ(ring.room(), 0U);
    for (const std::uint32_t consumed : {ring.told + 1, ring.told + 0x8000'0000U, ring.told - 5}) {
        ring.consumed = consumed;
        EXPECT_EQ(ring.room(), 0U) << ring.told - consumed << " are out";
    }
    ring.consumed = ring.told;
    EXPECT_EQ(ring.room(), 4U);
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
