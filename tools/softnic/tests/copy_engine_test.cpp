// SPDX-License-Identifier: Apache-2.0
// What drives the copy kernel, with a thread in the kernel's place: the same lanes, the same jobs, host
// memory.
#include "gpu/copy_engine.hpp"

#include "gpu/neighbours.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::softnic::gpu {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

/// Serves a lane as the kernel does: one job after the other, away when nothing comes, back when called. Of loose jobs,
/// which may be done in any order, the last first.
class stand_in final : public server {
  public:
    ~stand_in() override {
        stop_ = true;
        if (thread_.joinable()) thread_.join();
    }
    void wake(lane& which) override {
        ++calls;
        if (deaf || !which.unserved()) return;
        if (thread_.joinable()) thread_.join();
        const std::uint32_t service = which.begin_service();
        thread_ = std::thread([this, &which, service] { serve(which, service); });
    }
    bool alive() override { return !dead; }
    void given_up() override { ++lanes_given_up; }

    std::atomic<int> calls{0};
    std::atomic<int> jobs{0};
    std::atomic<int> lanes_given_up{0};
    std::atomic<bool> deaf{false};
    std::atomic<bool> dead{false};
    std::atomic<bool> slow{false};

  private:
    void serve(lane& which, std::uint32_t service) {
        std::array<std::uint32_t, content_words> content{};
        auto until = steady::now() + 2ms;
        while (!stop_ && steady::now() < until) {
            const std::uint32_t number = which.next();
            if (!take_job(which.memory(), number, content)) {
                std::this_thread::yield();
                continue;
            }
            if (slow) std::this_thread::sleep_for(1ms);
            std::vector<std::array<std::uint32_t, content_words>> together{content};
            while ((content[0] & loose_bit) != 0 && together.size() < 8 &&
                   take_job(which.memory(), number + static_cast<std::uint32_t>(together.size()), content) &&
                   (content[0] & loose_bit) != 0)
                together.push_back(content);
            std::for_each(together.rbegin(), together.rend(), [&](const auto& one) { execute(which.memory(), one); });
            jobs += static_cast<int>(together.size());
            finish_job(which.memory(), number + static_cast<std::uint32_t>(together.size()) - 1);
            until = steady::now() + 2ms;
        }
        leave(which.memory(), service);
    }
    static std::uint64_t pair(const std::array<std::uint32_t, content_words>& content, std::size_t at) {
        return content[at] | std::uint64_t{content[at + 1]} << 32;
    }
    static void execute(lane_memory& memory, const std::array<std::uint32_t, content_words>& content) {
        const std::size_t size = content[0] >> size_shift;
        auto* there = reinterpret_cast<void*>(pair(content, 1));
        auto* here = reinterpret_cast<void*>(pair(content, 3));
        auto* word = static_cast<std::uint64_t*>(there);
        switch (static_cast<action>(content[0] & 7)) {
            case action::write:
                std::memcpy(there, (content[0] & in_line_bit) != 0 ? &content[3] : here, size);
                break;
            case action::read:
                std::memcpy(here, there, size);
                break;
            case action::fetch_add:
                memory.previous = std::exchange(*word, *word + pair(content, 3));
                break;
            case action::compare_swap:
                memory.previous = *word;
                if (*word == pair(content, 5)) *word = pair(content, 3);
                break;
        }
    }

    std::atomic<bool> stop_{false};
    std::thread thread_;
};

struct copies : ::testing::Test {
    static constexpr std::size_t device_bytes = 3 << 20;
    lane_memory memories[3];
    std::vector<std::byte> staging = std::vector<std::byte>(copy_engine::staging_bytes + 64);
    std::vector<std::byte> device = std::vector<std::byte>(device_bytes);
    stand_in writer;
    stand_in reader;
    stand_in last_writer;
    lane writes{memories[0], writer, patience()};
    lane reads{memories[1], reader, patience()};
    lane urgent{memories[2], last_writer, patience()};
    copy_engine engine{writes, reads, urgent, aligned(), true};

