// SPDX-License-Identifier: Apache-2.0
// Fields of the commands to an mlx5 adapter's firmware.
#include "kernels/queues/devx_command.hpp"

#include <array>
#include <cstring>
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

TEST(devx_command, a_command_begins_with_its_opcode) {
    const auto bytes = bytes_of(devx::command(devx::opcode::rtr2rts_qp));
    EXPECT_EQ(bytes[0], 0x05);
    EXPECT_EQ(bytes[1], 0x04);
    for (std::size_t i = 2; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], 0) << i;
}

TEST(devx_command, most_significant_bit_comes_first) {
    devx::command to(devx::opcode::create_qp);
    to.set({0x48, 24}, 0x123456);
    to.set({0x63, 5}, 0b10001);
    to.set({0x80, 64}, 0x0102030405060708);
    const auto bytes = bytes_of(to);
    EXPECT_EQ(bytes[8], 0) << "before the number of 24 bits";
    EXPECT_EQ((std::array{bytes[9], bytes[10], bytes[11]}), (std::array<std::uint8_t, 3>{0x12, 0x34, 0x56}));
    EXPECT_EQ(bytes[12], 0b0001'0001) << "bits 3 to 7 of a byte";
    EXPECT_EQ((std::array{bytes[16], bytes[17], bytes[23]}), (std::array<std::uint8_t, 3>{1, 2, 8}));
}

TEST(devx_command, a_field_replaces_its_old_value_and_nothing_else) {
    devx::command to(devx::opcode::create_qp);
    to.set({0x40, 8}, 0xff);
    to.set({0x43, 2}, 0);
    EXPECT_EQ(bytes_of(to)[8], 0b1110'0111);
    to.set({0x43, 2}, 0b101);  // of which two bits fit
    EXPECT_EQ(bytes_of(to)[8], 0b1110'1111);
}

TEST(devx_command, bytes_keep_their_order) {
    devx::command to(devx::opcode::init2rtr_qp);
    const std::array<std::uint8_t, 6> address{1, 2, 3, 4, 5, 6};
    to.set_bytes({0x110, 48}, address);
    const auto bytes = bytes_of(to);
    EXPECT_EQ(std::memcmp(bytes.data() + 0x110 / 8, address.data(), address.size()), 0);
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
