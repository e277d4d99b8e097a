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

/// Serves a lane as the kernel does: one job after the other, away when nothing comes, back when called.
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

    std::atomic<int> calls{0};
    std::atomic<int> jobs{0};
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
            execute(which.memory(), content);
            ++jobs;
            finish_job(which.memory(), number);
            until = steady::now() + 2ms;
        }
        leave(which.memory(), service);
    }
    static std::uint64_t pair(const std::array<std::uint32_t, content_words>& content, std::size_t at) {
        return content[at] | std::uint64_t{content[at + 1]} << 32;
    }
    static void execute(lane_memory& memory, const std::array<std::uint32_t, content_words>& content) {
        const std::size_t size = content[0] >> 4;
        auto* there = reinterpret_cast<void*>(pair(content, 1));
        auto* here = reinterpret_cast<void*>(pair(content, 3));
        auto* word = static_cast<std::uint64_t*>(there);
        switch (static_cast<action>(content[0] & 7)) {
            case action::write:
                std::memcpy(there, (content[0] & 8) != 0 ? &content[3] : here, size);
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
    lane_memory memories[2];
    std::vector<std::byte> staging = std::vector<std::byte>(copy_engine::staging_bytes + 64);
    std::vector<std::byte> device = std::vector<std::byte>(device_bytes);
    stand_in writer;
    stand_in reader;
    lane writes{memories[0], writer, patience()};
    lane reads{memories[1], reader, patience()};
    copy_engine engine{writes, reads, aligned(), true};

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

TEST_F(copies, copies_of_all_sizes_and_offsets_arrive) {
    for (const std::size_t size : {0u, 1u, 5u, 31u, 32u, 33u, 300u, 262'143u, 262'144u, 262'145u, 700'001u}) {
        for (const std::size_t shift : {0u, 1u, 15u, 16u}) {
            std::fill(device.begin(), device.end(), std::byte{7});
            const auto message = pattern(size, static_cast<unsigned>(size + shift));
            ASSERT_TRUE(engine.write(at(64 + shift), message.data(), size));
            ASSERT_TRUE(engine.flush());
            EXPECT_TRUE(
                std::equal(message.begin(), message.end(), device.begin() + 64 + static_cast<std::ptrdiff_t>(shift)));
            EXPECT_EQ(device[63 + shift], std::byte{7});
            EXPECT_EQ(device[64 + shift + size], std::byte{7});
            std::vector<std::byte> back(size);
            ASSERT_TRUE(engine.read(back.data(), at(64 + shift), size));
            EXPECT_EQ(back, message);
        }
    }
}

TEST_F(copies, later_writes_to_the_same_place_win) {
    for (std::uint32_t round = 0; round < 500; ++round) {
        std::vector<std::uint32_t> large(2000, round);
        ASSERT_TRUE(engine.write(at(0), large.data(), large.size() * 4));
        const std::uint32_t small = round + 1'000'000;
        ASSERT_TRUE(engine.write(at(400), &small, 4));
        ASSERT_TRUE(engine.flush());
        std::uint32_t seen = 0;
        std::memcpy(&seen, device.data() + 400, 4);
        ASSERT_EQ(seen, small);
    }
}

TEST_F(copies, a_read_sees_the_writes_before_it) {
    const auto message = pattern(10'000, 3);
    writer.slow = true;
    ASSERT_TRUE(engine.write(at(5), message.data(), message.size()));
    std::vector<std::byte> back(message.size());
    ASSERT_TRUE(engine.read_part(back.data(), at(5), 4096, 1, message.size() - 4096));
    ASSERT_TRUE(engine.read_part(back.data() + 4096, at(5 + 4096), message.size() - 4096, 1, 0));
    EXPECT_EQ(back, message);
}

TEST_F(copies, messages_are_read_ahead_each_on_its_own) {
    device = pattern(device_bytes, 9);
    constexpr std::size_t packet = 4096;
    constexpr std::size_t size = 1 << 19;
    std::vector<std::byte> back[6];
    for (auto& each : back) each.resize(size);
    for (std::size_t done = 0; done < size; done += packet) {
        for (std::size_t which = 0; which < 6; ++which) {  // more than there are streams
            ASSERT_TRUE(engine.read_part(back[which].data() + done, at(which * 1000 + done), packet, which + 1,
                                         size - done - packet));
        }
    }
    for (std::size_t which = 0; which < 6; ++which)
        EXPECT_EQ(std::memcmp(back[which].data(), device.data() + which * 1000, size), 0);
}

TEST_F(copies, a_single_message_takes_few_jobs) {
    constexpr std::size_t size = 1 << 20;
    std::vector<std::byte> back(size);
    for (std::size_t done = 0; done < size; done += 4096)
        ASSERT_TRUE(engine.read_part(back.data() + done, at(done), 4096, 5, size - done - 4096));
    EXPECT_LE(reader.jobs, 8);
}

TEST_F(copies, data_fetched_for_one_message_does_not_serve_the_next) {
    std::vector<std::byte> back(4096);
    ASSERT_TRUE(engine.read_part(back.data(), at(0), 4096, 1, 100'000));
    ASSERT_TRUE(engine.flush());
    std::fill(device.begin(), device.end(), std::byte{0x33});
    ASSERT_TRUE(engine.read_part(back.data(), at(4096), 4096, 2, 100'000));
    EXPECT_EQ(back, std::vector<std::byte>(4096, std::byte{0x33}));
}

TEST_F(copies, a_read_of_an_earlier_place_gets_its_bytes_again) {
    device = pattern(device_bytes, 11);
    std::vector<std::byte> back(4096);
    for (const std::size_t where : {0u, 4096u, 400'000u, 404'096u, 8192u, 12'288u, 900'000u, 0u}) {
        ASSERT_TRUE(engine.read_part(back.data(), at(where), 4096, 1, 1'000'000 - where));
        EXPECT_EQ(std::memcmp(back.data(), device.data() + where, 4096), 0) << where;
    }
}

TEST_F(copies, atomics_return_the_old_value) {
    const std::uint64_t start = 40;
    ASSERT_TRUE(engine.write(at(64), &start, 8));
    std::uint64_t previous = 0;
    ASSERT_TRUE(engine.fetch_add(at(64), 2, previous));
    EXPECT_EQ(previous, 40u);
    ASSERT_TRUE(engine.compare_swap(at(64), 41, 5, previous));
    EXPECT_EQ(previous, 42u);
    ASSERT_TRUE(engine.compare_swap(at(64), 42, 5, previous));
    ASSERT_TRUE(engine.fetch_add(at(64), 0, previous));
    EXPECT_EQ(previous, 5u);
    EXPECT_FALSE(engine.fetch_add(at(65), 1, previous)) << "not aligned";
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

TEST(lane, a_lane_gives_up_after_its_patience_and_leaves_no_job_behind) {
    lane_memory memory;
    stand_in nobody;
    nobody.deaf = true;
    lane only(memory, nobody, 30ms);
    const std::uint64_t value = 1;
    std::uint64_t target = 0;
    job what;
    what.size = 8;
    what.memory = reinterpret_cast<std::uint64_t>(&target);
    what.payload = &value;
    const std::uint32_t number = only.submit(what);
    EXPECT_TRUE(only.has_work());
    const auto start = steady::now();
    EXPECT_FALSE(only.wait(number));
    EXPECT_GE(steady::now() - start, 30ms);
    EXPECT_TRUE(only.broken());
    EXPECT_FALSE(only.has_work()) << "a server that comes late would write to memory that may be gone";
}

TEST(lane, the_ring_of_a_lane_is_reused) {
    lane_memory memory;
    std::optional<lane> made;  // outlives the thread that serves it
    stand_in by;
    lane& only = made.emplace(memory, by, 5s);
    std::uint64_t target = 0;
    for (std::uint64_t round = 1; round < 5 * lane_depth; ++round) {
        job what;
        what.size = 8;
        what.memory = reinterpret_cast<std::uint64_t>(&target);
        what.payload = &round;
        ASSERT_NE(only.submit(what), 0u);
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
