// SPDX-License-Identifier: Apache-2.0
// Fields of the commands to an mlx5 adapter's firmware.
#include "kernels/queues/devx_command.hpp"

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

namespace devx = gpu::devx;

std::vector<std::uint8_t> bytes_of(const devx::command& of) {
    std::vector<std::uint8_t> out(devx::command::bytes());
    std::memcpy(out.data(), of.in(), out.size());
    return out;
}

/// A command as bits, of which the most significant one of each byte comes first.
class bits_of_command {
  public:
    explicit bits_of_command(std::size_t bytes) : bits_(bytes * 8) {}
    void set(std::size_t offset, std::size_t width, std::uint64_t value) {
        for (std::size_t i = 0; i < width; ++i) bits_[offset + i] = (value >> (width - 1 - i) & 1) != 0;
    }
    [[nodiscard]] std::vector<std::uint8_t> bytes() const {
        std::vector<std::uint8_t> out(bits_.size() / 8);
        for (std::size_t i = 0; i < bits_.size(); ++i)
            out[i / 8] = static_cast<std::uint8_t>(out[i / 8] | (bits_[i] ? 0x80U >> i % 8 : 0U));
        return out;
    }

  private:
    std::vector<bool> bits_;
};

TEST(devx_command, fields_are_set_most_significant_bit_first_and_nothing_else_is) {
    std::mt19937_64 random(3);
    for (int round = 0; round < 50; ++round) {
        devx::command to(devx::opcode::rtr2rts_qp);
        bits_of_command expected(devx::command::bytes());
        expected.set(0, 16, 0x0504);
        ASSERT_EQ(bytes_of(to), expected.bytes()) << "a command begins with its opcode";
        for (int i = 0; i < 20; ++i) {
            const auto width = static_cast<std::uint32_t>(1 + random() % 64);
            const auto offset = static_cast<std::uint32_t>(16 + random() % (devx::command::bytes() * 8 - 16 - width));
            const std::uint64_t value = random();  // of which some bits may not fit
            to.set({offset, width}, value);
            expected.set(offset, width, value);
            const std::array<std::uint8_t, 6> address{1, 2, 3, 4, 5, static_cast<std::uint8_t>(random())};
            if (i % 4 == 0) {
                const auto at = static_cast<std::uint32_t>(2 + random() % 100);
                to.set_bytes({at * 8, 48}, address);
                for (std::size_t byte = 0; byte < address.size(); ++byte)
                    expected.set((at + byte) * 8, 8, address[byte]);
            }
            ASSERT_EQ(bytes_of(to), expected.bytes()) << width << " bits at " << offset;
        }
    }
}

TEST(devx_command, the_answer_is_read_like_the_command) {
    devx::command of(devx::opcode::create_cq);
    EXPECT_EQ(of.refusal(), "");
    auto* const answer = static_cast<std::uint8_t*>(of.out());
    answer[0] = 0x03;
    answer[7] = 0x21;
    answer[9] = 0x12;
    answer[11] = 0x34;
    EXPECT_EQ(of.get(devx::header::object), 0x120034U);
    EXPECT_EQ(of.refusal(), " (the firmware's status 0x3, syndrome 0x21)");
}

}  // namespace
}  // namespace accel::tests
