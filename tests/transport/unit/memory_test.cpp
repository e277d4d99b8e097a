// SPDX-License-Identifier: Apache-2.0
#include <accel_transport/context.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
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
    const auto made = ctx_.allocate(100);
    ASSERT_TRUE(made);
    const region& r = made.value();
    const auto part = r.part(10, 50);
    ASSERT_TRUE(part);
    EXPECT_EQ(part.value().data(), r.data() + 10);
    EXPECT_EQ(part.value().size(), 50U);
    EXPECT_NE(part.value().region(), nullptr);
    EXPECT_TRUE(r.part(0, 100));
    EXPECT_TRUE(r.part(100, 0));
    const auto inner = part.value().part(40, 10);
    ASSERT_TRUE(inner);
    EXPECT_EQ(inner.value().data(), r.data() + 50);
    EXPECT_EQ(inner.value().region(), part.value().region());
    for (const auto& [offset, length] : std::initializer_list<std::pair<std::size_t, std::size_t>>{
             {0, 101}, {101, 0}, {100, 1}, {1, 100}, {huge, 1}, {1, huge}, {huge, huge}, {50, huge - 49}}) {
        EXPECT_EQ(r.part(offset, length).code(), status::invalid_argument) << offset << " " << length;
    }
    EXPECT_FALSE(part.value().part(41, 10));
    EXPECT_FALSE(part.value().part(huge, 2));
}

TEST_F(memory, a_default_region_gives_an_empty_slice) {
    const region none;
    EXPECT_EQ(none.data(), nullptr);
    EXPECT_EQ(none.size(), 0U);
    EXPECT_TRUE(none.whole().empty());
    const slice empty;
    EXPECT_TRUE(empty.empty());
    EXPECT_EQ(empty.region(), nullptr);
    EXPECT_TRUE(empty.part(0, 0));
    EXPECT_FALSE(empty.part(0, 1));
}

TEST_F(memory, memory_moves_with_its_region) {
    auto made = ctx_.allocate(100);
    ASSERT_TRUE(made);
    region first = std::move(made).value();
    std::byte* where = first.data();
    const slice kept = first.whole();
    region second = std::move(first);
    EXPECT_EQ(second.data(), where);
    EXPECT_EQ(kept.region(), second.whole().region());
    region third = ctx_.allocate(10).value();
    third = std::move(second);
    EXPECT_EQ(third.data(), where);
    EXPECT_EQ(third.size(), 100U);
}

TEST_F(memory, memory_outlives_its_context) {
    region kept;
    {
        context brief = context::open({.log = log_level::off}).value();
        kept = brief.allocate(64).value();
    }
    kept.data()[63] = std::byte{1};
    EXPECT_EQ(kept.size(), 64U);
}

}  // namespace
}  // namespace accel
