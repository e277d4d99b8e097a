// SPDX-License-Identifier: Apache-2.0
#include <accel_transport/context.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace accel {
namespace {

constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();

class memory : public ::testing::Test {
  protected:
    context ctx_ = context::open({.log = log_level::off}).value();
};

TEST_F(memory, allocated_memory_is_zeroed_and_aligned) {
    for (const std::size_t size : {1U, 100U, 4096U, 100'000U}) {
        const auto made = ctx_.allocate(size);
        ASSERT_TRUE(made) << made.error().message;
        const region& r = made.value();
        EXPECT_EQ(r.size(), size);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(r.data()) % 64, 0U);
        EXPECT_TRUE(std::all_of(r.data(), r.data() + size, [](std::byte b) { return b == std::byte{0}; }));
        EXPECT_EQ(r.kind(), memory_kind::host());
        EXPECT_EQ(r.whole().size(), size);
        EXPECT_EQ(r.whole().data(), r.data());
    }
}

TEST_F(memory, memory_of_the_application_can_be_registered) {
    std::vector<std::byte> own(1000);
    const auto made = ctx_.register_memory(own.data(), own.size());
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made.value().data(), own.data());
    EXPECT_EQ(made.value().size(), own.size());
}

TEST_F(memory, impossible_sizes_and_devices_are_refused) {
    EXPECT_EQ(ctx_.allocate(0).code(), status::invalid_argument);
    EXPECT_FALSE(ctx_.allocate(huge));
    EXPECT_FALSE(ctx_.allocate(std::size_t{1} << 60));
    EXPECT_EQ(ctx_.register_memory(nullptr, 10).code(), status::invalid_argument);
    std::byte one{};
    EXPECT_EQ(ctx_.register_memory(&one, 0).code(), status::invalid_argument);
    // No machine has so many GPUs; what it lacks is said.
    EXPECT_EQ(ctx_.allocate(64, memory_kind::cuda(200)).code(), status::unsupported);
    EXPECT_EQ(ctx_.register_memory(&one, 1, memory_kind::cuda(200)).code(), status::unsupported);
    EXPECT_FALSE(ctx_.register_memory(&one, 1, memory_kind::cuda(0))) << "that is memory of the host";
}

/// Pages of this process, of which some can be given back.
class pages {
  public:
    explicit pages(std::size_t count, int more_flags = 0, std::uintptr_t at = 0)
        : size_(count * one),
          at_(::mmap(reinterpret_cast<void*>(at), size_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | more_flags, -1, 0)) {}
    ~pages() { ::munmap(at_, size_); }
    [[nodiscard]] std::byte* of(std::size_t index) const { return static_cast<std::byte*>(at_) + index * one; }
    [[nodiscard]] std::size_t size() const { return size_; }
    void give_back(std::size_t index) { ::munmap(of(index), one); }

    inline static const auto one = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

  private:
    std::size_t size_;
    void* at_;
};

TEST_F(memory, unmapped_memory_is_refused) {
    // Far below what the kernel gives to other threads, which would fill the holes.
    pages own(5, MAP_FIXED_NOREPLACE, std::uintptr_t{1} << 30);
    if (own.of(0) == MAP_FAILED) GTEST_SKIP() << "these addresses are in use";
    own.give_back(2);
    own.give_back(4);
    const auto refused = [&](std::byte* data, std::size_t size) {
        const auto made = ctx_.register_memory(data, size);
        return made.code() == status::invalid_argument && made.error().message.find("mapped") != std::string::npos;
    };
    EXPECT_TRUE(ctx_.register_memory(own.of(0), 2 * pages::one));
    EXPECT_TRUE(ctx_.register_memory(own.of(2) - 1, 1)) << "the last byte";
    EXPECT_TRUE(ctx_.register_memory(own.of(3), pages::one));
    EXPECT_TRUE(refused(own.of(0), 2 * pages::one + 1)) << "its end";
    EXPECT_TRUE(refused(own.of(0), 4 * pages::one)) << "a hole";
    EXPECT_TRUE(refused(own.of(2) + 1, 1)) << "all";
    EXPECT_TRUE(refused(own.of(3) - 1, 10)) << "its begin";
    EXPECT_TRUE(refused(own.of(3), pages::one + 1));
    EXPECT_TRUE(refused(own.of(0), huge / 2)) << "beyond a process's addresses";
    EXPECT_TRUE(refused(reinterpret_cast<std::byte*>(8), huge - 7)) << "all addresses";
}

