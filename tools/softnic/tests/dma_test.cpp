// SPDX-License-Identifier: Apache-2.0
#include "dma/engine.hpp"
#include "dma/guarded.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

constexpr std::size_t page = 4096;

/// Two pages, the second of which cannot be reached.
class cliff {
  public:
    cliff() {
        guarded::install_fault_handler();
        void* at = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        base_ = static_cast<std::byte*>(at);
        ::mprotect(base_ + page, page, PROT_NONE);
    }
    ~cliff() { ::munmap(base_, 2 * page); }
    cliff(const cliff&) = delete;
    cliff& operator=(const cliff&) = delete;
    [[nodiscard]] std::byte* edge() const { return base_ + page; }

  private:
    std::byte* base_;
};

TEST(guarded, copies_every_length_exactly) {
    guarded::install_fault_handler();
    for (std::size_t size = 0; size < 600; ++size) {
        std::vector<std::byte> from(size + 2, std::byte{0x5a});
        std::vector<std::byte> to(size + 2, std::byte{0});
        for (std::size_t at = 0; at < size; ++at) from[at] = static_cast<std::byte>(at * 7 + 1);
        ASSERT_TRUE(guarded::copy(to.data(), from.data(), size));
        EXPECT_EQ(std::memcmp(to.data(), from.data(), size), 0) << size;
        EXPECT_EQ(to[size], std::byte{0}) << "wrote past the end at " << size;
    }
}

TEST(guarded, reports_unreachable_source_and_destination) {
    const cliff at;
    std::array<std::byte, 1024> local{};
    for (const std::size_t size : {1u, 2u, 4u, 8u, 13u, 64u, 300u, 1000u}) {
        EXPECT_FALSE(guarded::copy(local.data(), at.edge(), size));
        EXPECT_FALSE(guarded::copy(at.edge(), local.data(), size));
        EXPECT_TRUE(guarded::copy(at.edge() - size, local.data(), size));
        EXPECT_FALSE(guarded::copy(at.edge() - size + 1, local.data(), size));
    }
}

TEST(guarded, words_and_atomics_report_faults_and_work) {
    const cliff at;
    std::uint32_t word = 0;
    std::uint64_t previous = 0;
    EXPECT_FALSE(guarded::load32(at.edge(), word));
    EXPECT_FALSE(guarded::exchange64(at.edge(), 1, previous));
    EXPECT_FALSE(guarded::fetch_add64(at.edge(), 1, previous));
    EXPECT_FALSE(guarded::compare_swap64(at.edge(), 0, 1, previous));
    alignas(8) std::uint64_t value = 40;
    EXPECT_TRUE(guarded::fetch_add64(&value, 2, previous));
    EXPECT_EQ(previous, 40u);
    EXPECT_TRUE(guarded::compare_swap64(&value, 41, 7, previous));
    EXPECT_EQ(previous, 42u);
    EXPECT_EQ(value, 42u) << "the comparison failed, nothing may change";
    EXPECT_TRUE(guarded::compare_swap64(&value, 42, 7, previous));
    EXPECT_EQ(value, 7u);
    EXPECT_TRUE(guarded::exchange64(&value, 9, previous));
    EXPECT_EQ(previous, 7u);
    EXPECT_EQ(value, 9u);
}

TEST(guarded, leaves_other_faults_to_the_program) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(
        {
            const cliff at;
            *reinterpret_cast<volatile int*>(at.edge()) = 1;
        },
        "");
}

TEST(dmabuf, a_mapping_stays_within_its_dma_buf) {
    const int file = ::memfd_create("dmabuf", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(file, 2 * page), 0);
    EXPECT_EQ(map_dmabuf(file, page, 2 * page, true), nullptr) << "past its end";
    EXPECT_EQ(map_dmabuf(file, ~0ull, 2, true), nullptr) << "overflow";
    const auto engine = map_dmabuf(file, page, page, true);
    ASSERT_NE(engine, nullptr);
    const std::array<char, 6> text{"hello"};
    EXPECT_TRUE(engine->write(page + 10, text.data(), text.size()));
    std::array<char, 6> back{};
    EXPECT_EQ(::pread(file, back.data(), back.size(), page + 10), 6);
    EXPECT_STREQ(back.data(), "hello");
    EXPECT_FALSE(engine->write(2 * page - 2, text.data(), text.size()));
    std::uint64_t previous = 0;
    EXPECT_TRUE(engine->fetch_add(page, 5, previous));
    EXPECT_FALSE(engine->fetch_add(2 * page, 5, previous));
    ::close(file);
    EXPECT_EQ(map_dmabuf(file, 0, page, true), nullptr) << "closed";
}

class claiming_plugin final : public dma_plugin {
  public:
    dma_claim claim_range(std::uint64_t address, std::uint64_t) override {
        if (address >= 1ull << 61) return {nullptr, EFAULT};
        return {address >= 1ull << 60 ? host_dma() : nullptr, 0};
    }
    dma_claim claim_dmabuf(const dmabuf_range& range) override {
        return {range.descriptor == -42 ? host_dma() : nullptr, 0};
    }
};

TEST(dma_registry, asks_plugins_first_and_falls_back_to_the_host) {
    dma_registry registry;
    EXPECT_EQ(registry.for_range(4096, 10).engine, host_dma());
    EXPECT_EQ(registry.for_dmabuf({-42, 0, 10, 0}, true).problem, EOPNOTSUPP);
    registry.add(std::make_shared<claiming_plugin>());
    EXPECT_NE(registry.for_dmabuf({-42, 0, 10, 0}, true).engine, nullptr);
    EXPECT_NE(registry.for_range(1ull << 60, 10).engine, nullptr);
    EXPECT_EQ(registry.for_range(1ull << 61, 10).problem, EFAULT) << "its own, and refused";
}

}  // namespace
}  // namespace accel::softnic