    static std::chrono::nanoseconds patience() { return 5s; }
    std::byte* aligned() { return staging.data() + (-reinterpret_cast<std::uintptr_t>(staging.data()) & 63); }
    [[nodiscard]] std::uint64_t at(std::size_t offset) const {
        return reinterpret_cast<std::uint64_t>(device.data() + offset);
    }
    static std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
        std::vector<std::byte> made(size);
        std::mt19937 dice(seed);
        for (auto& one : made) one = static_cast<std::byte>(dice());
        return made;
    }
};

TEST_F(copies, packets_become_fewer_jobs_and_all_bytes_arrive) {
    const auto message = pattern(2 << 20, 1);
    constexpr std::size_t packet = 4096;
    writer.slow = true;  // so that there is something to combine, however busy the machine is
    for (std::size_t done = 0; done < message.size(); done += packet)
        ASSERT_TRUE(engine.write(at(100 + done), message.data() + done, packet));
    ASSERT_TRUE(engine.flush());
    EXPECT_EQ(std::memcmp(device.data() + 100, message.data(), message.size()), 0);
    EXPECT_LT(writer.jobs, 200) << "of 512 packets";
}

/// Random copies, against plain bytes. The first half of the memory is written to; messages are read out of the second,
/// a few at once, each forward with steps back. It changes between messages.
class copy_world {
  public:
    copy_world(copies& on, std::uint64_t seed)
        : on_(on), random_(seed), model_(copies::pattern(copies::device_bytes, 7)) {
        on_.device = model_;
        on_.writer.slow = seed % 4 == 0;
    }
    void run(int rounds) {
        for (int round = 0; round < rounds && !::testing::Test::HasFatalFailure(); ++round) {
            SCOPED_TRACE(round);
            const std::size_t size = any_size();
            const std::size_t at = below(half - size);
            switch (below(9)) {
                case 0:
                case 1:
                    write(at, size);
                    break;
                case 8:
                    write_messages(at, size);
                    break;
                case 2:
                    read(at, size);
                    break;
                case 3:
                    change_word(at & ~std::size_t{7});
                    break;
                case 4:
                    ASSERT_TRUE(on_.engine.flush());
                    ASSERT_EQ(std::memcmp(on_.device.data(), model_.data(), half), 0);
                    break;
                default:
                    read_on();
            }
        }
        ASSERT_TRUE(on_.engine.flush());
        EXPECT_EQ(std::memcmp(on_.device.data(), model_.data(), model_.size()), 0);
    }

  private:
    static constexpr std::size_t half = copies::device_bytes / 2;
    static constexpr std::size_t packet = 4096;
    struct message {
        std::size_t begin, size, done;
        std::uint64_t number;
    };