TEST_F(memory, memory_beyond_the_highest_address_is_refused) {
    std::vector<std::byte> own(1000);
    for (const std::size_t size : {huge, huge - 100, huge - reinterpret_cast<std::uintptr_t>(own.data()) + 2}) {
        const auto made = ctx_.register_memory(own.data(), size);
        ASSERT_EQ(made.code(), status::invalid_argument) << size;
        EXPECT_NE(made.error().message.find("highest address"), std::string::npos) << made.error().message;
    }
    for (const memory_kind kind : {memory_kind::cuda(0), memory_kind::cuda(200)})
        EXPECT_EQ(ctx_.register_memory(own.data(), huge, kind).code(), status::invalid_argument);
}

/// A look at each page of these would take seconds.
TEST_F(memory, memory_of_any_size_is_registered_without_touching_it) {
    const pages own((std::size_t{100} << 30) / pages::one, MAP_NORESERVE);
    if (own.of(0) == MAP_FAILED) GTEST_SKIP() << "this machine does not lend 100 GiB of addresses";
    EXPECT_TRUE(ctx_.register_memory(own.of(0), own.size()));
}

TEST_F(memory, a_part_lies_within_its_whole) {
    std::mt19937_64 random(1);
    const region whole = ctx_.allocate(100).value();
    const region none;
    EXPECT_EQ(none.data(), nullptr);
    EXPECT_EQ(none.size(), 0U);
    for (int round = 0; round < 20'000; ++round) {
        const region& of = random() % 8 == 0 ? none : whole;
        slice at = of.whole();
        std::size_t begin = 0;
        std::size_t size = of.size();
        for (bool good = true; good;) {
            ASSERT_EQ(at.data(), of.data() + begin);
            ASSERT_EQ(at.size(), size);
            ASSERT_EQ(at.empty(), size == 0);
            ASSERT_EQ(at.region(), of.whole().region());
            const std::size_t any[] = {0, 1, size - 1, size, size + 1, huge, huge - size, random() % (size + 1)};
            const std::size_t offset = any[random() % 8];
            const std::size_t length = random() % 4 == 0 ? huge - offset + 1 + random() % 2 : any[random() % 8];
            const auto part = begin == 0 && size == of.size() && random() % 2 == 0 ? of.part(offset, length)
                                                                                   : at.part(offset, length);
            good = offset <= size && length <= size - offset;
            ASSERT_EQ(part.code(), good ? status::ok : status::invalid_argument) << offset << " " << length;
            if (!good || random() % 8 == 0) break;
            at = part.value();
            begin += offset;
            size = length;
        }
    }
    EXPECT_EQ(slice{}.region(), nullptr);
}

/// Regions of two contexts move around and end in random order; the contexts have ended before.
TEST_F(memory, memory_moves_with_its_region_and_outlives_its_context) {
    std::mt19937 random(1);
    std::vector<context> contexts;
    for (int i = 0; i < 2; ++i) contexts.push_back(context::open({.log = log_level::off}).value());
    struct facts {
        std::byte* data = nullptr;
        std::size_t size = 0;
        const core::region_state* state = nullptr;
        std::byte content{};
    };
    struct known {
        region held;
        facts of;
    };
    std::array<known, 6> all{};
    for (int step = 0; step < 2'000; ++step) {
        if (step == 1'000) contexts.clear();
        known& one = all.at(random() % all.size());
        known& other = all.at(random() % all.size());
        if (random() % 4 == 0 && !contexts.empty()) {
            one.held = contexts.at(random() % 2).allocate(1 + random() % 5'000).value();
            one.of = {one.held.data(), one.held.size(), one.held.whole().region(), {}};
        } else if (&one != &other) {
            one.held = std::move(other.held);
            one.of = std::exchange(other.of, {});
        }
        for (known& each : all) {
            ASSERT_EQ(each.held.data(), each.of.data);
            ASSERT_EQ(each.held.size(), each.of.size);
            ASSERT_EQ(each.held.whole().region(), each.of.state);
            const auto bytes = each.held.whole().bytes();
            ASSERT_TRUE(std::ranges::all_of(bytes, [&](auto b) { return b == each.of.content; })) << "step " << step;
            each.of.content = static_cast<std::byte>(random());
            std::ranges::fill(bytes, each.of.content);
        }
    }
}

}  // namespace
}  // namespace accel
