// SPDX-License-Identifier: Apache-2.0
// Times that kernels tell and are told, where their clock and the other end's differ.
#include <accel_transport/device/detail/channel/calls.hpp>
#include <accel_transport/device/detail/service/answers.hpp>

#include <array>
#include <cstddef>

#include <gtest/gtest.h>

namespace accel::device::detail {
namespace {

TEST(device_clocks, a_deadline_is_kept_by_the_clock_of_the_kernel) {
    EXPECT_EQ(own_deadline(300, 1'000), 700);
    EXPECT_EQ(own_deadline(-300, 1'000), 1'300);
    EXPECT_EQ(own_deadline(300, -5), -300);
    EXPECT_EQ(own_deadline(unknown_offset, 1'000), never_ns);
    EXPECT_EQ(own_deadline(300, never_ns), never_ns);
}

TEST(device_clocks, a_call_sends_its_deadline_in_the_time_of_the_server) {
    alignas(8) std::array<std::byte, wire::header_bytes> memory{};
    channel_state state;
    state.clock_offset = 300;
    channel_ref channel;
    channel.state = &state;
    call_ref call;
    call.request = memory.data() + memory.size();
    call.deadline = 1'000;
    write_header(channel, call, 0);
    wire::slot_header told;
    load_header(memory.data(), told);
    EXPECT_EQ(told.deadline_ns, 1'300);
}

TEST(device_clocks, an_answer_reports_its_arrival_in_the_time_of_the_host) {
    alignas(8) std::array<std::byte, wire::header_bytes> memory{};
    exchange_ref exchange;
    exchange.response = memory.data() + memory.size();
    exchange.arrival = 1'000;
    exchange.clock_offset = 300;
    write_header(fields_of(exchange), answer{});
    wire::slot_header told;
    load_header(memory.data(), told);
    EXPECT_EQ(told.arrival_ns, 1'300);
}

}  // namespace
}  // namespace accel::device::detail