    std::size_t below(std::size_t limit) { return random_() % limit; }
    std::size_t any_size() {
        constexpr std::size_t edges[]{0, 1, 5, 31, 32, 33, 300, 4096, 262'143, 262'144, 262'145, 700'001};
        return below(4) == 0 ? edges[below(std::size(edges))] : below(3000);
    }
    void write(std::size_t at, std::size_t size) {
        const auto bytes = copies::pattern(size, static_cast<unsigned>(random_()));
        ASSERT_TRUE(on_.engine.write(on_.at(at), bytes.data(), size));
        std::copy(bytes.begin(), bytes.end(), model_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    /// Of a message that arrives in packets, all but the last of them early.
    struct arriving {
        std::size_t at = 0;
        std::vector<std::byte> bytes;
        std::size_t done = 0;
        std::uint64_t mark = copy_engine::everything;
        [[nodiscard]] std::size_t last() const { return (bytes.size() - 1) / packet * packet; }
    };
    /// Several beside each other, each in its part of the memory; when the state of its last piece says so, nothing of
    /// a message is missing.
    void write_messages(std::size_t at, std::size_t size) {
        std::vector<arriving> all(1 + below(5));
        const std::size_t part = size / all.size();
        if (part == 0) return;
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i] = {at + i * part, copies::pattern(1 + below(part), static_cast<unsigned>(random_()))};
        for (std::size_t left = all.size(); left != 0;) {
            arriving& one = all[below(all.size())];
            if (one.done == one.last()) {
                end(one);
                one.done = one.bytes.size();
                --left;
            } else if (one.done < one.last()) {
                write_packet(one);
            }
        }
    }
    void write_packet(arriving& of) {
        const auto begun = on_.engine.write_early(on_.at(of.at + of.done), of.bytes.data() + of.done, packet,
                                                  copy_engine::order::any, of.mark);
        ASSERT_NE(begun, copy_engine::start::refused);
        if (begun == copy_engine::start::begun) of.done += packet;
        if (begun == copy_engine::start::later) std::this_thread::yield();
    }
    void end(arriving& one) {
        const std::size_t last = one.last();
        const std::byte* const from = one.bytes.data() + last;
        ASSERT_TRUE(on_.engine.write_last(on_.at(one.at + last), from, one.bytes.size() - last, one.mark, one.mark));
        std::copy(one.bytes.begin(), one.bytes.end(), model_.begin() + static_cast<std::ptrdiff_t>(one.at));
        for (auto state = copy_engine::state::under_way; state != copy_engine::state::in_memory;) {
            std::this_thread::yield();
            ASSERT_NE(state = on_.engine.state_of(one.mark), copy_engine::state::lost);
        }
        ASSERT_EQ(std::memcmp(on_.device.data() + one.at, one.bytes.data(), one.bytes.size()), 0);
    }
    void read(std::size_t at, std::size_t size) {
        std::vector<std::byte> back(size);
        ASSERT_TRUE(on_.engine.read(back.data(), on_.at(at), size));
        ASSERT_TRUE(std::equal(back.begin(), back.end(), model_.begin() + static_cast<std::ptrdiff_t>(at)));
    }
    void change_word(std::size_t at) {
        std::uint64_t before = 0, seen = 0, after = random_();
        std::memcpy(&before, model_.data() + at, 8);
        const bool adds = below(2) == 0;
        const std::uint64_t compare = below(2) == 0 ? before : random_();
        ASSERT_TRUE(adds ? on_.engine.fetch_add(on_.at(at), after, seen)
                         : on_.engine.compare_swap(on_.at(at), compare, after, seen));
        ASSERT_EQ(seen, before);
        if (adds) after += before;
        if (adds || compare == before) std::memcpy(model_.data() + at, &after, 8);
        EXPECT_FALSE(on_.engine.fetch_add(on_.at(at) + 1, 1, seen)) << "not aligned";
    }
    void read_on() {
        if (open_.size() < 6 && below(3) == 0) {
            const std::size_t size = 1 + below(400'000);
            open_.push_back({half + below(half - size), size, 0, ++messages_});
        }
        if (open_.empty()) return;
        const std::size_t which = below(open_.size());
        message& one = open_[which];
        if (below(16) == 0) one.done = below(one.done + 1);  // again, as after a loss
        const std::size_t size = std::min<std::size_t>(one.size - one.done, 1 + below(4096));
        std::vector<std::byte> back(size);
        const std::size_t at = one.begin + one.done;
        ASSERT_TRUE(on_.engine.read_part(back.data(), on_.at(at), size, one.number, one.size - one.done - size));
        ASSERT_EQ(std::memcmp(back.data(), model_.data() + at, size), 0) << "message " << one.number;
        one.done += size;
        if (one.done == one.size || below(60) == 0) open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(which));
        if (!open_.empty() && below(40) != 0) return;
        open_.clear();
        ASSERT_TRUE(on_.engine.flush());  // nothing is fetched ahead any more
        const auto fresh = copies::pattern(half, static_cast<unsigned>(random_()));
        std::copy(fresh.begin(), fresh.end(), model_.begin() + half);
        std::copy(fresh.begin(), fresh.end(), on_.device.begin() + half);
    }

    copies& on_;
    std::mt19937_64 random_;
    std::vector<std::byte> model_;
    std::vector<message> open_;
    std::uint64_t messages_ = 0;
};

TEST_F(copies, copies_do_what_plain_memory_does) {
    // Numbers of messages are not used twice.
    copy_world(*this, 1).run(800);
}

TEST_F(copies, copies_of_a_slow_server_do_what_plain_memory_does) {
    copy_world(*this, 4).run(300);
}

TEST_F(copies, a_single_message_takes_few_jobs) {
    constexpr std::size_t size = 1 << 20;
    std::vector<std::byte> back(size);
    for (std::size_t done = 0; done < size; done += 4096)
        ASSERT_TRUE(engine.read_part(back.data() + done, at(done), 4096, 5, size - done - 4096));
    EXPECT_LE(reader.jobs, 8);
}

TEST_F(copies, a_last_piece_overtakes_the_writes_of_others_and_not_its_own) {
    writer.deaf = true;
    const auto bytes = pattern(8192, 3);
    std::uint64_t others = 0;
    std::uint64_t mark = 0;
    ASSERT_EQ(engine.write_early(at(0), bytes.data(), 4096, copy_engine::order::any, others),
              copy_engine::start::begun);
    ASSERT_EQ(engine.state_of(others), copy_engine::state::under_way);
    ASSERT_TRUE(engine.write_last(at(9000), bytes.data(), 100, 0, mark));
    while (engine.state_of(mark) == copy_engine::state::under_way) std::this_thread::yield();
    EXPECT_EQ(std::memcmp(device.data() + 9000, bytes.data(), 100), 0);
    ASSERT_TRUE(engine.write_last(at(4096), bytes.data() + 4096, 4096, others, mark));
    EXPECT_EQ(engine.state_of(mark), copy_engine::state::under_way);
    EXPECT_EQ(last_writer.jobs, 1) << "behind the others, in their lane";
    writer.deaf = false;
    while (engine.state_of(mark) == copy_engine::state::under_way) std::this_thread::yield();
    EXPECT_EQ(std::memcmp(device.data(), bytes.data(), bytes.size()), 0);
}

TEST_F(copies, messages_that_arrive_beside_each_other_take_a_job_each) {
    constexpr std::size_t messages = 4, packet = 4096, apart = 100'000;
    writer.deaf = true;
    const auto bytes = pattern(8 * packet, 3);
    std::uint64_t mark = 0;
    for (std::size_t done = 0; done < bytes.size(); done += packet)
        for (std::size_t i = 0; i < messages; ++i)
            ASSERT_EQ(
                engine.write_early(at(i * apart + done), bytes.data() + done, packet, copy_engine::order::any, mark),
                copy_engine::start::begun);
    writer.deaf = false;
    ASSERT_TRUE(engine.flush());
    for (std::size_t i = 0; i < messages; ++i)
        EXPECT_EQ(std::memcmp(device.data() + i * apart, bytes.data(), bytes.size()), 0);
    EXPECT_EQ(writer.jobs, 1 + static_cast<int>(messages)) << "the first packet has gone by itself";
}

TEST_F(copies, more_messages_than_pieces_arrive_beside_each_other) {
    constexpr std::size_t messages = 20, packet = 4096, apart = 100'000;
    writer.deaf = true;
    const auto bytes = pattern(2 * packet, 3);
    std::vector<std::size_t> done(messages);
    for (std::size_t i = 0; i < 2 * messages; ++i) {
        std::size_t& sent = done[i % messages];
        std::uint64_t mark = 0;
        const std::uint64_t to = at(i % messages * apart + sent);
        const auto begun = engine.write_early(to, bytes.data() + sent, packet, copy_engine::order::any, mark);
        ASSERT_TRUE(begun == copy_engine::start::begun || engine.write(to, bytes.data() + sent, packet));
        sent += packet;
        if (i == messages) writer.deaf = false;
    }
    ASSERT_TRUE(engine.flush());
    for (std::size_t i = 0; i < messages; ++i)
        EXPECT_EQ(std::memcmp(device.data() + i * apart, bytes.data(), bytes.size()), 0);
}

TEST_F(copies, write_in_order_goes_behind_loose_ones_also_where_it_continues_one) {
    writer.deaf = true;
    const auto bytes = pattern(4 * 4096, 3);
    const auto early = [&](std::size_t to, std::size_t from, copy_engine::order how) {
        std::uint64_t mark = 0;
        ASSERT_EQ(engine.write_early(at(to), bytes.data() + from, 4096, how, mark), copy_engine::start::begun);
    };
    early(100'000, 0, copy_engine::order::any);
    early(4096, 4096, copy_engine::order::any);
    early(0, 2 * 4096, copy_engine::order::any);
    early(4096, 3 * 4096, copy_engine::order::behind);
    writer.deaf = false;
    ASSERT_TRUE(engine.flush());
    EXPECT_EQ(std::memcmp(device.data(), bytes.data() + 2 * 4096, 2 * 4096), 0);
}

TEST_F(copies, an_atomic_goes_behind_an_early_write_that_is_kept) {
    writer.deaf = true;
    const auto bytes = pattern(4096, 3);
    std::uint64_t mark = 0;
    ASSERT_EQ(engine.write_early(at(0), bytes.data(), 4096, copy_engine::order::any, mark), copy_engine::start::begun);
    ASSERT_EQ(engine.write_early(at(9000), bytes.data(), 4096, copy_engine::order::any, mark),
              copy_engine::start::begun);
    writer.deaf = false;
    std::uint64_t before = 0;
    ASSERT_TRUE(engine.fetch_add(at(20'000), 1, before));
    EXPECT_EQ(engine.state_of(mark), copy_engine::state::in_memory);
    EXPECT_EQ(std::memcmp(device.data() + 9000, bytes.data(), 4096), 0);
}

TEST_F(copies, early_writes_never_wait) {
    const auto bytes = pattern(4096, 3);
    for (const std::size_t apart : {4096U, 8192U}) {
        writer.deaf = true;
        while (!writes.unserved()) std::this_thread::yield();  // it stays a little
        std::uint64_t mark = 0;
        std::size_t begun = 0;
        const auto start = [&] {
            return engine.write_early(at(begun * apart), bytes.data(), 4096, copy_engine::order::any, mark);
        };
        while (begun * apart < device_bytes && start() == copy_engine::start::begun) ++begun;
        EXPECT_GT(begun, 1U);
        EXPECT_LT(begun * 4096, 512U << 10) << "a last piece would wait for all of them";
        EXPECT_FALSE(engine.broken()) << "it has waited for room";
        writer.deaf = false;
        while (engine.state_of(mark) == copy_engine::state::under_way) std::this_thread::yield();
        EXPECT_EQ(std::memcmp(device.data() + (begun - 1) * apart, bytes.data(), 4096), 0);
    }
}

TEST_F(copies, an_early_write_that_nobody_does_is_lost_after_the_lanes_patience) {
    lane_memory memory;
    lane hasty(memory, writer, 30ms);
    writer.deaf = true;
    copy_engine engine_of_hasty(hasty, reads, urgent, aligned(), true);
    const std::uint64_t word = 1;
    std::uint64_t mark = 0;
    ASSERT_EQ(engine_of_hasty.write_early(at(0), &word, 8, copy_engine::order::any, mark), copy_engine::start::begun);
    while (engine_of_hasty.state_of(mark) == copy_engine::state::under_way) std::this_thread::yield();
    EXPECT_EQ(engine_of_hasty.state_of(mark), copy_engine::state::lost);
    EXPECT_FALSE(engine_of_hasty.flush());
}

TEST_F(copies, a_server_that_left_is_called_again) {
    const int before = writer.calls;
    const std::uint64_t word = 5;
    for (int round = 0; round < 3; ++round) {
        ASSERT_TRUE(engine.write(at(0), &word, 8));
        ASSERT_TRUE(engine.flush());
        const auto until = steady::now() + 5s;
        while (!writes.unserved() && steady::now() < until) std::this_thread::sleep_for(1ms);
        ASSERT_TRUE(writes.unserved()) << "it never leaves";
    }
    EXPECT_GE(writer.calls - before, 3);
}

TEST_F(copies, a_dead_server_is_an_error_and_not_a_wait) {
    writer.deaf = true;
    writer.dead = true;
    const std::vector<std::byte> some(100);
    const auto start = steady::now();
    static_cast<void>(engine.write(at(0), some.data(), some.size()));
    EXPECT_FALSE(engine.flush());
    EXPECT_LT(steady::now() - start, 4s) << "noticed before the deadline";
    EXPECT_TRUE(engine.broken());
    EXPECT_FALSE(engine.write(at(0), some.data(), some.size()));
    EXPECT_FALSE(engine.flush());
    EXPECT_TRUE(engine.flush()) << "nothing was written since";
}

/// `value` is read when the job is submitted.
job write_of(const std::uint64_t& value, std::uint64_t& target) {
    job out;
    out.size = sizeof value;
    out.memory = reinterpret_cast<std::uint64_t>(&target);
    out.payload = &value;
    return out;
}

TEST(lane, a_lane_gives_up_after_its_patience_and_leaves_no_job_behind) {
    lane_memory memory;
    stand_in nobody;
    nobody.deaf = true;
    lane only(memory, nobody, 30ms);
    const std::uint64_t value = 1;
    std::uint64_t target = 0;
    const std::uint32_t number = only.submit(write_of(value, target));
    EXPECT_TRUE(only.has_work());
    const auto start = steady::now();
    EXPECT_FALSE(only.wait(number));
    EXPECT_GE(steady::now() - start, 30ms);
    EXPECT_TRUE(only.broken());
    EXPECT_EQ(nobody.lanes_given_up, 1) << "it tells its server";
    EXPECT_FALSE(only.has_work()) << "a server that comes late would write to memory that may be gone";
}

TEST(lane, a_look_for_a_job_that_is_not_there_yet_begins_no_wait) {
    lane_memory memory;
    stand_in nobody;
    nobody.deaf = true;
    lane only(memory, nobody, 1ms);
    const std::uint64_t value = 1;
    std::uint64_t target = 0;
    EXPECT_FALSE(only.look(only.prepare(write_of(value, target))));
    std::this_thread::sleep_for(5ms);
    only.publish();
    EXPECT_FALSE(only.look(only.last()));
    EXPECT_FALSE(only.broken()) << "its patience was over before the job came";
}

TEST(lane, a_kernel_serves_once_the_host_has_let_it) {
    lane_memory memory;
    stand_in nobody;
    nobody.deaf = true;
    lane only(memory, nobody, 5s);
    const std::uint32_t service = only.begin_kernel();
    EXPECT_TRUE(only.unserved()) << "the host does its jobs until then";
    EXPECT_TRUE(only.expects_kernel());
    EXPECT_FALSE(only.kernel_waits());
    std::uint64_t target = 0;
    static_cast<void>(only.submit(write_of(target, target)));
    finish_job(memory, 1);
    memory.begun = service;
    EXPECT_TRUE(only.kernel_waits());
    only.grant();
    EXPECT_EQ(memory.granted, service);
    EXPECT_EQ(memory.first, 2U);
    EXPECT_FALSE(only.unserved());
    EXPECT_FALSE(only.expects_kernel());
    leave(memory, service);
    EXPECT_TRUE(only.unserved());
    static_cast<void>(only.begin_kernel());
    leave(memory, service + 1);
    EXPECT_FALSE(only.expects_kernel()) << "it has left because nothing came";
}

TEST(lane, the_ring_of_a_lane_is_reused) {
    lane_memory memory;
    std::optional<lane> made;  // outlives the thread that serves it
    stand_in by;
    lane& only = made.emplace(memory, by, 5s);
    std::uint64_t target = 0;
    for (std::uint64_t round = 1; round < 5 * lane_depth; ++round) {
        ASSERT_NE(only.submit(write_of(round, target)), 0u);
    }
    ASSERT_TRUE(only.wait(only.last()));
    EXPECT_EQ(target, 5u * lane_depth - 1);
}

TEST(neighbours, neighbours_see_each_other_while_they_exist) {
    const std::string name = "test-" + std::to_string(::getpid());
    neighbours first(name);
    EXPECT_FALSE(first.any());
    {
        neighbours second(name);
        EXPECT_TRUE(second.any());
        std::this_thread::sleep_for(10ms);
        EXPECT_TRUE(first.any());
        const neighbours elsewhere(name + "-other");
    }
    std::this_thread::sleep_for(10ms);
    EXPECT_FALSE(first.any());
    for (const char* of : {"", "-other"})
        ::unlink(("/dev/shm/softnic-gpu-" + std::to_string(::getuid()) + "-" + name + of).c_str());
}

}  // namespace
}  // namespace accel::softnic::gpu
